"""The bridge protocol's Turn: what a game says after `reset` and `step`, and the observation made from it."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from drivers.base import MAX_TEXT_CHARACTERS, LogLine, Move, Observation
from drivers.errors import ProtocolError

MAX_MOVES_SHOWN = 1_000
MAX_LABEL_CHARACTERS = 200
MAX_VIOLATIONS = 50


class ListedMove(msgspec.Struct, frozen=True, kw_only=True):
    """A legal move as the game lists it."""

    id: str
    label: str = ""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn as the game tells it. `actions` None: the game takes free text. Keys beyond these are ignored."""

    state: Any
    done: bool
    text: str | None = None
    player: str | int | None = None
    actions: tuple[ListedMove, ...] | None = None
    outcome: str | None = None
    metrics: dict[str, float] | None = None
    progress: float | None = None
    goal: bool | None = None
    violations: tuple[str, ...] | None = None
    seed: str | int | None = None

    @property
    def move_ids(self) -> frozenset[str]:
        return frozenset(move.id for move in self.actions or ())


def read_turn(method: str, result: object) -> Turn:
    """Check a result's form. `ProtocolError` names the part that is missing or of the wrong type."""
    try:
        return msgspec.convert(result, Turn)
    except (msgspec.ValidationError, OverflowError) as error:
        found = msgspec.json.encode(result)[:200].decode("utf-8", "replace")
        raise ProtocolError(f"the answer to {method} is no Turn: {error}", line=found) from error


def echo_matches(turn: Turn, seed: int) -> bool | None:
    """Whether the game said the seed back in the same digits; None when it said nothing.

    A number is accepted where it is exact: a game that keeps seeds as binary64 loses digits past 2^53, and shows it.
    """
    if turn.seed is None:
        return None
    return str(turn.seed) == str(seed)


def observe_turn(turn: Turn, log: tuple[LogLine, ...]) -> Observation:
    """The observation of a turn. The frame hash covers text, moves and state whole; what is shown is bounded."""
    text = turn.text or ""
    moves: tuple[Move, ...] | None = None
    cut = []
    if len(text) > MAX_TEXT_CHARACTERS:
        cut.append(f"text: {len(text)} characters, the first {MAX_TEXT_CHARACTERS} shown")
    if turn.actions is not None:
        if len(turn.actions) > MAX_MOVES_SHOWN:
            cut.append(f"moves: {len(turn.actions)}, the first {MAX_MOVES_SHOWN} shown")
        moves = tuple(
            Move(id=move.id, label=move.label[:MAX_LABEL_CHARACTERS]) for move in turn.actions[:MAX_MOVES_SHOWN]
        )
    return Observation(
        text=text[:MAX_TEXT_CHARACTERS],
        moves=moves,
        state=turn.state,
        progress=turn.progress,
        goal=turn.goal,
        violations=(turn.violations or ())[:MAX_VIOLATIONS],
        metrics=turn.metrics,
        player=None if turn.player is None else str(turn.player),
        done=turn.done,
        outcome=turn.outcome,
        log=log,
        frame_hash=hash_turn(turn),
        cut=tuple(cut),
    )


def hash_turn(turn: Turn) -> str:
    """32 hex digits of SHA-256 over text, moves and state, in a key order of our own."""
    seen = [turn.text, turn.actions, turn.state]
    return hashlib.sha256(msgspec.json.encode(seen, order="deterministic")).hexdigest()[:32]
