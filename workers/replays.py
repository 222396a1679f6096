"""Replays of findings: their inputs again, in fresh sessions with the same seed, then fewer of them.

A finding is reproduced when an oracle says the same (equal signature) after the replayed inputs. For a soft-lock the
listed moves are tried there until the oracle is satisfied or one has an effect.
"""

from __future__ import annotations

import time
from collections import deque
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
SOFT_LOCK_ROUNDS = 4

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


async def replay(
    finding: Finding, stage: Stage, *, deadline: float, seed_controlled: bool, shortening: bool = True
) -> Replayed:
    """Stamp a finding and (if `shortening`) shorten its inputs; `deadline` is a monotonic time that bounds it all."""
    if finding.oracle is None:
        return _unplayed(finding, "the player reported it, and no oracle can look for it again", 0)
    inputs = [input_from_data(data) for data in finding.actions]
    sessions = 0
    seen: list[str] = []

    async def fresh(candidate: Sequence[Input]) -> bool:
        nonlocal sessions, seen
        _check_time(stage, deadline)
        sessions += 1
        again, seen = await reproduces(finding, candidate, stage)
        return again

    restarts = [index for index, given in enumerate(inputs) if given.restart and index < len(inputs) - 1]
    tail = inputs[restarts[-1] + 1 :] if restarts else inputs
    done = hits = 0
    chosen = tail
    try:
        hits, done = await _stamp(fresh, tail)
        if hits == 0 and len(tail) < len(inputs):
            # What led here may have begun before the session was started again (a save that outlives it).
            chosen = inputs
            hits, done = await _stamp(fresh, inputs)
    except DriverStartError as error:
        return _unplayed(finding, f"the game did not start again: {error}", sessions)
    except _OutOfTime:
        if done == 0:
            return _unplayed(finding, "no time was left", sessions)
    stamp = f"{hits}/{done}" + ("" if seed_controlled else ", seed not controlled")
    if hits == done and shortening:
        chosen = await _shortened(finding, chosen, seen, stage, deadline, fresh)
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


def _check_time(stage: Stage, deadline: float) -> None:
    if time.monotonic() >= deadline or stage.stop.requested is not None:
        raise _OutOfTime


async def _shortened(
    finding: Finding, inputs: list[Input], seen: list[str], stage: Stage, deadline: float, fresh: Trial
) -> list[Input]:
    """The shortest list found; trials start one session again and again, and the last word has a fresh one."""
    workshop = _Workshop(finding, stage)

    async def trial(candidate: Sequence[Input]) -> bool:
        _check_time(stage, deadline)
        return await workshop.reproduces(candidate)

    best = inputs
    try:
        for candidate in shortcuts(inputs, seen):
            if len(candidate) < len(best) and await _still(trial, candidate):
                best = candidate
                break
        best = await shorten(best, trial)
    finally:
        await workshop.close()
    return best if len(best) == len(inputs) or await _still(fresh, best) else inputs


def shortcuts(inputs: Sequence[Input], seen: Sequence[str]) -> list[list[Input]]:
    """Lists without detours: the shortest known way to where the last input, or the last that mattered, was made.

    `seen` names the situation before each input, and the one after the last.
    """
    if len(seen) != len(inputs) + 1:
        return []
    ways: dict[str, dict[str, Input]] = {}
    for index, given in enumerate(inputs):
        if not given.restart:
            ways.setdefault(seen[index], {}).setdefault(seen[index + 1], given)
    paths: dict[str, list[Input]] = {seen[0]: []}
    queue = deque([seen[0]])
    while queue:
        place = queue.popleft()
        for after, given in ways.get(place, {}).items():
            if after not in paths:
                paths[after] = [*paths[place], given]
                queue.append(after)
    mattered = [index for index in range(len(inputs)) if seen[index] != seen[index + 1]]
    ends = [mattered[-1], len(inputs) - 1] if mattered else [len(inputs) - 1]
    return [[*paths[seen[end]], inputs[end]] for end in ends if seen[end] in paths]


class _Workshop:
    """One session that is started again for each trial where the driver can, else made anew."""

    def __init__(self, finding: Finding, stage: Stage) -> None:
        self._finding, self._stage = finding, stage
        self._driver: Driver | None = None

    async def reproduces(self, candidate: Sequence[Input]) -> bool:
        driver, observation = await self._begin()
        again, _, alive = await _play(self._finding, candidate, driver, self._stage, observation)
        if not alive:
            await self.close()
        return again

    async def _begin(self) -> tuple[Driver, Observation]:
        if self._driver is not None:
            try:
                reload = getattr(self._driver, "reload", None)
                if reload is not None:
                    return self._driver, await reload()
            except DriverError:
                pass
            await self.close()
        driver = self._driver = self._stage.open_driver()
        return driver, await driver.start(self._stage.launch(self._stage.folder()))

    async def close(self) -> None:
        if self._driver is not None:
            await self._driver.stop("shortened")
            self._driver = None


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


async def reproduces(finding: Finding, inputs: Sequence[Input], stage: Stage) -> tuple[bool, list[str]]:
    """Whether these inputs, in a fresh session, make an oracle say what it said; and the situations seen on the way.

    An input that is refused although that was not the finding itself makes the list another one: False. Raises
    `DriverStartError`.
    """
    driver = stage.open_driver()
    try:
        observation = await driver.start(stage.launch(stage.folder()))
        again, seen, _ = await _play(finding, inputs, driver, stage, observation)
        return again, seen
    finally:
        await driver.stop("replayed")


async def _play(
    finding: Finding, inputs: Sequence[Input], driver: Driver, stage: Stage, observation: Observation
) -> tuple[bool, list[str], bool]:
    """Whether it was found again, the situations seen, and whether the session still lives."""
    bench = Bench(stage.goal)
    marks = {signature(event.oracle, event.message, event.place) for event in bench.at_start(observation)}
    path = [observation]
    alive = True
    for step, given in enumerate(inputs, start=1):
        if finding.signature in marks:
            break
        said, after, status = await _do(driver, bench, step, given, observation)
        marks |= said
        if after is None:
            alive = False
            break
        observation = after
        path.append(after)
        if status != "done" and finding.signature not in marks:
            return False, [], True
    seen = [bench.situations.key(item) for item in path]
    if not alive:
        # The end of the game is a situation of its own.
        seen.append("")
    elif finding.oracle == "soft_lock" and finding.signature not in marks:
        said, alive = await _try_everything(driver, bench, len(inputs), observation)
        marks |= said
    return finding.signature in marks, seen, alive


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


async def _try_everything(driver: Driver, bench: Bench, step: int, observation: Observation) -> tuple[set[str], bool]:
    """Each listed move, round after round, until one has an effect; what the oracles say, whether it still lives."""
    marks: set[str] = set()
    moves = observation.moves or ()
    for _ in range(SOFT_LOCK_ROUNDS):
        for move in moves:
            given = Input(action=Action(kind="choose", move=move.id))
            step += 1
            said, after, _ = await _do(driver, bench, step, given, observation)
            marks |= said
            if after is None:
                return marks, False
            if not bench.situations.same(observation, after):
                return marks, True
            observation = after
    return marks, True


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
