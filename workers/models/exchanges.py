"""`exchanges.jsonl`: what was sent to a model and what came back, call by call; pictures by reference, keys never."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from workers.models.conversation import Ask, Reply
from workers.transcript import Transcript

EXCHANGES_NAME = "exchanges.jsonl"
MAX_TEXT_CHARACTERS = 60_000


class Exchanges:
    """The parts that are equal from call to call (system text, tools) are written at the first call that has them."""

    def __init__(self, folder: Path) -> None:
        self._file = Transcript(folder / EXCHANGES_NAME)
        self._known: dict[bytes, int] = {}

    def close(self) -> None:
        self._file.__exit__(None, None, None)

    def write(self, *, call: int, purpose: str, step: int, ask: Ask, answer: Reply | str, seconds: float) -> None:
        """One call; `answer` is a text where there was none: why."""
        picture = ask.picture
        row: dict[str, Any] = {
            "call": call,
            "step": step,
            "purpose": purpose,
            "seconds": round(seconds, 3),
            "sent": {
                **self._standing(call, ask),
                "text": ask.text[:MAX_TEXT_CHARACTERS],
                "picture": None if picture is None else {"ref": picture.reference, "bytes": len(picture.data)},
                "max_output_tokens": ask.max_output_tokens,
            },
            "received": self._received(answer),
        }
        self._file.write(row)

    def _standing(self, call: int, ask: Ask) -> dict[str, Any]:
        standing = {"system": ask.system, "tools": msgspec.to_builtins(ask.tools)}
        key = msgspec.json.encode(standing)
        first = self._known.setdefault(key, call)
        return standing if first == call else {"system_and_tools_of_call": first}

    @staticmethod
    def _received(answer: Reply | str) -> dict[str, Any]:
        if isinstance(answer, str):
            return {"failed": answer[:2_000]}
        found: dict[str, Any] = msgspec.to_builtins(answer)
        found["text"] = answer.text[:MAX_TEXT_CHARACTERS]
        found["calls"] = [
            {"name": call.name[:200], "arguments": call.arguments[:MAX_TEXT_CHARACTERS]} for call in answer.calls
        ]
        return found
