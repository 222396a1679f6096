"""One game in play: what it showed, what was chosen, how it ended. No process, pipe or clock.

Whoever holds the game asks `Play.take(turn)` for the next action until it says `ENDED`. What is kept of each turn are
bytes: the state in one key order, so that equal states are equal bytes whoever played the game.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from drivers.turns import Turn
from workers.simulation.configuration import EVERY_SEAT, Configuration, Strategy, Variant
from workers.simulation.policies import NobodyError, make_chooser, needs_generator
from workers.simulation.seeds import game_seed, policy_seed

Status = Literal["completed", "failed", "truncated"]

SMALL_STATE_BYTES = 2_048
KEPT_TURNS = 20_000
KEPT_BYTES = 4 << 20
MAX_OUTCOME_CHARACTERS = 64
MAX_REASON_CHARACTERS = 200
ENDED: Final = object()
STALEMATE = "stalemate: the game lists no legal action and is not done"
STEP_LIMIT = "step limit"
OWN_LIMIT = "the environment's own limit"
WALL_CLOCK = "wall clock"
CANCELED = "canceled"
CUT_SHORT = (WALL_CLOCK, CANCELED)

_FLUSH_MASK = 1_023
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")
_MAX_CACHED = 10_000


class KeptTurn(msgspec.Struct, frozen=True, array_like=True):
    """One turn of a trace: the action that led to it, its state (or digest, where it is large), what it said besides.

    All JSON as bytes; the first turn's action is empty. `extra` is {outcome?, metrics?} or empty.
    """

    action: bytes
    state: bytes
    extra: bytes


class GameResult(msgspec.Struct, kw_only=True, omit_defaults=False):
    """A line of `results.jsonl`, in this order of fields. `trace` is the digest of the steps alone.

    `seats` is seat -> kind of policy. `reason` is None for a completed game.
    """

    index: int
    strategy: str
    variant: str
    seats: dict[str, str]
    seed: str
    outcome: str | None
    status: Status
    reason: str | None
    steps: int
    metrics: dict[str, float]
    trace: str


class Cell:
    """One strategy x variant, made ready to play: choosers by seat, and the parameters the game is given."""

    def __init__(self, configuration: Configuration, strategy: Strategy, variant: Variant) -> None:
        self.strategy = strategy.name
        self.variant = variant.name
        self.params: dict[str, Any] = {**configuration.params, **variant.params}
        self.choosers = {seat: make_chooser(policy) for seat, policy in strategy.seats.items()}
        self.everyone = self.choosers.get(EVERY_SEAT)
        self.seats: dict[str, str] = {seat: policy.kind for seat, policy in strategy.seats.items()}
        self.draws = any(needs_generator(policy) for policy in strategy.seats.values())


class Table:
    """A batch's configuration made ready to play, once in a process. One generator is reseeded for every game."""

    def __init__(self, configuration: Configuration, seed_bits: int) -> None:
        self.configuration = configuration
        self.seed_bits = seed_bits
        self.cells = [Cell(configuration, strategy, variant) for strategy, variant in configuration.cells]
        self.codes: dict[str, bytes] = {}

    def code(self, action: str) -> bytes:
        """The action as JSON, remembered: a batch has few different ones."""
        code = self.codes.get(action)
        if code is None:
            code = json.dumps(action).encode()
            if len(self.codes) < _MAX_CACHED:
                self.codes[action] = code
        return code


class Play:
    """One game, from its first turn to its result.

    `begin` gives the seed; `take` gives the next action or `ENDED`; `fail` and `truncate` end it from outside. After
    the end `result` is set, and `turns` holds the trace as far as it was kept (`cut` when it was not kept whole).
    """

    __slots__ = (
        "_cell",
        "_choices",
        "_codes",
        "_everyone",
        "_generator",
        "_hasher",
        "_kept",
        "_kept_bytes",
        "_max_steps",
        "_parts",
        "_table",
        "cut",
        "index",
        "metrics",
        "result",
        "seed",
        "steps",
        "tail",
    )

    def __init__(self, table: Table, index: int) -> None:
        configuration = table.configuration
        k, position = configuration.locate(index)
        cell = table.cells[position]
        self._table, self._cell = table, cell
        self._codes = table.codes
        self._everyone = cell.everyone if len(cell.choosers) == 1 else None
        self.index = index
        self.seed = game_seed(configuration.seed, k, table.seed_bits)
        self._generator = (
            random.Random(policy_seed(configuration.seed, k, cell.strategy)) if cell.draws else _NO_GENERATOR
        )
        self._choices: dict[str, int] = {}
        self._max_steps = configuration.max_steps
        self._parts: list[bytes] = [b""]
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._hasher: Any = None
        self.cut = False
        self.steps = -1
        self.metrics: dict[str, float] | None = None
        self.result: GameResult | None = None
        self.tail = ""

    @property
    def params(self) -> Mapping[str, Any]:
        return self._cell.params

    @property
    def strategy(self) -> str:
        return self._cell.strategy

    @property
    def variant(self) -> str:
        return self._cell.variant

    def take(self, turn: Turn) -> Any:
        """The next turn: give the action to send (None: the game chooses), or `ENDED`."""
        # The hot path of every batch: a local name costs half of an attribute, one `+=` less than three appends.
        steps = self.steps = self.steps + 1
        state = _encode(turn.state)
        if len(state) > SMALL_STATE_BYTES or b"-0" in state:
            state = condense(state)
        actions = turn.actions
        extra = b""
        if turn.done or turn.metrics is not None or turn.outcome is not None:
            extra_or_none = self._read_extra(turn)
            if extra_or_none is None:
                self._parts += (state, b"")
                return self.fail("not a turn: a metric is no finite number")
            extra = extra_or_none
        if turn.done or steps >= self._max_steps or actions == ():
            self._parts += (state, extra)
            if turn.done:
                return self._finish("completed", None, clean_outcome(turn.outcome))
            return self.truncate(STEP_LIMIT) if steps >= self._max_steps else self.fail(STALEMATE)
        chooser = self._everyone
        try:
            action = chooser(turn, steps, self._generator) if chooser is not None else self._choose_by_seat(turn)
        except NobodyError as error:
            self._parts += (state, extra)
            return self.fail(f"no policy: {error}")
        code = b"null" if action is None else self._codes.get(action) or self._table.code(action)
        self._parts += (state, extra, code)
        if not steps & _FLUSH_MASK:
            self._flush()
        return action

    def _choose_by_seat(self, turn: Turn) -> str | None:
        seat = "" if turn.player is None else str(turn.player)
        chooser = self._cell.choosers.get(seat, self._cell.everyone)
        if chooser is None:
            raise NobodyError(f"the strategy names nobody for the seat {seat[:40]!r}")
        made = self._choices.get(seat, 0)
        self._choices[seat] = made + 1
        return chooser(turn, made, self._generator)

    def fail(self, reason: str) -> Any:
        """End the game as failed; give `ENDED`."""
        return self._finish("failed", fold_addresses(reason), None)

    def truncate(self, reason: str) -> Any:
        """End the game as stopped by us; give `ENDED`."""
        return self._finish("truncated", reason, None)

    @property
    def turns(self) -> list[KeptTurn]:
        """The trace, at most `KEPT_TURNS` turns and `KEPT_BYTES` bytes of it."""
        parts = (self._kept + self._parts)[: 3 * KEPT_TURNS]
        if parts and len(parts) % 3 == 1:
            parts.pop()  # an action whose answer never came
        return [KeptTurn(*parts[start : start + 3]) for start in range(0, len(parts) - len(parts) % 3, 3)]

    @property
    def pending_action(self) -> bytes | None:
        """The action that was sent and never answered, as JSON; None where there is none."""
        return self._parts[-1] if len(self._parts) % 3 == 1 and self._parts[-1] else None

    def _read_extra(self, turn: Turn) -> bytes | None:
        """What a turn says besides its state, as JSON; None where a metric is not finite."""
        extra: dict[str, Any] = {}
        if turn.done:
            extra["done"] = True
        if turn.outcome is not None:
            extra["outcome"] = turn.outcome[:MAX_OUTCOME_CHARACTERS]
        if turn.metrics is not None:
            if not all(map(math.isfinite, turn.metrics.values())):
                return None
            extra["metrics"] = self.metrics = {name: value + 0.0 for name, value in turn.metrics.items()}
        return _encode(extra)

    def _finish(self, status: Status, reason: str | None, outcome: str | None) -> Any:
        digest = self._digest()
        self.result = GameResult(
            index=self.index,
            strategy=self._cell.strategy,
            variant=self._cell.variant,
            seats=self._cell.seats,
            seed=str(self.seed),
            outcome=outcome,
            status=status,
            reason=reason,
            steps=max(self.steps, 0),
            metrics=self.metrics or {},
            trace=digest,
        )
        return ENDED

    def _digest(self) -> str:
        if self._hasher is None:
            return hashlib.sha256(b"\x1e".join(self._parts)).hexdigest()[:32]
        self._hasher.update(b"\x1e".join(self._parts))
        return str(self._hasher.hexdigest())[:32]

    def _flush(self) -> None:
        """Hash what has been kept and forget it, but for the beginning: memory must not grow with a game's length."""
        whole = len(self._parts) // 3 * 3
        done, self._parts = self._parts[:whole], self._parts[whole:]
        if not done:
            return
        if self._hasher is None:
            self._hasher = hashlib.sha256()
        data = b"\x1e".join(done) + b"\x1e"
        self._hasher.update(data)
        self._kept_bytes += len(data)
        if not self.cut and self._kept_bytes <= KEPT_BYTES and len(self._kept) < 3 * KEPT_TURNS:
            self._kept += done
        else:
            self.cut = True


def condense(state: bytes) -> bytes:
    """A state's bytes as they are kept: -0.0 as 0.0, and a large state as the JSON text `sha256:` and 64 hex digits."""
    if b"-0" in state:
        state = _encode(_without_negative_zero(msgspec.json.decode(state)))
    if len(state) > SMALL_STATE_BYTES:
        return b'"sha256:%s"' % hashlib.sha256(state).hexdigest().encode()
    return state


def encode_state(state: object) -> bytes:
    """The bytes that stand for a state in traces and digests."""
    return condense(_encode(state))


def clean_outcome(outcome: str | None) -> str:
    """An outcome as a short printable text; a game that ends without one ends as `none`."""
    if outcome is None:
        return "none"
    if len(outcome) > MAX_OUTCOME_CHARACTERS or not outcome.isprintable():
        outcome = "".join(c if c.isprintable() else " " for c in outcome[:MAX_OUTCOME_CHARACTERS]).strip()
    return outcome or "none"


def fold_addresses(reason: str) -> str:
    """A reason without memory addresses and control characters, bounded: the same failure, the same words."""
    text = _ADDRESS.sub("0x#", reason)
    return "".join(c if c.isprintable() else " " for c in text)[:MAX_REASON_CHARACTERS]


def _without_negative_zero(value: Any) -> Any:
    if type(value) is float:
        return value + 0.0
    if type(value) is list:
        return [_without_negative_zero(item) for item in value]
    if type(value) is dict:
        return {key: _without_negative_zero(item) for key, item in value.items()}
    return value


def _to_plain(value: Any) -> Any:
    """Arrays and numbers of numerical libraries, as lists and numbers of Python."""
    to_list = getattr(value, "tolist", None)
    if to_list is None:
        raise TypeError(f"a state must be JSON; it holds a {type(value).__name__}")
    return to_list()


class _NoGenerator(random.Random):
    """Stands in for policies that never draw: seeding a real one costs more than such a game's step."""


_NO_GENERATOR = _NoGenerator(0)
_encode = msgspec.json.Encoder(order="deterministic", enc_hook=_to_plain).encode
