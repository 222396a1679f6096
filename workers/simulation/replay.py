"""Plays a trace again and compares every state, outcome and metric with what was recorded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from drivers.turns import Turn
from workers.simulation.batch import make_pool
from workers.simulation.chunk import Setup, player_for
from workers.simulation.configuration import Configuration, Policy, Strategy, load
from workers.simulation.errors import ProcessDiedError
from workers.simulation.order import (
    ReplayOrder,
    hash_bridge,
    hash_configuration,
    local_environment,
    read_bridge,
    search_paths,
)
from workers.simulation.play import STALEMATE, STEP_LIMIT, clean_outcome, encode_state
from workers.simulation.session import Session, SessionFaultError, open_session
from workers.simulation.trace import Header, TraceStep, fold_reason, read_trace

CHECKS = (
    "seed: does the game draw all its randomness from the seed that reset gives it?",
    "build: is this the build that was recorded, with the same data files and parameters?",
    "outside: does the game read the clock, the network, files, the order of a set or another process?",
)


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where the replay was not what was recorded. Step 0 is the turn after `reset`."""

    step: int
    field: str
    expected: Any
    actual: Any


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay showed.

    `matched`: nothing differed as far as the trace goes. `fully_replayed`: it went to the game's recorded end; a trace
    that ends in mid-game is a matched prefix only. `failure_reproduced`: None where no failure was recorded. `notes`
    say what differs around the game (another bridge, another configuration), `checks` what to look at after a
    divergence.
    """

    matched: bool
    fully_replayed: bool
    failure_reproduced: bool | None
    first_divergence: Divergence | None
    steps_compared: int
    notes: list[str]
    checks: list[str]

    @property
    def exit_code(self) -> int:
        return 0 if self.matched else 1


def replay_trace(order: ReplayOrder, *, environment: Mapping[str, str] | None = None) -> ReplayResult:
    """Play `order.trace` again, in a process of its own, and compare.

    Raises `TraceError` for a file that is no trace, `ConfigurationError` for a bridge that cannot be used.
    """
    header, steps = read_trace(Path(order.trace))
    bridge = read_bridge(order.bridge)
    folder = None if order.configuration_directory is None else Path(order.configuration_directory)
    paths = search_paths(bridge, folder)
    bridge_sha256 = hash_bridge(bridge)
    notes = []
    if bridge_sha256 != header.bridge_sha256:
        notes.append("another bridge or build than recorded; compared all the same")
    if order.configuration is not None:
        given = load(order.configuration)
        if hash_configuration(given, paths) != header.configuration_sha256:
            notes.append("another configuration than recorded; compared all the same")
    allowed = local_environment(os.environ) if environment is None else dict(environment)
    setup = Setup(
        batch_id=f"replay-{header.run}",
        configuration=_configuration_of(header),
        bridge=bridge,
        search_paths=paths,
        environment=allowed,
        deadline=None,
        configuration_sha256=header.configuration_sha256,
        bridge_sha256=bridge_sha256,
        traces=False,
    )
    with make_pool(setup, 1) as pool:
        future = pool.submit_with(0, replay_steps, setup, header, steps)
        try:
            result: ReplayResult = future.result()
        except ProcessDiedError as death:
            result = _judge_death(header, death)
    return msgspec.structs.replace(result, notes=notes + result.notes)


def replay_steps(setup: Setup, header: Header, steps: list[TraceStep]) -> ReplayResult:
    """The comparison itself, in the process that holds the game."""
    player = player_for(setup)
    session = open_session(setup, player.game)
    try:
        return _compare(session, header, steps)
    finally:
        session.stop()


def _compare(session: Session, header: Header, steps: list[TraceStep]) -> ReplayResult:
    place = 0
    turn: Turn | None = None
    try:
        for place, recorded in enumerate(steps):
            if place == 0:
                turn = session.reset(int(header.seed), header.params, header.strategy)
            else:
                turn = session.step(recorded.action)
            divergence = _differ(recorded, turn)
            if divergence is not None:
                return _diverged(header, divergence, place + 1)
        if header.pending_action is not None:
            place = len(steps)
            session.step(msgspec.json.decode(header.pending_action))
        elif not steps:
            session.reset(int(header.seed), header.params, header.strategy)
    except SessionFaultError as fault:
        return _judge_fault(header, fault, place, len(steps))
    return _judge_end(header, steps, turn)


def _differ(recorded: TraceStep, turn: Turn) -> Divergence | None:
    state = encode_state(turn.state)
    is_digest = state.startswith(b'"sha256:')
    digest = state[8:-1].decode() if is_digest else hashlib.sha256(state).hexdigest()
    if digest != recorded.state_sha256:
        expected: Any = recorded.state
        return Divergence(
            step=recorded.step,
            field="state",
            expected=f"sha256:{recorded.state_sha256}" if expected is msgspec.UNSET else expected,
            actual=msgspec.json.decode(state),
        )
    outcome = None if turn.outcome is None else turn.outcome[:64]
    metrics = None if turn.metrics is None else {name: value + 0.0 for name, value in turn.metrics.items()}
    for field, expected, actual in (
        ("done", recorded.done, turn.done),
        ("outcome", recorded.outcome, outcome),
        ("metrics", recorded.metrics, metrics),
    ):
        if expected != actual:
            return Divergence(step=recorded.step, field=field, expected=expected, actual=actual)
    return None


def _diverged(header: Header, divergence: Divergence, compared: int) -> ReplayResult:
    return ReplayResult(
        matched=False,
        fully_replayed=False,
        failure_reproduced=False if header.result.status == "failed" else None,
        first_divergence=divergence,
        steps_compared=compared,
        notes=[],
        checks=list(CHECKS),
    )


def _judge_fault(header: Header, fault: SessionFaultError, place: int, recorded_steps: int) -> ReplayResult:
    """The game failed: as it was recorded to, or not."""
    expected = header.result.reason if header.result.status == "failed" else None
    at_the_end = place >= recorded_steps
    same = expected is not None and fold_reason(expected) == fold_reason(fault.reason)
    if at_the_end and same:
        return _ended(header, recorded_steps, reproduced=True)
    divergence = Divergence(step=place, field="failure", expected=expected, actual=fault.reason)
    return _diverged(header, divergence, place)


def _judge_end(header: Header, steps: list[TraceStep], turn: Turn | None) -> ReplayResult:
    """Every recorded turn was the same: did the game also end as it was recorded to?"""
    result = header.result
    if result.status == "failed":
        stalemate = turn is not None and turn.actions is not None and not turn.actions and not turn.done
        if result.reason == STALEMATE and stalemate:
            return _ended(header, len(steps), reproduced=True)
        if not header.cut and (header.pending_action is not None or not steps):
            divergence = Divergence(step=len(steps), field="failure", expected=result.reason, actual="no failure")
            return _diverged(header, divergence, len(steps))
        # The policy or the harness failed here, or the rest was not kept: the game is not asked for more.
        return _ended(header, len(steps), reproduced=None, whole=not header.cut)
    if result.status == "completed" and not header.cut and turn is not None:
        expected, actual = result.outcome, clean_outcome(turn.outcome)
        if not turn.done or (expected != actual):
            divergence = Divergence(step=len(steps) - 1, field="outcome", expected=expected, actual=actual)
            return _diverged(header, divergence, len(steps))
        return _ended(header, len(steps), reproduced=None)
    return _ended(header, len(steps), reproduced=None, whole=False)


def _ended(header: Header, compared: int, *, reproduced: bool | None, whole: bool = True) -> ReplayResult:
    notes = []
    if not whole:
        why = "only its beginning was kept" if header.cut else f"it was truncated ({header.result.reason})"
        if header.result.reason == STEP_LIMIT:
            why = "it reached the step limit"
        notes.append(f"the trace ends in mid-game ({why}): a matched prefix only")
    return ReplayResult(
        matched=True,
        fully_replayed=whole,
        failure_reproduced=reproduced,
        first_divergence=None,
        steps_compared=compared,
        notes=notes,
        checks=[],
    )


def _judge_death(header: Header, death: ProcessDiedError) -> ReplayResult:
    """A game in the pool's own process took it along: reproduced where that was recorded."""
    expected = header.result.reason if header.result.status == "failed" else None
    if expected is not None and fold_reason(expected) == fold_reason(death.reason):
        return _ended(header, 0, reproduced=True)
    divergence = Divergence(step=0, field="failure", expected=expected, actual=death.reason)
    return _diverged(header, divergence, 0)


def _configuration_of(header: Header) -> Configuration:
    """A configuration that makes a process ready for this one game; its actions are recorded, so nobody chooses."""
    return Configuration(
        version=1,
        seed=0,
        runs=1,
        max_steps=max(1, header.result.steps),
        workers=1,
        strategies=(Strategy(name=header.strategy, seats={"*": Policy(kind="first")}),),
        params=header.params,
    )
