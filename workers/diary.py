"""What a session writes down at each step: the effect in words, the transcript line, the timeline row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from drivers.base import Observation
from drivers.errors import DriverError
from workers.brains.base import Candidate
from workers.contract import Finding
from workers.look import Input

MAX_STATE_BYTES = 8_000
MAX_LOG_LINES = 50
MAX_MOVES = 200


def effect_in_words(before: Observation, after: Observation | None, status: str, given: Input) -> list[str]:
    """What an input changed, hidden values included."""
    if after is None:
        return ["the game failed"]
    if given.restart:
        return ["started again"]
    if status != "done":
        return [status]
    words = [
        word
        for word, one, other in (
            ("text", before.text, after.text),
            ("moves", before.moves, after.moves),
            ("controls", before.controls, after.controls),
            ("scene", before.scene, after.scene),
            ("url", before.url, after.url),
            ("state", before.state, after.state),
            ("frame", before.frame_hash, after.frame_hash),
        )
        if one != other
    ]
    if before.progress is not None and after.progress is not None and before.progress != after.progress:
        words.append(f"progress {after.progress - before.progress:+g}")
    return [*words, "ended"] if after.done else words or ["nothing"]


def transcript_row(
    *,
    step: int,
    at: str,
    game_seconds: float,
    brain_seconds: float,
    chosen: Candidate,
    proposals: Sequence[Candidate],
    shown: Observation,
    goal: bool | None,
    status: str,
    detail: str,
    error: DriverError | None,
    effect: Sequence[str],
    findings: Sequence[Finding],
) -> dict[str, Any]:
    """One line of `transcript.jsonl`: what was done and why, and the game's answer, unfiltered and bounded."""
    small = len(msgspec.json.encode(shown.state)) <= MAX_STATE_BYTES
    return {
        "step": step,
        "id": f"s{step}",
        "at": at,
        "game_seconds": round(game_seconds, 3),
        "brain_seconds": round(brain_seconds, 3),
        "action": chosen.input.as_data(),
        "label": chosen.label,
        "why": chosen.why,
        "proposals": [proposal.label for proposal in proposals],
        "status": status,
        "detail": detail[:1_000],
        "error": None if error is None else f"{type(error).__name__}: {str(error)[:4_000]}",
        "effect": list(effect),
        "text": shown.text,
        "moves": None if shown.moves is None else [msgspec.to_builtins(move) for move in shown.moves[:MAX_MOVES]],
        "state": shown.state if small else f"(larger than {MAX_STATE_BYTES} bytes)",
        "scene": shown.scene,
        "progress": shown.progress,
        "goal": goal,
        "violations": list(shown.violations),
        "done": shown.done,
        "outcome": shown.outcome,
        "log": [msgspec.to_builtins(line) for line in shown.log[:MAX_LOG_LINES]],
        "cut": list(shown.cut),
        "findings": [finding.id for finding in findings],
    }
