"""What a bridge must do, rule by rule: for the people who write one, and for our own examples.

`inspect_bridge` plays the whole protocol against a bridge file's command, each rule in a process of its own, so that
one that fails hides no other. `probe` is the short look before anything is quoted.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from drivers import make_driver
from drivers.base import Action, Launch
from drivers.bridge import reset_parameters
from drivers.bridge_file import BridgeConfiguration, read_settings
from drivers.connection import PROTOCOL, BridgeConnection
from drivers.errors import DriverError, DriverStartError
from drivers.jsonrpc import ILLEGAL_ACTION, UNKNOWN_SESSION, Answer, Refusal
from drivers.turns import Turn, echo_matches, hash_turn, read_turn

NO_SUCH_MOVE = "playlane-no-such-move"
NO_SUCH_SESSION = "playlane-no-such-session"
MOVES_PLAYED = 12
SESSION = "c1"


class RuleResult(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: whether the bridge keeps it, what was found, and what its author may do."""

    rule: str
    passed: bool
    found: str
    todo: str = ""


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe saw: the driver's facts, the first text, how many moves were listed, whether a step was played."""

    facts: Mapping[str, Any]
    text: str
    moves: int | None
    stepped: bool
    leftovers: tuple[str, ...]


async def probe(
    settings: Mapping[str, Any],
    directory: Path,
    seed: int | None,
    environment: Mapping[str, str],
    *,
    driver_name: str = "cli_stdio",
) -> ProbeResult:
    """Start, reset, one step, close. Raises the `DriverError` that a playthrough would meet; leaves nothing behind.

    A game on a terminal is started and closed: any line might be one that it acts upon for good.
    """
    driver = make_driver(driver_name)
    stepped = False
    try:
        first = await driver.start(Launch(settings=settings, directory=directory, seed=seed, environment=environment))
        if not first.done and first.moves is None and driver_name == "cli_stdio":
            stepped = (await driver.act(Action(kind="command", text="look"))).status == "done"
        elif not first.done and first.moves:
            stepped = (await driver.act(Action(kind="choose", move=first.moves[0].id))).status == "done"
    finally:
        recording = await driver.stop("probe")
    return ProbeResult(
        facts=driver.facts,
        text=first.text[:1_000],
        moves=None if first.moves is None else len(first.moves),
        stepped=stepped,
        leftovers=recording.leftovers,
    )


class RuleBrokenError(Exception):
    """A rule is not kept: what was found, and what the bridge's author may do."""

    def __init__(self, found: str, todo: str = "") -> None:
        self.found, self.todo = found, todo
        super().__init__(found)


class _Bridge:
    """A bridge under inspection: one process, asked in plain protocol."""

    def __init__(self, connection: BridgeConnection, configuration: BridgeConfiguration, seed: int) -> None:
        self.connection, self.seed = connection, seed
        self.start_seconds = configuration.startup_timeout_ms / 1000
        self.step_seconds = configuration.step_timeout_ms / 1000

    async def ask(self, method: str, **params: Any) -> Answer | Refusal:
        seconds = self.start_seconds if method in ("initialize", "reset") else self.step_seconds
        return await self.connection.call(method, params, seconds)

    async def greet(self) -> dict[str, Any]:
        answer = await self.ask("initialize", protocol=PROTOCOL)
        if isinstance(answer, Refusal):
            raise RuleBrokenError(f"initialize was refused: {answer.code} {answer.message}")
        if not isinstance(answer.result, dict):
            raise RuleBrokenError("initialize was not answered with an object")
        return answer.result

    async def reset(self, session: str = SESSION) -> Turn:
        answer = await self.connection.call("reset", reset_parameters(session, self.seed), self.start_seconds)
        return _turn("reset", answer)

    async def step(self, action: str, session: str = SESSION) -> Turn:
        return _turn("step", await self.ask("step", session=session, action=action))

    async def begin(self) -> Turn:
        await self.greet()
        return await self.reset()


def _turn(method: str, answer: Answer | Refusal) -> Turn:
    if isinstance(answer, Refusal):
        raise RuleBrokenError(f"{method} was refused: {answer.code} {answer.message}")
    return read_turn(method, answer.result)


def _next_action(turn: Turn, step: int) -> str | None:
    if turn.done:
        return None
    if turn.actions is None:
        return "look"
    return turn.actions[step % len(turn.actions)].id if turn.actions else None


async def _play(bridge: _Bridge, turn: Turn) -> list[Turn]:
    """A few moves, going through the listed ones in turn; stops where the game ends or a move is refused."""
    turns = [turn]
    for step in range(MOVES_PLAYED):
        action = _next_action(turns[-1], step)
        if action is None:
            break
        turns.append(await bridge.step(action))
    return turns


# -- the rules: each returns what was found, or raises ---------------------------------------------------------------


async def _handshake(bridge: _Bridge) -> str:
    greeting = await bridge.greet()
    if not isinstance(greeting.get("name"), str) or not greeting["name"]:
        raise RuleBrokenError("initialize gives no name", 'answer {"name": text, "version": text, "protocol": 1}')
    return f"{greeting['name'][:100]} {str(greeting.get('version', ''))[:50]}".strip()


async def _protocol_version(bridge: _Bridge) -> str:
    protocol = (await bridge.greet()).get("protocol")
    if protocol != PROTOCOL:
        raise RuleBrokenError(f"initialize gives protocol {protocol!r}", f'answer "protocol": {PROTOCOL}')
    return f"protocol {protocol}"


async def _same_game_twice(bridge: _Bridge) -> str:
    first = await _play(bridge, await bridge.begin())
    second = await _play(bridge, await bridge.reset())
    for step, (one, other) in enumerate(zip(first, second, strict=False)):
        if hash_turn(one) != hash_turn(other):
            raise RuleBrokenError(
                f"with the same seed and moves, turn {step} differs",
                "take all randomness from the seed given to reset, and keep nothing from the game before",
            )
    if len(first) != len(second):
        raise RuleBrokenError(f"the same game ended after {len(first) - 1} and after {len(second) - 1} moves")
    return f"{len(first)} turns, the same twice"


async def _seed_echo(bridge: _Bridge) -> str:
    turn = await bridge.begin()
    matches = echo_matches(turn, bridge.seed)
    if matches is None:
        raise RuleBrokenError("no echo: seed not confirmed", 'put "seed" into the answer to reset, in the same digits')
    if not matches:
        raise RuleBrokenError(
            f"given {bridge.seed}, it says {turn.seed}",
            "keep the seed as text or as a 64-bit integer; a binary64 number loses digits past 2^53",
        )
    return f"seed {turn.seed} came back"


async def _wrong_move(bridge: _Bridge) -> str:
    turn = await bridge.begin()
    if turn.actions is None:
        return "the game takes free text: nothing is a wrong move"
    answer = await bridge.ask("step", session=SESSION, action=NO_SUCH_MOVE)
    if isinstance(answer, Answer):
        raise RuleBrokenError("a move that was never listed was accepted", f"answer it with error {ILLEGAL_ACTION}")
    if answer.code != ILLEGAL_ACTION:
        raise RuleBrokenError(f"a wrong move is refused with {answer.code}", f"use error {ILLEGAL_ACTION}")
    return f"refused with {answer.code}"


async def _wrong_move_spends_nothing(bridge: _Bridge) -> str:
    turn = await bridge.begin()
    action = _next_action(turn, 0)
    if turn.actions is None or action is None:
        return "the first turn lists no moves: nothing to compare"
    expected = await bridge.step(action)
    await bridge.reset()
    await bridge.ask("step", session=SESSION, action=NO_SUCH_MOVE)
    found = await bridge.step(action)
    if hash_turn(found) != hash_turn(expected):
        raise RuleBrokenError("after a refused move the game goes on differently", "judge a move before playing it")
    return "the game goes on as if nothing had been sent"


async def _unknown_session(bridge: _Bridge) -> str:
    await bridge.greet()
    answer = await bridge.ask("step", session=NO_SUCH_SESSION, action="look")
    if isinstance(answer, Answer) or answer.code != UNKNOWN_SESSION:
        found = "accepted" if isinstance(answer, Answer) else f"refused with {answer.code}"
        raise RuleBrokenError(f"a step in a session that was never reset is {found}", f"use error {UNKNOWN_SESSION}")
    return f"refused with {answer.code}"


async def _reset_on_open_session(bridge: _Bridge) -> str:
    first = await bridge.begin()
    action = _next_action(first, 0)
    if action is not None:
        await bridge.step(action)
    again = await bridge.reset()
    if hash_turn(again) != hash_turn(first):
        raise RuleBrokenError("reset on an open session does not start the game again")
    return "starts the game again"


async def _close(bridge: _Bridge) -> str:
    await bridge.begin()
    answer = await bridge.ask("close", session=SESSION)
    if isinstance(answer, Refusal):
        raise RuleBrokenError(f"close was refused: {answer.code} {answer.message}", "answer {}")
    after = await bridge.ask("step", session=SESSION, action=NO_SUCH_MOVE)
    if isinstance(after, Answer) or after.code != UNKNOWN_SESSION:
        raise RuleBrokenError("a closed session still plays", f"forget it; a later step is error {UNKNOWN_SESSION}")
    return "the session is gone"


async def _end_of_input(bridge: _Bridge) -> str:
    await bridge.begin()
    if not await bridge.connection.close_input_and_wait(bridge.step_seconds):
        raise RuleBrokenError(
            f"still running {bridge.step_seconds:g} s after the end of input", "leave the reading loop at end of input"
        )
    code = bridge.connection.process.exit_code
    if code:
        raise RuleBrokenError(f"at the end of input it exits with {code}", "exit with 0")
    return "exits"


async def _nothing_left(bridge: _Bridge) -> str:
    await bridge.begin()
    # Killed outright: what it started has nobody left to end it.
    bridge.connection.process.kill()
    report = await bridge.connection.stop()
    if report.leftovers:
        raise RuleBrokenError(
            f"left behind and ended by us: {', '.join(report.leftovers)[:500]}",
            "let helpers end with the game (they can watch their own standard input)",
        )
    return "nothing"


async def _clean_output(bridge: _Bridge) -> str:
    await _play(bridge, await bridge.begin())
    if bridge.connection.noise_lines:
        first = next((line.text for line in bridge.connection.log.take() if line.source == "stdout"), "")
        raise RuleBrokenError(
            f"{bridge.connection.noise_lines} lines on standard output are not JSON-RPC, the first: {first[:100]!r}",
            "print such lines on standard error (they are kept as log lines and do no harm)",
        )
    return "every line within bounds, and JSON-RPC"


async def _moves_have_ids(bridge: _Bridge) -> str:
    turns = await _play(bridge, await bridge.begin())
    for step, turn in enumerate(turns):
        ids = [move.id for move in turn.actions or ()]
        if "" in ids:
            raise RuleBrokenError(f"turn {step} lists a move without an id")
        if len(set(ids)) != len(ids):
            raise RuleBrokenError(f"turn {step} lists the same id twice")
        if turn.actions == () and not turn.done:
            raise RuleBrokenError(f"turn {step} lists no move and is not done", "list what is legal, or end the game")
    return f"{sum(len(turn.actions or ()) for turn in turns)} moves in {len(turns)} turns"


async def _numbers_are_finite(bridge: _Bridge) -> str:
    turns = await _play(bridge, await bridge.begin())
    count = 0
    for step, turn in enumerate(turns):
        for name, value in (turn.metrics or {}).items():
            count += 1
            if not math.isfinite(value):
                raise RuleBrokenError(f"turn {step}: the metric {name} is {value}")
    return f"{count} metrics, all finite"


RULES: tuple[tuple[str, Callable[[_Bridge], Awaitable[str]]], ...] = (
    ("answers the handshake with its name", _handshake),
    ("speaks protocol 1", _protocol_version),
    ("plays the same game twice for one seed", _same_game_twice),
    ("says the seed back in the same digits", _seed_echo),
    ("refuses a move that it did not list", _wrong_move),
    ("spends no turn on a refused move", _wrong_move_spends_nothing),
    ("refuses an unknown session", _unknown_session),
    ("starts an open session again on reset", _reset_on_open_session),
    ("closes a session", _close),
    ("exits at the end of input", _end_of_input),
    ("leaves no process behind when it is killed", _nothing_left),
    ("writes only JSON-RPC, in lines within bounds", _clean_output),
    ("gives every move an id of its own", _moves_have_ids),
    ("gives only finite numbers", _numbers_are_finite),
)


async def inspect_bridge(
    settings: Mapping[str, Any],
    directory: Path,
    seed: int | None,
    environment: Mapping[str, str],
    *,
    only: Collection[str] | None = None,
) -> list[RuleResult]:
    """Try every rule on a bridge (or `only` the named ones), each in a fresh process, in the order of `RULES`.

    Nothing is raised for what the bridge does.

    Raises `DriverStartError` for settings that are no bridge's, before anything is started. `seed` None means 1.
    """
    configuration = read_settings(settings)
    if configuration.command is None:
        raise DriverStartError(
            "only a bridge with a command can be inspected",
            found="a game inside the simulation's own processes",
            todo="run `simulate` on it instead",
        )
    number = 1 if seed is None else seed
    return [
        await _try_rule(name, rule, configuration, directory, number, environment)
        for name, rule in RULES
        if only is None or name in only
    ]


async def _try_rule(
    name: str,
    rule: Callable[[_Bridge], Awaitable[str]],
    configuration: BridgeConfiguration,
    directory: Path,
    seed: int,
    environment: Mapping[str, str],
) -> RuleResult:
    try:
        connection = BridgeConnection.open(configuration, seed=seed, directory=directory, environment=environment)
    except DriverStartError as error:
        return RuleResult(rule=name, passed=False, found=str(error)[:1_000], todo="correct the bridge file's command")
    try:
        found = await rule(_Bridge(connection, configuration, seed))
    except RuleBrokenError as broken:
        return RuleResult(rule=name, passed=False, found=broken.found, todo=broken.todo)
    except DriverError as error:
        return RuleResult(rule=name, passed=False, found=str(error)[:1_000], todo="see docs/bridge-protocol.md")
    finally:
        await connection.stop(grace_seconds=0.5, terminate_seconds=0.5)
    return RuleResult(rule=name, passed=True, found=found)
