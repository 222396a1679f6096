"""Traces: a bounded sample of games, written so that each can be played again and compared step by step.

A trace is a header line and a line for each turn (step 0 is the turn after `reset`). Which games are kept is decided in
run order by what they show: every kind of failure first, the shortest, the longest, one of each outcome and strategy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from workers.simulation.errors import TraceError
from workers.simulation.play import GameResult, Play

TRACE_VERSION = 1
MAX_TRACES = 200
MAX_FAILURE_KINDS = 64
MAX_TRACE_BYTES = 8 << 20
MAX_TAIL_CHARACTERS = 2_000
SHORTEST = "shortest"
LONGEST = "longest"
_NUMBERS = re.compile(r"\d+")
_QUOTED = re.compile(r"'[^']*'")


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a trace. `cut`: only the game's beginning was kept. `params` is what the game was given.

    `pending_action` is the JSON text of an action that never got an answer, `tail` the end of the bridge's error
    output. `result` is the game's line of `results.jsonl`.
    """

    trace_version: int
    configuration_sha256: str
    bridge_sha256: str
    seed: str
    strategy: str
    variant: str
    run: int
    params: dict[str, Any]
    kept_because: list[str]
    cut: bool
    pending_action: str | None
    tail: str
    result: GameResult


class TraceStep(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a trace. `state` is there where it is small; `state_sha256` is over its JSON in one key order."""

    step: int
    action: str | None = None
    state_sha256: str
    state: Any = msgspec.UNSET
    outcome: str | None = None
    metrics: dict[str, float] | None = None
    done: bool = False


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A game that a pool process found worth keeping: its whole trace as bytes."""

    index: int
    data: bytes


def keys_of(result: GameResult) -> tuple[str, ...]:
    """What a game shows that one trace of is enough."""
    if result.status == "failed":
        return (f"failure: {fold_reason(result.reason or '')}",)
    if result.status == "truncated":
        return (f"truncated: {result.reason}: {result.strategy}: {result.variant}",)
    return (f"outcome: {result.outcome}: {result.strategy}: {result.variant}",)


def fold_reason(reason: str) -> str:
    """A reason with its numbers and quotes replaced: the kind of failure."""
    return _NUMBERS.sub("#", _QUOTED.sub("'...'", reason))


class Shown(msgspec.Struct, kw_only=True):
    """What the traces kept so far show: a set of keys, and the lengths of the shortest and longest completed game."""

    keys: set[str] = msgspec.field(default_factory=set)
    shortest: int | None = None
    longest: int | None = None
    failures: int = 0

    def wanted(self, result: GameResult) -> tuple[str, ...]:
        """The reasons to keep this game's trace; none where it shows nothing new."""
        keys = []
        for key in keys_of(result):
            is_failure = key.startswith("failure: ")
            room = len(self.keys) < MAX_TRACES and (not is_failure or self.failures < MAX_FAILURE_KINDS)
            if key not in self.keys and room:
                keys.append(key)
        if result.status == "completed":
            if self.shortest is None or result.steps < self.shortest:
                keys.append(SHORTEST)
            if self.longest is None or result.steps > self.longest:
                keys.append(LONGEST)
        return tuple(keys)

    def note(self, keys: Iterable[str], steps: int) -> None:
        """A trace with these reasons is kept."""
        for key in keys:
            if key == SHORTEST:
                self.shortest = steps
            elif key == LONGEST:
                self.longest = steps
            elif key not in self.keys:
                self.keys.add(key)
                self.failures += key.startswith("failure: ")

    def copy(self) -> Shown:
        """The same as it is now: what goes out with a chunk must not change under way."""
        return Shown(keys=set(self.keys), shortest=self.shortest, longest=self.longest, failures=self.failures)


def encode_trace(play: Play, *, keys: tuple[str, ...], configuration_sha256: str, bridge_sha256: str) -> bytes:
    """A game's whole trace file. Longer ones than `MAX_TRACE_BYTES` keep their beginning, and the header says so."""
    assert play.result is not None, "only ended games have a trace"
    lines = []
    size = 0
    cut = play.cut
    for step, turn in enumerate(play.turns):
        extra = b"," + turn.extra[1:-1] if len(turn.extra) > 2 else b""
        if turn.state.startswith(b'"sha256:'):
            state = b'"state_sha256":"%s"' % turn.state[8:-1]
        else:
            state = b'"state_sha256":"%s","state":%s' % (hashlib.sha256(turn.state).hexdigest().encode(), turn.state)
        line = b'{"step":%d,"action":%s,%s%s}\n' % (step, turn.action or b"null", state, extra)
        size += len(line)
        if size > MAX_TRACE_BYTES:
            cut = True
            break
        lines.append(line)
    pending = play.pending_action
    header = encode_header(
        play.result,
        params=play.params,
        configuration_sha256=configuration_sha256,
        bridge_sha256=bridge_sha256,
        keys=keys,
        cut=cut,
        pending_action=None if pending is None or cut else pending.decode(),
        tail=play.tail[-MAX_TAIL_CHARACTERS:],
    )
    return header + b"".join(lines)


def encode_header(
    result: GameResult,
    *,
    params: Mapping[str, Any],
    configuration_sha256: str,
    bridge_sha256: str,
    keys: tuple[str, ...] = (),
    cut: bool = False,
    pending_action: str | None = None,
    tail: str = "",
) -> bytes:
    """A trace's first line, newline included."""
    header = Header(
        trace_version=TRACE_VERSION,
        configuration_sha256=configuration_sha256,
        bridge_sha256=bridge_sha256,
        seed=result.seed,
        strategy=result.strategy,
        variant=result.variant,
        run=result.index,
        params=dict(params),
        kept_because=list(keys or keys_of(result)),
        cut=cut,
        pending_action=pending_action,
        tail=tail,
        result=result,
    )
    return msgspec.json.encode(header) + b"\n"


def trace_name(index: int) -> str:
    return f"game-{index:09d}.jsonl"


class TraceSample:
    """The traces of a batch in their folder: offered in run order, kept by what they show."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self.shown = Shown()
        self._holders: dict[str, int] = {}
        self._reasons: dict[int, set[str]] = {}

    def offer(self, candidate: Candidate, result: GameResult) -> None:
        """Take a candidate; a pool process knew only what was kept when it began, so it is judged again here."""
        keys = self.shown.wanted(result)
        if not keys:
            return
        write_private(self._directory / trace_name(candidate.index), candidate.data)
        self.note(candidate.index, keys, result.steps)

    def note(self, index: int, keys: tuple[str, ...], steps: int) -> None:
        """Record that the trace of `index` lies in the folder for these reasons; drop what it replaces."""
        self.shown.note(keys, steps)
        for key in keys:
            before = self._holders.get(key)
            self._holders[key] = index
            self._reasons.setdefault(index, set()).add(key)
            if before is not None and before != index:
                self._reasons[before].discard(key)
                if not self._reasons[before]:
                    del self._reasons[before]
                    (self._directory / trace_name(before)).unlink(missing_ok=True)

    def adopt(self, earlier: Path, result: GameResult) -> None:
        """Take over a game's trace from an earlier attempt, where this sample wants it and it is there."""
        keys = self.shown.wanted(result)
        if not keys:
            return
        source = earlier / trace_name(result.index)
        with contextlib.suppress(FileNotFoundError):
            write_private(self._directory / source.name, source.read_bytes())
            self.note(result.index, keys, result.steps)

    @property
    def paths(self) -> list[Path]:
        return [self._directory / trace_name(index) for index in sorted(self._reasons)]


def read_trace(path: Path) -> tuple[Header, list[TraceStep]]:
    """Read a trace. `TraceError` names the line that is not as it must be."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise TraceError(str(path), 0, error.strerror or str(error)) from error
    if lines[-1] == b"":
        lines.pop()
    steps: list[TraceStep] = []
    header: Header | None = None
    for number, line in enumerate(lines, start=1):
        try:
            if header is None:
                header = msgspec.json.decode(line, type=Header)
                if header.trace_version != TRACE_VERSION:
                    raise TraceError(
                        str(path), 1, f"version {header.trace_version}; this program reads {TRACE_VERSION}"
                    )
            else:
                steps.append(msgspec.json.decode(line, type=TraceStep))
                if steps[-1].step != len(steps) - 1:
                    raise TraceError(str(path), number, f"step {steps[-1].step} where {len(steps) - 1} is due")
        except (msgspec.MsgspecError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise TraceError(str(path), number, str(error)) from error
    if header is None:
        raise TraceError(str(path), 1, "the file is empty")
    return header, steps


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read, complete or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)
