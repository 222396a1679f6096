"""Random sequences of calls against a reference model of a few lines; each seed is printed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator import Coordinator, CoordinatorError, Permit
from coordinator.errors import (
    ContentConflictError,
    LanesTakenError,
    NotAdmissibleError,
    RefusedError,
    StoppedError,
)
from tests.coordinator.calls import QuickCampaign, answers, raises, tree
from tests.coordinator.campaign import Campaign, completion

NAMES = "abcd"
SEEDS = 24
CALLS = 40


class Model:
    """What the design says, in the fewest words: phases, stops, who launched."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.phase: dict[str, str] = {}
        self.outcome: dict[str, str] = {}
        self.stops: list[str] = []
        self.launched: dict[str, int] = dict.fromkeys(NAMES, 0)

    def reserve(self, name: str) -> type[CoordinatorError] | None:
        if self.stops:
            return StoppedError
        if self.phase.get(name) == "reserved":
            return None
        if sum(phase != "completed" for phase in self.phase.values()) >= self.lanes:
            return LanesTakenError
        if name in self.phase:
            return RefusedError
        self.phase[name] = "reserved"
        return None

    def launch(self, name: str, works: bool) -> type[Exception] | None:
        if self.phase.get(name) != "reserved":
            return NotAdmissibleError
        if self.stops:
            return StoppedError
        self.launched[name] += 1
        self.phase[name] = "launched" if works else "launching"
        return None if works else ZeroDivisionError

    def complete(self, name: str, outcome: str, cleanup: str) -> type[CoordinatorError] | None:
        if self.phase.get(name) == "completed":
            return None if self.outcome[name] == f"{outcome} {cleanup}" else ContentConflictError
        if self.phase.get(name) not in ("launching", "launched"):
            return NotAdmissibleError
        self.phase[name], self.outcome[name] = "completed", f"{outcome} {cleanup}"
        if cleanup == "failed":
            self.stop(f"cleanup {name}")
        return None

    def stop(self, detail: str) -> None:
        if detail not in self.stops:
            self.stops.append(detail)

    def reopen(self, crashed: bool) -> None:
        uncertain = [name for name, phase in self.phase.items() if phase in ("launching", "launched")]
        if crashed or uncertain:
            self.stop(f"reopened {crashed} {uncertain}")


class Player:
    """The real thing beside the model."""

    def __init__(self, campaign: Campaign, lanes: int) -> None:
        self.campaign, self.lanes = campaign, lanes
        self.model = Model(lanes)
        self.permits: dict[str, Permit] = {}
        self.c: Coordinator = campaign.open(max_lanes=lanes)
        self.refusals = 0

    async def expect(self, call: Any, wanted: type[Exception] | None) -> Any:
        before = tree(self.campaign.folder)
        if wanted is None:
            return await call
        with pytest.raises(wanted):
            await call
        self.refusals += 1
        if wanted is not ZeroDivisionError:
            assert tree(self.campaign.folder) == before  # a refusal changes nothing
        return None

    async def step(self, chance: random.Random) -> str:
        name = chance.choice(NAMES)
        what = chance.choices(
            ["reserve", "launch", "complete", "stop", "close", "crash"], weights=[30, 30, 30, 1, 4, 1]
        )[0]
        if what == "reserve":
            permit = await self.expect(self.c.reserve(name), self.model.reserve(name))
            if permit is not None:
                assert self.permits.setdefault(name, permit) == permit
        elif what == "launch":
            works = chance.random() < 0.8
            launcher: Any = answers if works else raises(ZeroDivisionError())
            await self.expect(self.c.launch_once(self.permit(name), launcher), self.model.launch(name, works))
        elif what == "complete":
            outcome, cleanup = (
                chance.choice(["passed", "passed", "failed"]),
                chance.choices(["passed", "failed"], [9, 1]),
            )
            content: Any = completion(name, outcome=outcome, cleanup=cleanup[0])
            wanted = self.model.complete(name, outcome, cleanup[0])
            await self.expect(self.c.complete(self.permit(name), content), wanted)
        elif what == "stop":
            self.model.stop(f"by hand {name}")
            await self.c.stop("operator_request", f"by hand {name}")
        else:
            if what == "close":
                await self.c.close()
            else:
                self.campaign.lock.unlink()  # the owner is dead and a person took its lock away
            self.model.reopen(what == "crash")
            self.c = self.campaign.open(max_lanes=self.lanes)
        await self.compare()
        return what

    def permit(self, name: str) -> Any:
        """The one handed out, or one that never was."""
        forged = Permit(reservation_id="0" * 24, batch_id="b", scenario_id=name, execution_id="e", ordinal=1, args=[])
        return msgspec.to_builtins(self.permits.get(name, forged))

    async def compare(self) -> None:
        state, model = await self.c.snapshot(), self.model
        assert {entry.permit.scenario_id: entry.phase for entry in state.entries.values()} == model.phase
        assert (state.stop is not None) is bool(model.stops)
        assert len(state.later_stops) == max(0, len(model.stops) - 1)
        assert all(count <= 1 for count in model.launched.values())
        claims = {one.name for one in self.campaign.claims.iterdir()}
        assert claims == {self.permits[name].reservation_id for name, count in model.launched.items() if count}
        for scenario in self.campaign.read()["scenarios"]:
            rows = scenario["attempts"]
            name = scenario["id"]
            assert len(rows) == (name in model.phase)
            if rows:
                ended = model.phase[name] == "completed"
                assert rows[0]["outcome"] == (model.outcome[name].split()[0] if ended else "running")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_sequence_of_calls_does_what_the_model_says(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    player = Player(QuickCampaign(tmp_path, NAMES), lanes=1 + seed % 2)

    async def play() -> list[str]:
        return [await player.step(chance) for _ in range(CALLS)]

    done = asyncio.run(play())
    assert len(done) == CALLS
    assert player.refusals > 0
    asyncio.run(player.c.close())
