"""`reserve`: what is refused, what is written, and that a refusal leaves everything as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator import Attempt, Permit, Selection
from coordinator.errors import RefusedError
from tests.coordinator.calls import (
    QuickCampaign,
    finish,
    launched,
    refused,
    run,
    select,
    snapshot,
    untouched,
)
from tests.coordinator.campaign import Campaign, attempt


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


# -- what a reservation is


def test_permit_names_the_reservation_and_its_arguments(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(c.reserve("a"))
    assert permit == Permit(
        reservation_id=permit.reservation_id,
        batch_id="batch-1",
        scenario_id="a",
        execution_id="run-a",
        ordinal=1,
        args=["--id", "run-a", "--max-parallel", "1", "--max-automatic-retries", "0"],
    )
    assert len(permit.reservation_id) >= 16
    run(c.close())


def test_reservation_is_the_selected_row_with_the_time_of_the_reservation(campaign: Campaign) -> None:
    select(campaign, startedAt="1999-01-01T00:00:00.000Z")
    times = iter(f"2026-05-05T00:00:{second:02d}.000Z" for second in range(60))
    c = campaign.open(now=lambda: next(times))
    run(c.reserve("a"))
    row = campaign.row("a")
    assert row["startedAt"].startswith("2026-05-05")
    assert row == {**attempt("a"), "startedAt": row["startedAt"]}
    entry = next(iter(snapshot(c).entries.values()))
    assert (entry.phase, entry.reserved_attempt) == ("reserved", row)
    run(c.close())


def test_reservation_ids_are_never_used_again(campaign: Campaign, tmp_path: Path) -> None:
    ids = set()
    for number in range(8):
        folder = tmp_path / str(number)
        folder.mkdir()
        c = QuickCampaign(folder).open()
        ids |= {run(c.reserve("a")).reservation_id, run(c.reserve("b")).reservation_id}
        run(c.close())
    assert len(ids) == 16


def test_reserving_again_gives_the_same_permit_and_writes_nothing(campaign: Campaign) -> None:
    c = campaign.open()
    first = run(c.reserve("a"))
    run(c.reserve("b"))  # both lanes are taken now: asking again needs none
    with untouched(campaign.path, campaign.control / "state.json"):
        assert run(c.reserve("a")) == first
    run(c.close())
    reopened = campaign.open()
    assert run(reopened.reserve("a")) == first
    run(reopened.close())


def test_launched_and_completed_scenarios_are_not_reserved_again(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    with untouched(campaign.path), refused("launched", RefusedError):
        run(c.reserve("a"))
    run(finish(c, permit))
    with untouched(campaign.path), refused("completed", RefusedError):
        run(c.reserve("a"))
    run(c.close())


def test_unknown_keys_of_a_selection_go_into_the_row(campaign: Campaign) -> None:
    select(campaign, theirOwn={"deep": [1, {"x": None}]}, zebra="z")
    c = campaign.open()
    run(c.reserve("a"))
    row = campaign.row("a")
    assert (row["theirOwn"], row["zebra"]) == ({"deep": [1, {"x": None}]}, "z")
    assert list(row) == [*attempt("a"), "theirOwn", "zebra"]
    run(c.close())


def test_selection_structs_and_nested_json_forms_are_the_same(campaign: Campaign, tmp_path: Path) -> None:
    row = attempt("a")
    struct = Attempt(
        ordinal=1,
        execution_id="run-a",
        definition_digest="definition-a",
        grader_digest="grader-1",
        source_revision="r1",
        working_tree_digest="w1",
        suite_definition_digest="suite-1",
        profile="default",
        environment={"os": "linux"},
        usage=row["usage"],
        database_lane=row["databaseLane"],
        product_identity=row["productIdentity"],
    )
    rows = []
    for number, one in enumerate(
        [
            {"scenarioId": "a", "attempt": row},
            {"scenarioId": "a", "attempt": struct},
            Selection(scenario_id="a", attempt=row),
            Selection(scenario_id="a", attempt=struct),
        ]
    ):
        folder = tmp_path / f"form-{number}"
        folder.mkdir()
        other = QuickCampaign(folder)
        other.selections = [one]
        c = other.open(now=lambda: "2026-01-01T00:00:00.000Z")
        run(c.reserve("a"))
        rows.append(other.row("a"))
        run(c.close())
    assert rows[0] == rows[1] == rows[2] == rows[3]


def test_selections_are_copied(campaign: Campaign) -> None:
    c = campaign.open()
    campaign.selections[0]["attempt"]["ordinal"] = 9
    campaign.selections[0]["attempt"]["usage"]["tokens"] = 5
    campaign.selections.reverse()
    run(c.reserve("a"))
    assert campaign.row("a")["ordinal"] == 1
    assert campaign.row("a")["usage"]["tokens"] == 0
    run(c.close())
