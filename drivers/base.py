"""The contract between a playthrough and a game: four verbs, plain data.

A driver starts one game session, shows what a player can perceive, performs one input at a time, and leaves nothing
behind. It knows nothing of runs, money or personas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

ActionKind = Literal[
    "click", "double_click", "move", "tap", "swipe", "drag", "scroll", "type", "press", "hold",
    "gamepad_button", "gamepad_axis", "choose", "command", "wait", "note", "quit",
]  # fmt: skip
ActStatus = Literal["done", "illegal", "unsupported"]
RecordingStatus = Literal["complete", "partial", "unsupported", "failed", "off"]

MAX_TEXT_CHARACTERS = 8_000
MAX_CONTROLS = 200
MAX_LOG_LINES = 200


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A rectangle on the screen, in CSS pixels (web) or viewport pixels (Godot)."""

    x: float
    y: float
    width: float
    height: float


class Control(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that can be operated. `ref` is stable within one observation only."""

    ref: str
    role: str
    name: str = ""
    box: Box | None = None
    enabled: bool = True
    value: str | None = None


class Move(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A legal move that the game lists. `id` is what is sent back, `label` is for people."""

    id: str
    label: str = ""


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the game's console or engine, folded: `count` equal lines in a row."""

    level: Literal["debug", "info", "warning", "error"]
    text: str
    source: str = ""
    count: int = 1


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What can be perceived now. Text is cut at `MAX_TEXT_CHARACTERS`, controls at `MAX_CONTROLS`; `cut` says what was.

    `moves` is None where the game takes free text, and a list (perhaps empty) where it lists what is legal.
    `state` is whatever the game's state hook tells, any JSON; players do not see it, oracles and `goal_when` do.
    `player` is whose turn it is, where the game tells; `your_turn` is False while the game waits for another player.
    """

    text: str = ""
    controls: tuple[Control, ...] = ()
    moves: tuple[Move, ...] | None = None
    screenshot: str | None = None
    url: str | None = None
    scene: str | None = None
    scenes: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    state: Any = None
    progress: float | None = None
    goal: bool | None = None
    violations: tuple[str, ...] = ()
    metrics: Mapping[str, float] | None = None
    player: str | None = None
    your_turn: bool = True
    done: bool = False
    outcome: str | None = None
    log: tuple[LogLine, ...] = ()
    failed_requests: tuple[str, ...] = ()
    dialogs: tuple[str, ...] = ()
    frame_hash: str = ""
    fps: float | None = None
    cut: tuple[str, ...] = ()


class Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One input. Which fields matter follows from `kind`; the others stay at their defaults.

    choose: `move` (a listed id). command, type, note: `text`. press, hold: `key` (hold: `milliseconds`).
    click, double_click, tap, move, scroll: `ref` or `x`, `y` (move: relative when `relative`). swipe, drag:
    from `x`, `y` to `to_x`, `to_y`. gamepad_button: `key`; gamepad_axis: `key` and `value` in -1..1.
    wait: `milliseconds`.
    """

    kind: ActionKind
    move: str | None = None
    text: str | None = None
    key: str | None = None
    ref: str | None = None
    x: float | None = None
    y: float | None = None
    to_x: float | None = None
    to_y: float | None = None
    value: float | None = None
    relative: bool = False
    milliseconds: int | None = None


class ActResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of an input. `illegal`: the game refused it and its turn was not spent; `detail`: the game's word."""

    status: ActStatus
    observation: Observation
    detail: str = ""


class Recording(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was recorded, and honestly whether. `reason` is never empty unless complete or off.

    `leftovers` names processes, folders or ports that the game left and `stop` had to remove.
    """

    status: RecordingStatus
    reason: str = ""
    path: str | None = None
    leftovers: tuple[str, ...] = ()


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver is given to start one session.

    `settings` are the driver's own (for `cli_stdio`: the decoded bridge file). `directory` is private and exists; the
    driver may write in it. `environment` is the whole environment of the game process (already allow-listed).
    `seed` is None when randomness is to be left alone. `playtest` goes to the game as it is (persona name, run id).
    """

    settings: Mapping[str, Any]
    directory: Path
    seed: int | None = None
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    playtest: Mapping[str, Any] = msgspec.field(default_factory=dict)
    record_video: bool = False


class Driver(Protocol):
    """One game session. Every call ends within a deadline of its own whatever the game does.

    `start`, `observe` and `act` raise a `DriverError`; `stop` never raises one, works after any failure, may be called
    twice, and leaves no process, temporary file or port.
    """

    name: str

    @property
    def action_kinds(self) -> Sequence[ActionKind]:
        """The inputs this session can perform now."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What is known of the session for "what was tested": game name, version, seed_confirmed, launch line, ..."""

    async def start(self, launch: Launch) -> Observation: ...

    async def observe(self) -> Observation: ...

    async def act(self, action: Action) -> ActResult: ...

    async def screenshot(self, name: str) -> Path | None:
        """Write a picture into the launch directory; None where the driver has none."""

    async def stop(self, reason: str) -> Recording: ...
