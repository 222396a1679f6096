"""Opening: what is judged, what is settled, what keeps the lock and what leaves no trace."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator import CoordinatorError
from coordinator.errors import (
    DamagedError,
    InvalidInputError,
    LockLostError,
)
from tests.coordinator.calls import (
    QuickCampaign,
    Unsynced,
    answers,
    completed,
    finish,
    launched,
    nothing_written,
    phases,
    refused,
    run,
    snapshot,
    state_of,
    tree,
    untouched,
)
from tests.coordinator.campaign import Campaign, attempt
from tests.coordinator.opening import refuse_open


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


# -- options and selections

BAD_OPTIONS: list[dict[str, Any]] = [
    {"max_lanes": 0},
    {"max_lanes": 3},
    {"max_lanes": True},
    {"max_lanes": "2"},
    {"max_lanes": None},
    {"max_lanes": 1.5},
    {"batch_id": ""},
    {"batch_id": None},
    {"batch_id": 7},
    {"manifest_path": None},
    {"manifest_path": 7},
    {"manifest_path": ""},
    {"manifest_path": "a\0b"},
    {"manifest_path": "no/such/file"},
    {"manifest_path": "/"},
    {"manifest_path": "\udcff"},
    {"control_directory": None},
    {"control_directory": 7},
    {"control_directory": ""},
    {"control_directory": "a\0b"},
    {"control_directory": "\udcff"},
    {"evidence_root": None},
    {"evidence_root": "a\0b"},
    {"selections": None},
    {"selections": "abc"},
    {"selections": 7},
    {"selections": [None]},
    {"selections": [{}]},
    {"selections": [{"scenarioId": "a"}]},
    {"selections": [{"scenarioId": 7, "attempt": attempt("a")}]},
    {"selections": [{"scenarioId": "a", "attempt": None}]},
    {"selections": [{"scenarioId": "a", "attempt": []}]},
    {"selections": [{"scenarioId": "a", "attempt": {}}]},
    {"selections": [{"scenarioId": "a", "attempt": {**attempt("a"), "ordinal": "1"}}]},
    {"selections": [{"scenarioId": "a", "attempt": attempt("a", usage={"costUsd": float("nan")})}]},
    {"selections": [{"scenarioId": "a", "attempt": attempt("a", model="\ud800")}]},
]


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=range(len(BAD_OPTIONS)))
def test_bad_options_are_errors_of_this_package_with_nothing_written(
    campaign: Campaign, options: dict[str, Any]
) -> None:
    before = tree(campaign.folder)
    with pytest.raises(CoordinatorError):
        campaign.open(**options)
    assert tree(campaign.folder) == before


def test_batch_id_that_no_file_can_hold_is_refused(campaign: Campaign) -> None:
    before = tree(campaign.folder)
    with pytest.raises(CoordinatorError):
        campaign.open(batch_id="\ud800")
    assert tree(campaign.folder) == before


def test_scenario_selected_twice_is_refused(campaign: Campaign) -> None:
    campaign.selections.append({"scenarioId": "a", "attempt": attempt("a", 2)})
    refuse_open(campaign, "selected twice", InvalidInputError)


def test_open_judges_no_attempt(campaign: Campaign) -> None:
    """Whatever concerns one attempt is refused by `reserve`: the others can still be played."""
    campaign.selections = [
        {"scenarioId": "a", "attempt": attempt("a", -7, outcome="passed", cleanup="failed", automaticRetries=3)},
        {"scenarioId": "not in the manifest", "attempt": attempt("x")},
        {"scenarioId": "c", "attempt": attempt("c")},
    ]
    c = campaign.open()
    for name in ("a", "not in the manifest"):
        with untouched(campaign.path), pytest.raises(CoordinatorError):
            run(c.reserve(name))
    run(completed(c, "c"))
    run(c.close())


def test_batch_without_selections_may_be_opened(campaign: Campaign) -> None:
    c = campaign.open(selections=[])
    with refused("not among the selections"):
        run(c.reserve("a"))
    run(c.close())


def test_tuple_and_text_paths_are_taken(campaign: Campaign) -> None:
    c = campaign.open(selections=tuple(campaign.selections), manifest_path=str(campaign.path))
    run(c.reserve("a"))
    run(c.close())


# -- the control directory


def test_fresh_state_names_batch_manifest_and_owner(campaign: Campaign) -> None:
    c = campaign.open()
    state = state_of(campaign)
    assert (state["version"], state["batchId"], state["manifestPath"]) == (1, "batch-1", str(campaign.path))
    assert (state["entries"], state["stop"], state["laterStops"], state["failures"]) == ({}, None, [], [])
    assert state["owner"]["token"] == json.loads(campaign.lock.read_text())["token"]
    run(c.close())


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o770, 0o701, 0o710, 0o777])
def test_control_directory_that_others_may_enter_is_refused(campaign: Campaign, mode: int) -> None:
    campaign.control.mkdir()
    campaign.control.chmod(mode)
    refuse_open(campaign, "others must not enter", InvalidInputError)
    campaign.control.chmod(0o700)
    run(campaign.open().close())
    campaign.control.chmod(mode)
    refuse_open(campaign, "others must not enter", InvalidInputError)


@pytest.mark.parametrize("kind", ["link", "dangling", "file", "fifo"])
def test_control_directory_that_is_no_directory_is_refused(campaign: Campaign, kind: str) -> None:
    real = campaign.folder / "real"
    real.mkdir(mode=0o700)
    if kind == "link":
        campaign.control.symlink_to(real)
    elif kind == "dangling":
        campaign.control.symlink_to("nowhere")
    elif kind == "file":
        campaign.control.write_text("x")
    else:
        os.mkfifo(campaign.control)
    refuse_open(campaign, "symbolic link" if "link" in kind or kind == "dangling" else "not a directory")
    assert os.listdir(real) == []


def test_control_directory_of_somebody_else_is_refused(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign.control.mkdir(mode=0o700)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with refused("belongs to user", InvalidInputError):
        campaign.open()


@pytest.mark.parametrize("name", ["control/inbox", "control/jobs", "control/runs", "claims"])
@pytest.mark.parametrize("kind", ["loose", "link", "file"])
def test_part_that_is_not_private_is_refused_with_nothing_written(campaign: Campaign, name: str, kind: str) -> None:
    path = campaign.claims if name == "claims" else campaign.folder / name
    run(campaign.open().close())
    path.rmdir()
    if kind == "loose":
        path.mkdir()
        path.chmod(0o755)
    elif kind == "link":
        (campaign.folder / "real").mkdir(mode=0o700)
        path.symlink_to(campaign.folder / "real")
    else:
        path.write_text("x")
    refuse_open(campaign, str(path))


def test_way_to_the_control_directory_may_be_a_link(campaign: Campaign) -> None:
    (campaign.folder / "real").mkdir()
    (campaign.folder / "way").symlink_to("real")
    c = campaign.open(control_directory=campaign.folder / "way" / "control")
    run(c.reserve("a"))
    run(c.close())
    c = campaign.open(control_directory=campaign.folder / "real" / "control")  # the same one
    assert phases(snapshot(c)) == {"a": "reserved"}
    run(c.close())


def swap(campaign: Campaign) -> None:
    campaign.control.rename(campaign.folder / "aside")
    shutil.copytree(campaign.folder / "aside", campaign.control)


def swap_for_link(campaign: Campaign) -> None:
    campaign.control.rename(campaign.folder / "aside")
    campaign.control.symlink_to("aside")


def take_away(campaign: Campaign) -> None:
    campaign.control.rename(campaign.folder / "aside")


def make_again(campaign: Campaign) -> None:
    shutil.rmtree(campaign.control)
    campaign.control.mkdir(mode=0o700)


@pytest.mark.parametrize("change", [swap, swap_for_link, take_away, make_again])
def test_control_directory_must_be_the_same_all_the_while(
    campaign: Campaign, change: Callable[[Campaign], None]
) -> None:
    c = campaign.open()
    permit, waiting = run(launched(c, "a")), run(c.reserve("b"))
    change(campaign)
    with nothing_written(campaign):
        for call in (
            c.reserve("c"),
            c.launch_once(waiting, answers),
            finish(c, permit),
            c.stop("canceled", "x"),
            c.close(),
        ):
            assert c.state.stop is None
            with refused("not the same directory", LockLostError):
                run(call)


def test_state_is_created_without_replacing(campaign: Campaign) -> None:
    """A state that appears while the batch is opened is somebody's: it stays, and so does the lock."""

    class Appears(Unsynced):
        def link(self, source: str, target: str) -> None:
            if target.endswith("state.json"):
                Path(target).write_text("theirs")
            super().link(source, target)

    with refused("appeared", DamagedError):
        campaign.open(Appears())
    assert (campaign.control / "state.json").read_text() == "theirs"
    assert campaign.lock.exists()
