"""`cli_stdio`: plays a game that speaks the bridge protocol (docs/bridge-protocol.md) over its standard streams."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from drivers.base import Action, ActionKind, ActResult, Launch, Observation, Recording
from drivers.bridge_file import BridgeConfiguration, load_bridge, read_settings
from drivers.connection import PROTOCOL, BridgeConnection
from drivers.errors import DriverError, DriverStartError, GameEndedError, ProtocolError, UnsupportedActionError
from drivers.jsonrpc import ILLEGAL_ACTION, SEED_NOT_SUPPORTED, Answer, Refusal
from drivers.processes import StopReport
from drivers.turns import Turn, echo_matches, observe_turn, read_turn

__all__ = ["BridgeConfiguration", "BridgeDriver", "Greeting", "load_bridge", "read_greeting", "reset_parameters"]

SESSION = "s1"
MAX_COMMAND_CHARACTERS = 10_000
CLOSE_SECONDS = 1.0
MAX_NAME_CHARACTERS = 200


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """What a game answers to `initialize`."""

    name: str
    version: str | int | float = ""
    protocol: int
    sessions: int = 1


def read_greeting(result: object) -> Greeting:
    """Check the answer to `initialize`; `ProtocolError` says what is wrong with it."""
    try:
        greeting = msgspec.convert(result, Greeting)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"the answer to initialize has not its form: {error}") from error
    if greeting.protocol != PROTOCOL:
        raise ProtocolError(f"the game speaks protocol {greeting.protocol}, this driver speaks {PROTOCOL}")
    return greeting


def reset_parameters(session: str, seed: int | None, playtest: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The parameters of `reset`: the seed as decimal digits (no seed: the key is absent and the game draws its own)."""
    parameters: dict[str, Any] = {"session": session}
    if seed is not None:
        parameters["seed"] = str(seed)
    if playtest:
        parameters["playtest"] = dict(playtest)
    return parameters


class BridgeDriver:
    """One session of a bridge game; see `drivers.base.Driver` for the verbs.

    A move that the game did not list is refused here: `illegal`, nothing is sent, no turn is spent. `reload` starts
    the open session again (an extra of this driver).
    """

    name = "cli_stdio"

    def __init__(self) -> None:
        self._connection: BridgeConnection | None = None
        self._configuration: BridgeConfiguration | None = None
        self._launch: Launch | None = None
        self._greeting: Greeting | None = None
        self._turn: Turn | None = None
        self._seed_confirmed: bool | None = None
        self._counts = {"steps": 0, "refused_by_driver": 0, "refused_by_game": 0, "resets": 0}
        self._stopped: StopReport | None = None

    @property
    def action_kinds(self) -> Sequence[ActionKind]:
        """`choose` where the game lists its moves, `command` where it takes free text."""
        if self._turn is None or self._turn.actions is not None:
            return ("choose",)
        return ("command",)

    @property
    def facts(self) -> Mapping[str, Any]:
        """Name and version of the game, launch line, seed control, counts of noise and refusals, how it stopped."""
        facts: dict[str, Any] = {"driver": self.name, **self._counts}
        if self._greeting is not None:
            facts["game"] = self._greeting.name[:MAX_NAME_CHARACTERS]
            facts["version"] = str(self._greeting.version)[:MAX_NAME_CHARACTERS]
            facts["protocol"] = self._greeting.protocol
        if self._launch is not None:
            facts["seed"] = None if self._launch.seed is None else str(self._launch.seed)
            facts["seed_confirmed"] = self._seed_confirmed
            facts["seed_control"] = self._seed_control()
        if self._connection is not None:
            facts["launch_line"] = shlex.join(self._connection.arguments)
            facts["noise_lines"] = self._connection.noise_lines
            facts["log_lines"] = self._connection.log.total
            facts["log_lines_dropped"] = self._connection.log.dropped
        if self._stopped is not None:
            facts["stopped"] = self._stopped.how
            facts["exit_code"] = self._stopped.exit_code
        return facts

    async def start(self, launch: Launch) -> Observation:
        """Start the game, greet it and reset a session with the launch's seed.

        Raises `DriverStartError` when settings, command, greeting or seed are not as they must be, whatever the game
        did; the cause says how it failed.
        """
        if self._connection is not None:
            raise DriverStartError("this driver has already started a game", todo="make one driver for each session")
        configuration = read_settings(launch.settings)
        _check_seed(launch.seed, configuration)
        self._launch, self._configuration = launch, configuration
        self._connection = BridgeConnection.open(
            configuration, seed=launch.seed, directory=launch.directory, environment=launch.environment
        )
        limit_seconds = configuration.startup_timeout_ms / 1000
        try:
            hello = await self._call("initialize", {"protocol": PROTOCOL}, limit_seconds)
            if isinstance(hello, Refusal):
                raise ProtocolError(f"the game refused initialize: {hello.code} {hello.message}")
            self._greeting = read_greeting(hello.result)
            await self._reset(limit_seconds)
        except DriverStartError:
            raise
        except DriverError as error:
            raise DriverStartError(
                "the game started and did not begin to play",
                command=shlex.join(self._connection.arguments),
                # The tail is a fact of its own below, hence not said twice.
                found=str(error).partition("; last lines of its error output: ")[0],
                tail=self._connection.error_tail,
            ) from error
        return self._observe()

    async def observe(self) -> Observation:
        """The last turn again, with what the game has printed since; the game is not asked anything."""
        connection = self._playing()
        if connection.failure is not None:
            raise connection.failure
        if connection.process.exited.is_set() and not self._current_turn().done:
            raise GameEndedError(
                "the game's process ended", exit_code=connection.process.exit_code, tail=connection.error_tail
            )
        return self._observe()

    async def act(self, action: Action) -> ActResult:
        """Choose a listed move, or send a line of free text."""
        self._playing()
        if action.kind not in ("choose", "command"):
            raise UnsupportedActionError(self.name, action.kind)
        turn = self._current_turn()
        if turn.done:
            return self._refuse("the game is over")
        if action.kind == "choose":
            if turn.actions is None:
                return ActResult(
                    status="unsupported", observation=self._observe(), detail="the game takes free text, not moves"
                )
            if action.move is None or action.move not in turn.move_ids:
                return self._refuse(f"{action.move!r} is not among the {len(turn.actions)} listed moves")
            return await self._step(action.move)
        if turn.actions is not None:
            return ActResult(
                status="unsupported", observation=self._observe(), detail="the game lists its moves; choose one"
            )
        text = action.text or ""
        if len(text) > MAX_COMMAND_CHARACTERS:
            return self._refuse(f"a command of {len(text)} characters; at most {MAX_COMMAND_CHARACTERS} are sent")
        return await self._step(text)

    async def reload(self) -> Observation:
        """Reset the open session with the same seed, as a player does who loads the game anew."""
        self._playing()
        await self._reset(self._step_seconds())
        return self._observe()

    async def screenshot(self, name: str) -> Path | None:
        """None: a bridge game has no picture."""
        return None

    async def stop(self, reason: str) -> Recording:
        """Close the session where the game still listens, then end the process and everything it started."""
        if self._connection is None:
            return self._recording(())
        if self._stopped is None:
            connection = self._connection
            try:
                if connection.failure is None and self._turn is not None and not connection.process.exited.is_set():
                    await connection.call("close", {"session": SESSION}, min(CLOSE_SECONDS, self._step_seconds()))
            except DriverError:
                self._counts["close_failed"] = 1
            finally:
                # One that has failed already gets less time to end by itself.
                seconds = 2.0 if connection.failure is None else 0.5
                self._stopped = await connection.stop(grace_seconds=seconds, terminate_seconds=seconds)
        return self._recording(self._stopped.leftovers)

    def _recording(self, leftovers: tuple[str, ...]) -> Recording:
        if self._launch is not None and self._launch.record_video:
            return Recording(status="unsupported", reason="a bridge game has no picture", leftovers=leftovers)
        return Recording(status="off", leftovers=leftovers)

    async def _reset(self, limit_seconds: float) -> None:
        launch = self._launch
        assert launch is not None, "set before the connection"
        answer = await self._call("reset", reset_parameters(SESSION, launch.seed, launch.playtest), limit_seconds)
        if isinstance(answer, Refusal):
            if answer.code == SEED_NOT_SUPPORTED:
                raise DriverStartError(
                    f"the game does not take the seed {launch.seed}",
                    found=answer.message,
                    todo="choose a smaller seed, or set seed_bits in the bridge file",
                )
            raise ProtocolError(f"the game refused reset: {answer.code} {answer.message}")
        turn = read_turn("reset", answer.result)
        if launch.seed is not None:
            self._seed_confirmed = echo_matches(turn, launch.seed)
            if self._seed_confirmed is False:
                raise ProtocolError(f"the game was given the seed {launch.seed} and says it plays {turn.seed}")
        self._counts["resets"] += 1
        self._turn = turn

    async def _step(self, action: str) -> ActResult:
        answer = await self._call("step", {"session": SESSION, "action": action}, self._step_seconds())
        if isinstance(answer, Refusal):
            if answer.code == ILLEGAL_ACTION:
                self._counts["refused_by_game"] += 1
                return ActResult(status="illegal", observation=self._observe(), detail=answer.message)
            raise ProtocolError(f"the game refused step: {answer.code} {answer.message}", tail=self._error_tail())
        self._turn = read_turn("step", answer.result)
        self._counts["steps"] += 1
        return ActResult(status="done", observation=self._observe())

    def _refuse(self, detail: str) -> ActResult:
        self._counts["refused_by_driver"] += 1
        return ActResult(status="illegal", observation=self._observe(), detail=detail)

    async def _call(self, method: str, params: object, limit_seconds: float) -> Answer | Refusal:
        return await self._playing().call(method, params, limit_seconds)

    def _observe(self) -> Observation:
        return observe_turn(self._current_turn(), self._playing().log.take())

    def _current_turn(self) -> Turn:
        if self._turn is None:
            raise DriverStartError("no game has begun", todo="call start first")
        return self._turn

    def _playing(self) -> BridgeConnection:
        if self._connection is None:
            raise DriverStartError("no game has begun", todo="call start first")
        if self._stopped is not None:
            raise GameEndedError("the session was stopped", exit_code=self._stopped.exit_code)
        return self._connection

    def _error_tail(self) -> str:
        return self._connection.error_tail if self._connection is not None else ""

    def _step_seconds(self) -> float:
        return self._configuration.step_timeout_ms / 1000 if self._configuration is not None else CLOSE_SECONDS

    def _seed_control(self) -> str:
        if self._launch is None or self._launch.seed is None:
            return "seed not controlled"
        return "confirmed" if self._seed_confirmed else "seed not confirmed"


def _check_seed(seed: int | None, configuration: BridgeConfiguration) -> None:
    if seed is None:
        return
    largest = 2**configuration.seed_bits - 1
    if not 0 <= seed <= largest:
        raise DriverStartError(
            f"the seed {seed} cannot be used",
            found=f"this game takes 0 to {largest} (seed_bits {configuration.seed_bits})",
            todo="choose a seed in that range",
        )
