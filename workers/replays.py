"""Replays of findings: their inputs again, in fresh sessions with the same seed, then fewer of them.

A finding is reproduced when an oracle says the same (equal signature) after the replayed inputs. For a soft-lock the
listed moves are tried there until the oracle is satisfied or one has an effect.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from drivers.base import Action, Driver, Launch, Observation
from drivers.errors import DriverError, DriverStartError
from workers.contract import Finding
from workers.findings import signature
from workers.look import Input, action_in_words, input_from_data
from workers.oracles.bench import Bench
from workers.session import StopRequest

REPLAYS = 3
MAX_SECONDS = 120.0
SHARE_OF_RUN = 1 / 3
MAX_SHORTENING_TRIALS = 60
MAX_REPLAYED_FINDINGS = 20
SOFT_LOCK_ROUNDS = 3

Trial = Callable[[Sequence[Input]], Awaitable[bool]]


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """How fresh sessions are made: `open_driver` gives an unused driver, `launch` what it starts with in a folder."""

    open_driver: Callable[[], Driver]
    launch: Callable[[Path], Launch]
    folder: Callable[[], Path]
    goal: Callable[[Observation], bool | None]
    stop: StopRequest


class _OutOfTime(Exception):  # noqa: N818 - not a fault: the bound of all replays is reached
    pass


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its stamp and its shortest input list, and how many sessions that took."""

    finding: Finding
    sessions: int


async def replay(finding: Finding, stage: Stage, *, deadline: float, seed_controlled: bool) -> Replayed:
    """Stamp a finding and shorten its inputs; `deadline` is a monotonic time that bounds all of it."""
    inputs = [input_from_data(data) for data in finding.actions]
    sessions = 0

    async def trial(candidate: Sequence[Input]) -> bool:
        nonlocal sessions
        if time.monotonic() >= deadline or stage.stop.requested is not None:
            raise _OutOfTime
        sessions += 1
        return await reproduces(finding, candidate, stage)

    restarts = [index for index, given in enumerate(inputs) if given.restart and index < len(inputs) - 1]
    tail = inputs[restarts[-1] + 1 :] if restarts else inputs
    done = hits = 0
    chosen = tail
    try:
        hits, done = await _stamp(trial, tail)
        if hits == 0 and len(tail) < len(inputs):
            # What led here may have begun before the session was started again (a save that outlives it).
            chosen = inputs
            hits, done = await _stamp(trial, inputs)
    except DriverStartError as error:
        return _unplayed(finding, f"the game did not start again: {error}", sessions)
    except _OutOfTime:
        if done == 0:
            return _unplayed(finding, "no time was left", sessions)
    stamp = f"{hits}/{done}" + ("" if seed_controlled else ", seed not controlled")
    if hits:
        chosen = await shorten(chosen, trial)
    dropped = finding.dropped
    if hits == 0 and seed_controlled and finding.oracle in ("soft_lock", "unreachable_goal"):
        dropped = "its condition was looked at again after replaying the inputs, and did not hold"
    shorter = msgspec.structs.replace(
        finding,
        replay=stamp,
        dropped=dropped,
        actions=[given.as_data() for given in chosen],
        repro_steps=_words(chosen, finding) if len(chosen) != len(finding.repro_steps) else finding.repro_steps,
    )
    return Replayed(finding=shorter, sessions=sessions)


async def _stamp(trial: Trial, inputs: Sequence[Input]) -> tuple[int, int]:
    hits = done = 0
    for _ in range(REPLAYS):
        try:
            hits += await trial(inputs)
        except _OutOfTime:
            if done == 0:
                raise
            break
        done += 1
    return hits, done


def _unplayed(finding: Finding, why: str, sessions: int) -> Replayed:
    stamped = msgspec.structs.replace(finding, replay=f"not replayable: {why[:300]}")
    return Replayed(finding=stamped, sessions=sessions)


def _words(inputs: Sequence[Input], finding: Finding) -> list[str]:
    said = {}
    tail = finding.actions[-len(finding.repro_steps) :] if finding.repro_steps else []
    for data, words in zip(tail, finding.repro_steps, strict=False):
        said[input_from_data(data)] = words
    return [
        said.get(given) or ("(start again)" if given.action is None else action_in_words(given.action))
        for given in inputs
    ]


async def reproduces(finding: Finding, inputs: Sequence[Input], stage: Stage) -> bool:
    """Whether these inputs, in a fresh session, make an oracle say what it said; raises `DriverStartError`.

    An input that is refused although it was not the finding itself makes the list another one: False.
    """
    driver = stage.open_driver()
    try:
        return await _play(finding, inputs, driver, stage)
    finally:
        await driver.stop("replayed")


async def _play(finding: Finding, inputs: Sequence[Input], driver: Driver, stage: Stage) -> bool:
    bench = Bench(stage.goal)
    observation = await driver.start(stage.launch(stage.folder()))
    marks = {signature(event.oracle, event.message, event.place) for event in bench.at_start(observation)}
    for step, given in enumerate(inputs, start=1):
        if finding.signature in marks:
            return True
        outcome = await _do(driver, bench, step, given, observation)
        marks |= outcome[0]
        if outcome[1] is None:
            return finding.signature in marks
        observation = outcome[1]
        if outcome[2] != "done" and finding.signature not in marks:
            return False
    if finding.oracle == "soft_lock" and finding.signature not in marks:
        marks |= await _try_everything(driver, bench, len(inputs), observation)
    return finding.signature in marks


async def _do(
    driver: Driver, bench: Bench, step: int, given: Input, before: Observation
) -> tuple[set[str], Observation | None, str]:
    after: Observation | None = None
    status, detail, error = "done", "", None
    try:
        if given.action is None:
            reload = getattr(driver, "reload", None)
            if reload is None:
                return set(), None, "unsupported"
            after = await reload()
        else:
            result = await driver.act(given.action)
            after, status, detail = result.observation, result.status, result.detail
    except DriverError as fault:
        error = fault
    label = _label(given, before)
    events = bench.at_step(
        step=step, given=given, label=label, before=before, after=after, status=status, detail=detail, error=error
    )
    return {signature(event.oracle, event.message, event.place) for event in events}, after, status


def _label(given: Input, before: Observation) -> str:
    if given.action is None:
        return "(start again)"
    for move in before.moves or ():
        if move.id == given.action.move:
            return " ".join((move.label or move.id).split())
    return action_in_words(given.action)


async def _try_everything(driver: Driver, bench: Bench, step: int, observation: Observation) -> set[str]:
    marks: set[str] = set()
    moves = observation.moves or ()
    for _ in range(SOFT_LOCK_ROUNDS):
        for move in moves:
            given = Input(action=Action(kind="choose", move=move.id))
            step += 1
            said, after, _ = await _do(driver, bench, step, given, observation)
            marks |= said
            if after is None or not bench.situations.same(observation, after):
                return marks
            observation = after
    return marks


async def shorten(inputs: Sequence[Input], trial: Trial) -> list[Input]:
    """Delta debugging (Zeller and Hildebrandt, 2002): leave out parts, halving their size, while it still reproduces.

    Stops after `MAX_SHORTENING_TRIALS`; out of time, or when the game does not start, the shortest so far stands.
    """
    best = list(inputs)
    parts = 2
    trials = 0
    while len(best) > 1 and trials < MAX_SHORTENING_TRIALS:
        size = -(-len(best) // parts)
        for begin in range(0, len(best), size):
            candidate = best[:begin] + best[begin + size :]
            trials += 1
            if candidate and await _still(trial, candidate):
                best, parts = candidate, max(parts - 1, 2)
                break
            if trials >= MAX_SHORTENING_TRIALS:
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(best))
    return best


async def _still(trial: Trial, candidate: Sequence[Input]) -> bool:
    try:
        return await trial(candidate)
    except (_OutOfTime, DriverStartError):
        return False
