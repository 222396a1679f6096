"""All oracles of a session, asked together."""

from __future__ import annotations

from collections.abc import Callable

from drivers.base import Observation
from drivers.errors import DriverError
from workers.findings import Event
from workers.look import Input
from workers.oracles.base import Oracle, StepFacts
from workers.oracles.crash import Crash
from workers.oracles.errors import ConsoleErrors
from workers.oracles.goal import UnreachableGoal
from workers.oracles.moves import EmptyMoves, IllegalListedMove
from workers.oracles.progress import ProgressLost
from workers.oracles.softlock import SoftLock
from workers.oracles.unresponsive import Unresponsive
from workers.oracles.violations import Violations
from workers.situation import Situations


class Bench:
    """Holds one of each oracle and what they share: the known situations and the goal."""

    def __init__(self, goal: Callable[[Observation], bool | None]) -> None:
        self.situations = Situations()
        self.goal = goal
        self.oracles: tuple[Oracle, ...] = (
            Crash(), Unresponsive(), ConsoleErrors(), EmptyMoves(), IllegalListedMove(), Violations(), ProgressLost(),
            SoftLock(), UnreachableGoal(),
        )  # fmt: skip

    def at_start(self, observation: Observation) -> list[Event]:
        """Judge the first observation."""
        return [event for oracle in self.oracles for event in oracle.at_start(observation)]

    def at_step(
        self,
        *,
        step: int,
        given: Input,
        label: str,
        before: Observation,
        after: Observation | None,
        status: str = "done",
        detail: str = "",
        error: DriverError | None = None,
    ) -> list[Event]:
        """Judge a step; learns first what ticks, so that a counter is no effect."""
        action = given.action
        listed = action is not None and action.move is not None and action.move in {m.id for m in before.moves or ()}
        if after is not None and status == "done" and not given.restart:
            self.situations.learn(before, after)
        facts = StepFacts(
            step=step, given=given, label=label, before=before, after=after, status=status, detail=detail,
            listed=listed, error=error, situations=self.situations, goal=self.goal,
        )  # fmt: skip
        return [event for oracle in self.oracles for event in oracle.at_step(facts)]
