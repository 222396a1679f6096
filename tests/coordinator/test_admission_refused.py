"""What `reserve` refuses, leaving everything as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator import Coordinator, CoordinatorError, Permit
from coordinator.errors import LanesTakenError, RefusedError, StoppedError
from tests.coordinator.calls import (
    QuickCampaign,
    Unsynced,
    answers,
    change_scenario,
    completed,
    finish,
    launched,
    phases,
    refused,
    run,
    select,
    snapshot,
    untouched,
)
from tests.coordinator.campaign import Campaign, attempt, manifest, scenario


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


def identity(**changes: Any) -> dict[str, Any]:
    return {**attempt("a")["productIdentity"], **changes}


def refuse_reserve(campaign: Campaign, phrase: str, **options: Any) -> None:
    """`reserve("a")` is refused with the phrase, nothing is written, and `c` is admitted all the same."""
    c = campaign.open(**options)
    with untouched(campaign.path, campaign.control / "state.json"), refused(phrase, RefusedError):
        run(c.reserve("a"))
    assert run(c.reserve("c")).scenario_id == "c"
    run(c.close())


# -- what is refused


def test_stopped_batch_reserves_nothing(campaign: Campaign) -> None:
    c = campaign.open()
    run(c.reserve("a"))
    run(c.stop("operator_request", "lunch"))
    with untouched(campaign.path), refused("stopped", StoppedError):
        run(c.reserve("b"))
    with refused("stopped", StoppedError):
        run(c.reserve("a"))  # also what was reserved before
    run(c.close())


def test_third_open_attempt_finds_two_lanes_taken(campaign: Campaign) -> None:
    c = campaign.open()
    permit = run(c.reserve("a"))
    run(c.reserve("b"))
    with untouched(campaign.path, campaign.control / "state.json"), refused("Two lanes", LanesTakenError):
        run(c.reserve("c"))
    run(c.launch_once(permit, answers))
    with refused("Two lanes", LanesTakenError):  # launched is open too
        run(c.reserve("c"))
    run(finish(c, permit))
    assert run(c.reserve("c")).scenario_id == "c"
    run(c.close())


def test_one_lane_admits_one(campaign: Campaign) -> None:
    c = campaign.open(max_lanes=1)
    permit = run(launched(c, "a"))
    with untouched(campaign.path), refused("Two lanes", LanesTakenError):
        run(c.reserve("b"))
    run(finish(c, permit))
    run(c.reserve("b"))
    run(c.close())


@pytest.mark.parametrize("foreign, admitted", [(1, 1), (2, 0), (3, 0)])
def test_running_rows_of_other_batches_are_lanes(campaign: Campaign, foreign: int, admitted: int) -> None:
    document = campaign.read()
    for number in range(foreign):
        document["scenarios"].append(scenario(f"x{number}", attempts=[attempt(f"x{number}")]))
    campaign.write(document)
    c = campaign.open()
    got = 0
    for name in "abc":
        try:
            run(c.reserve(name))
            got += 1
        except LanesTakenError as error:
            assert "Two lanes" in str(error)
            assert error.foreign == foreign
    assert got == admitted
    run(c.close())


def test_failed_launch_keeps_its_lane(campaign: Campaign) -> None:
    async def dies(_: Permit) -> None:
        raise ZeroDivisionError

    c = campaign.open(max_lanes=1)
    permit = run(c.reserve("a"))
    with pytest.raises(ZeroDivisionError):
        run(c.launch_once(permit, dies))
    with refused("Two lanes"):
        run(c.reserve("b"))
    run(c.close())


def test_unselected_scenario_is_refused(campaign: Campaign) -> None:
    campaign.selections = campaign.selections[1:]
    refuse_reserve(campaign, "is not among the selections")


@pytest.mark.parametrize("odd", [None, 7, "", "no such", "a\0", ["a"], {"id": "a"}])
def test_scenario_id_of_any_kind_is_refused_and_not_a_crash(campaign: Campaign, odd: Any) -> None:
    c = campaign.open()
    with untouched(campaign.path), pytest.raises(CoordinatorError):
        run(c.reserve(odd))
    run(c.close())


def test_scenario_that_the_manifest_lacks_is_refused(campaign: Campaign) -> None:
    campaign.write(manifest(scenario("b"), scenario("c")))
    refuse_reserve(campaign, "'a' is not in the manifest")


def test_scenario_listed_twice_is_refused(campaign: Campaign) -> None:
    campaign.write(manifest(*(scenario(name) for name in "abca")))
    refuse_reserve(campaign, "listed 2 times")


@pytest.mark.parametrize(
    "changes",
    [
        {"blocker": "needs a GPU"},
        {"blocker": {"issue": 1}},
        {"readiness": "blocked"},
        {"authoringStatus": "draft"},
        {"authoringStatus": "not_implemented"},
        {"authoringStatus": None},
        {"authoringStatus": "Implemented"},
        {"authoringStatus": ["implemented"]},
    ],
)
def test_blocked_or_not_implemented_scenario_is_refused(campaign: Campaign, changes: dict[str, Any]) -> None:
    change_scenario(campaign, **changes)
    blocked = "blocker" in changes or "readiness" in changes
    refuse_reserve(campaign, "is blocked" if blocked else "is not implemented")


def test_scenario_with_an_attempt_still_running_is_refused(campaign: Campaign) -> None:
    change_scenario(campaign, attempts=[attempt("a")])
    select(campaign, ordinal=2)
    refuse_reserve(campaign, "still running")


@pytest.mark.parametrize("key", ["executionId", "definitionDigest", "graderDigest"])
def test_attempt_with_another_identity_than_the_scenario_is_refused(campaign: Campaign, key: str) -> None:
    select(campaign, **{key: "another"})
    refuse_reserve(campaign, key)


@pytest.mark.parametrize("key", ["qualifyingDefinitionDigest", "qualifyingGraderDigest"])
def test_null_qualifying_digest_matches_nothing(campaign: Campaign, key: str) -> None:
    change_scenario(campaign, **{key: None})
    refuse_reserve(campaign, "is not the qualifying one, None")


def test_missing_qualifying_digest_matches_nothing(campaign: Campaign) -> None:
    document = campaign.read()
    del document["scenarios"][0]["qualifyingGraderDigest"]
    campaign.write(document)
    refuse_reserve(campaign, "graderDigest")


@pytest.mark.parametrize("ended, ordinal", [(0, 0), (0, 2), (0, -1), (1, 1), (1, 3), (2, 2)])
def test_ordinal_must_be_the_number_of_attempts_plus_one(campaign: Campaign, ended: int, ordinal: int) -> None:
    rows = [attempt("a", number + 1, outcome="failed", cleanup="passed") for number in range(ended)]
    change_scenario(campaign, attempts=rows)
    select(campaign, ordinal=ordinal)
    refuse_reserve(campaign, f"ordinal {ordinal} is not the next one, {ended + 1}")


def test_next_ordinal_is_admitted_behind_ended_attempts(campaign: Campaign) -> None:
    rows = [attempt("a", number, outcome="interrupted", cleanup="failed") for number in (1, 2)]
    change_scenario(campaign, attempts=rows)
    select(campaign, ordinal=3)
    c = campaign.open()
    assert run(c.reserve("a")).ordinal == 3
    assert campaign.read()["scenarios"][0]["attempts"][:2] == rows
    run(c.close())


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": "passed"},
        {"outcome": "RUNNING"},
        {"cleanup": "passed"},
        {"automaticRetries": 1},
        {"automaticRetries": -1},
        {"finishedAt": "2026-01-01T00:00:00.000Z"},
    ],
)
def test_attempt_that_is_not_fresh_is_refused(campaign: Campaign, changes: dict[str, Any]) -> None:
    select(campaign, **changes)
    refuse_reserve(campaign, "is not fresh")


@pytest.mark.parametrize("key", ["outcome", "cleanup", "automaticRetries"])
def test_attempt_without_a_fresh_field_is_refused(campaign: Campaign, key: str) -> None:
    del campaign.selections[0]["attempt"][key]
    refuse_reserve(campaign, "is not fresh")


@pytest.mark.parametrize(
    "product",
    [
        None,
        "local-build",
        {},
        identity(kind="store"),
        identity(kind=None),
        identity(productionSourceRevision="r2"),
        identity(productionSourceRevision=None),
    ],
)
def test_product_identity_must_fit_the_policy(campaign: Campaign, product: Any) -> None:
    select(campaign, productIdentity=product)
    refuse_reserve(campaign, "productIdentity does not fit productPolicy")


@pytest.mark.parametrize("policy", [None, "local-build", {}, {"lane": None, "sourceBaselineRevision": None}])
def test_policy_that_says_nothing_fits_nothing(campaign: Campaign, policy: Any) -> None:
    change_scenario(campaign, productPolicy=policy)
    refuse_reserve(campaign, "productIdentity does not fit productPolicy")


PINNED = "postgres@sha256:" + "a" * 64


@pytest.mark.parametrize(
    "lane",
    [
        {"lane": "none"},
        {"lane": "embedded-postgres"},
        {"lane": "embedded-sqlite"},
        {"lane": "owned-docker-postgres", "engine": "postgres", "image": PINNED},
    ],
)
def test_known_database_lanes_are_admitted(campaign: Campaign, lane: dict[str, Any]) -> None:
    select(campaign, databaseLane=lane)
    c = campaign.open()
    run(c.reserve("a"))
    assert campaign.row("a")["databaseLane"] == lane
    run(c.close())


@pytest.mark.parametrize(
    "lane",
    [
        None,
        "none",
        [],
        {},
        {"lane": None},
        {"lane": "None"},
        {"lane": ["none"]},
        {"lane": "none", "image": "x"},
        {"lane": "embedded-postgres", "engine": "postgres"},
        {"lane": "embedded-sqlite", "file": "x"},
        {"lane": "shared-postgres"},
        {"lane": "owned-docker-postgres"},
        {"lane": "owned-docker-postgres", "image": PINNED},
        {"lane": "owned-docker-postgres", "engine": "mysql", "image": PINNED},
        {"lane": "owned-docker-postgres", "engine": "postgres", "image": "postgres:16"},
        {"lane": "owned-docker-postgres", "engine": "postgres", "image": "@sha256:" + "a" * 64},
        {"lane": "owned-docker-postgres", "engine": "postgres", "image": PINNED[:-1]},
        {"lane": "owned-docker-postgres", "engine": "postgres", "image": PINNED + "a"},
        {"lane": "owned-docker-postgres", "engine": "postgres", "image": PINNED + "\n"},
        {"lane": "owned-docker-postgres", "engine": "postgres", "image": "postgres@sha256:" + "g" * 64},
        {"lane": "owned-docker-postgres", "engine": "postgres", "image": 7},
    ],
)
def test_unknown_database_lanes_are_refused(campaign: Campaign, lane: Any) -> None:
    select(campaign, databaseLane=lane)
    refuse_reserve(campaign, "databaseLane")


class Space(Unsynced):
    """Real operations, with so much free space."""

    def __init__(self, free: int) -> None:
        self.free = free

    def free_bytes(self, path: str) -> int:
        return self.free


def test_little_free_space_is_refused(campaign: Campaign) -> None:
    space = Space((32 << 20) - 1)
    c = campaign.open(space)
    with untouched(campaign.path, campaign.control / "state.json"), refused("free space", RefusedError):
        run(c.reserve("a"))
    space.free += 1
    run(c.reserve("a"))
    run(c.close())


class NoStatvfs(Unsynced):
    def free_bytes(self, path: str) -> int:
        raise OSError(5, "Input/output error")


def test_free_space_that_cannot_be_asked_for_is_an_error_of_this_package(campaign: Campaign) -> None:
    c = campaign.open(NoStatvfs())
    with untouched(campaign.path), refused("free space", CoordinatorError):
        run(c.reserve("a"))
    run(c.close())


def test_edited_reserved_attempt_is_refused_when_reserved_again(campaign: Campaign) -> None:
    c = campaign.open()
    run(c.reserve("a"))
    document = campaign.read()
    document["scenarios"][0]["attempts"][0]["profile"] = "other"
    campaign.write(document)
    with untouched(campaign.path), refused("Reserved attempt changed", RefusedError):
        run(c.reserve("a"))
    run(c.close())


def test_metadata_edited_between_commits_is_kept(campaign: Campaign) -> None:
    c = campaign.open()
    run(c.reserve("a"))
    document = campaign.read()
    document["campaignId"] = "renamed"
    document["scenarios"][1]["query"] = "edited"
    document["scenarios"][0]["context"] = "edited too"
    document["note"] = {"by": "somebody"}
    campaign.write(document)
    run(c.reserve("b"))
    kept = campaign.read()
    assert (kept["campaignId"], kept["note"]) == ("renamed", {"by": "somebody"})
    assert (kept["scenarios"][1]["query"], kept["scenarios"][0]["context"]) == ("edited", "edited too")
    run(c.close())


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b"null", b'{"version": 2, "scenarios": []}', b'{"version": true, "scenarios": []}'],
)
def test_damaged_manifest_is_refused_and_the_coordinator_goes_on(campaign: Campaign, data: bytes) -> None:
    c = campaign.open()
    good = campaign.path.read_bytes()
    campaign.path.write_bytes(data)
    with pytest.raises(CoordinatorError):
        run(c.reserve("a"))
    assert campaign.path.read_bytes() == data
    campaign.path.write_bytes(good)
    run(c.reserve("a"))
    run(c.close())


def test_many_refusals_leave_the_coordinator_usable(campaign: Campaign) -> None:
    c: Coordinator = campaign.open()
    for _ in range(5):
        with refused("not among the selections"):
            run(c.reserve("zz"))
    run(completed(c, "a"))
    assert phases(snapshot(c)) == {"a": "completed"}
    run(c.close())
