"""Opening: what is judged, what is settled, what keeps the lock and what leaves no trace."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator import CoordinatorError
from coordinator.commit import MAX_STATE_BYTES, read_sealed
from coordinator.documents import seal, sha256, unseal
from coordinator.errors import (
    DamagedError,
    InvalidInputError,
    LockLostError,
    OlderControlDirectoryError,
    StorageError,
    UnrecognizedManifestError,
)
from coordinator.opening import SelectionsRecord
from coordinator.records import Claim, Pending, State
from tests.coordinator.calls import (
    QuickCampaign,
    Unsynced,
    abandon,
    answers,
    completed,
    edited,
    finish,
    fresh,
    launched,
    nothing_written,
    phases,
    raises,
    refused,
    run,
    snapshot,
    state_of,
    tree,
    untouched,
)
from tests.coordinator.campaign import Campaign, attempt, failing_at


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


def refuse_open(campaign: Campaign, phrase: str, kind: type[BaseException] = CoordinatorError, **options: Any) -> None:
    """Refused, nothing written, no lock left."""
    with nothing_written(campaign), refused(phrase, kind):
        campaign.open(**options)
    assert not os.path.lexists(campaign.lock)


def keep_lock(campaign: Campaign, phrase: str, kind: type[BaseException] = DamagedError, **options: Any) -> None:
    """Refused with the new lock kept, and nothing else changed."""
    before = tree(campaign.folder)
    with refused(phrase, kind):
        campaign.open(**options)
    after = tree(campaign.folder)
    assert after.pop(campaign.lock.name)
    assert after == before
    campaign.lock.unlink()


def crash(campaign: Campaign, stage: str, name: str = "a") -> str:
    """Die in the commit of a reservation right after `stage`; a person took the lock away. Gives the id."""
    c = campaign.open(fault=failing_at(stage, ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        run(c.reserve(name))
    pending = json.loads((campaign.control / "pending.json").read_text())
    abandon(campaign)
    found: str = pending["reservationId"]
    return found


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


# -- reopening


def test_other_manifest_is_refused(campaign: Campaign, tmp_path: Path) -> None:
    run(campaign.open().close())
    other = tmp_path / "other.json"
    shutil.copy(campaign.path, other)
    before = tree(campaign.folder)
    with refused("belongs to the manifest", InvalidInputError):
        campaign.open(manifest_path=other)
    assert tree(campaign.folder) == before


def test_other_batch_is_refused(campaign: Campaign) -> None:
    run(campaign.open().close())
    refuse_open(campaign, "belongs to batch 'batch-1'", InvalidInputError, batch_id="batch-2")


def test_next_batch_has_a_control_directory_of_its_own(campaign: Campaign) -> None:
    c = campaign.open()
    run(completed(c, "a"))
    run(c.close())
    campaign.selections = [{"scenarioId": "a", "attempt": attempt("a", 2)}]
    c = campaign.open(batch_id="batch-2", control_directory=campaign.folder / "second")
    assert run(c.reserve("a")).ordinal == 2
    run(c.close())


def other_selections(selections: list[Any]) -> dict[str, list[Any]]:
    edited = copy.deepcopy(selections)
    edited[1]["attempt"]["profile"] = "another"
    more = copy.deepcopy(selections)
    more[0]["attempt"]["unknown"] = None
    typed = copy.deepcopy(selections)
    typed[0]["attempt"]["usage"]["costUsd"] = 0.0
    return {
        "another order": selections[::-1],
        "one less": selections[:-1],
        "one more": [*selections, {"scenarioId": "z", "attempt": attempt("z")}],
        "none": [],
        "edited": edited,
        "one more key": more,
        "another type": typed,
    }


@pytest.mark.parametrize("name", other_selections([{"scenarioId": one, "attempt": attempt(one)} for one in "abc"]))
def test_other_selections_are_refused(campaign: Campaign, name: str) -> None:
    run(campaign.open().close())
    others = other_selections(campaign.selections)[name]
    refuse_open(campaign, "other selections", InvalidInputError, selections=others)


def test_times_of_the_selections_do_not_matter(campaign: Campaign) -> None:
    c = campaign.open()
    run(c.reserve("a"))
    run(c.close())
    for one in campaign.selections:
        one["attempt"]["startedAt"] = "2030-01-01T00:00:00.000Z"
    del campaign.selections[1]["attempt"]["finishedAt"]
    campaign.selections[2]["attempt"] = dict(reversed(campaign.selections[2]["attempt"].items()))
    c = campaign.open()
    run(c.reserve("b"))
    run(c.close())


def test_closed_batch_is_reopened_without_a_stop(campaign: Campaign) -> None:
    c = campaign.open()
    run(completed(c, "a"))
    run(c.reserve("b"))
    run(c.close())
    before = state_of(campaign)
    c = campaign.open()
    state = snapshot(c)
    assert (state.stop, phases(state)) == (None, {"a": "completed", "b": "reserved"})
    assert state_of(campaign)["entries"] == before["entries"]
    run(c.close())


@pytest.mark.parametrize("phase", ["launching", "launched"])
def test_entry_between_launch_and_completion_stops_the_reopened_batch(campaign: Campaign, phase: str) -> None:
    c = campaign.open()
    permit = run(c.reserve("a"))
    if phase == "launching":
        with pytest.raises(ZeroDivisionError):
            run(c.launch_once(permit, raises(ZeroDivisionError())))
    else:
        run(c.launch_once(permit, answers))
    run(c.close())
    c = campaign.open()
    stop = snapshot(c).stop
    assert stop is not None
    assert stop.reason == "coordinator_failure"
    assert permit.reservation_id in stop.detail
    assert phases(snapshot(c)) == {"a": phase}
    run(c.close())


def test_owner_that_had_not_closed_stops_the_reopened_batch_in_one_write(campaign: Campaign) -> None:
    campaign.open()
    abandon(campaign)
    writes: list[str] = []

    class Writes(Unsynced):
        def rename(self, source: str, target: str) -> None:
            writes.append(os.path.basename(target))
            super().rename(source, target)

    c = campaign.open(Writes())
    assert writes == ["state.json"]
    state = state_of(campaign)
    assert state["stop"]["reason"] == "coordinator_failure"
    assert state["owner"]["token"] == json.loads(campaign.lock.read_text())["token"]
    with refused("stopped"):
        run(c.reserve("a"))
    run(c.close())


def test_coordinator_failure_is_kept_beside_a_stop_that_stands(campaign: Campaign) -> None:
    c = campaign.open()
    run(c.stop("operator_request", "mine"))
    abandon(campaign)
    c = campaign.open()
    state = snapshot(c)
    assert state.stop is not None
    assert state.stop.detail == "mine"
    assert [one.reason for one in state.later_stops] == ["coordinator_failure"]
    run(c.close())


# -- settling


def test_change_whose_intent_alone_is_durable_never_happened(campaign: Campaign) -> None:
    before = campaign.path.read_bytes()
    crash(campaign, "intent")
    assert campaign.path.read_bytes() == before
    c = campaign.open()
    assert (campaign.path.read_bytes(), phases(snapshot(c))) == (before, {})
    assert not (campaign.control / "pending.json").exists()
    run(c.close())


@pytest.mark.parametrize("stage", ["manifest", "state"])
def test_change_whose_manifest_is_durable_is_finished(campaign: Campaign, stage: str) -> None:
    reservation_id = crash(campaign, stage)
    manifest = campaign.path.read_bytes()
    c = campaign.open()
    state = snapshot(c)
    assert list(state.entries) == [reservation_id]
    assert phases(state) == {"a": "reserved"}
    assert campaign.path.read_bytes() == manifest
    assert state.entries[reservation_id].reserved_attempt == campaign.row("a")
    assert not (campaign.control / "pending.json").exists()
    run(c.close())


@pytest.mark.parametrize("stage", ["intent", "manifest", "state"])
def test_completion_is_settled_as_reservations_are(campaign: Campaign, stage: str) -> None:
    c = campaign.open()
    permit = run(launched(c, "a"))
    run(c.close())
    c = campaign.open(fault=failing_at(stage, ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        run(finish(c, permit))
    abandon(campaign)
    c = campaign.open()
    assert phases(snapshot(c)) == {"a": "launched" if stage == "intent" else "completed"}
    assert campaign.row("a")["outcome"] == ("running" if stage == "intent" else "passed")
    run(finish(c, permit))  # the same completion again, done or not
    assert phases(snapshot(c)) == {"a": "completed"}
    run(c.close())


@pytest.mark.parametrize("stage", ["intent", "manifest", "state"])
def test_unrecognized_manifest_keeps_the_new_lock(campaign: Campaign, stage: str) -> None:
    crash(campaign, stage)
    good = campaign.path.read_bytes()
    document = campaign.read()
    document["campaignId"] = "edited"
    campaign.write(document)
    keep_lock(campaign, "Unrecognized manifest", UnrecognizedManifestError)
    campaign.path.write_bytes(good)
    c = campaign.open()  # put back as it was, it is settled
    assert phases(snapshot(c)) == ({} if stage == "intent" else {"a": "reserved"})
    run(c.close())


def test_manifest_put_back_to_before_while_the_state_is_after_is_unrecognized(campaign: Campaign) -> None:
    before = campaign.path.read_bytes()
    crash(campaign, "state")
    campaign.path.write_bytes(before)
    keep_lock(campaign, "Unrecognized manifest", UnrecognizedManifestError)


def test_pending_change_is_settled_only_by_its_own_batch(campaign: Campaign) -> None:
    crash(campaign, "manifest")
    for options in ({"batch_id": "batch-2"}, {"selections": campaign.selections[:1]}):
        before = tree(campaign.folder)
        with pytest.raises(InvalidInputError):
            campaign.open(**options)
        assert tree(campaign.folder) == before


@pytest.mark.parametrize("operation", ["rename", "unlink"])
def test_settling_that_fails_keeps_the_lock(campaign: Campaign, operation: str) -> None:
    crash(campaign, "manifest")

    class Fails(Unsynced):
        def rename(self, source: str, target: str) -> None:
            if operation == "rename":
                raise OSError(28, "No space left on device")
            super().rename(source, target)

        def unlink(self, path: str) -> None:
            if path.endswith("pending.json"):
                raise OSError(30, "Read-only file system")
            super().unlink(path)

    with pytest.raises(StorageError):
        campaign.open(Fails())
    assert campaign.lock.exists()
    abandon(campaign)
    c = campaign.open()
    assert phases(snapshot(c)) == {"a": "reserved"}
    run(c.close())


# -- damage


def uncertain_batch(campaign: Campaign) -> str:
    c = campaign.open()
    permit = run(launched(c, "a"))
    run(c.reserve("b"))
    run(c.close())
    return permit.reservation_id


def instead(path: Path, make: Callable[[Path], Any]) -> None:
    path.unlink(missing_ok=True)
    make(path)


def replace_by_link(path: Path) -> None:
    path.rename(path.with_name("aside"))
    path.symlink_to("aside")


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: fresh(path, b""),
    "zeros": lambda path: fresh(path, bytes(path.stat().st_size)),
    "half": lambda path: fresh(path, path.read_bytes()[: path.stat().st_size // 2]),
    "doubled": lambda path: fresh(path, path.read_bytes() * 2),
    "unsealed": lambda path: fresh(path, (json.dumps(unseal(path.read_bytes()), indent=2) + "\n").encode()),
    "reformatted": lambda path: fresh(path, json.dumps(json.loads(path.read_text())).encode()),
    "another version": lambda path: fresh(path, seal({**unseal(path.read_bytes()), "version": 2})),
    "no version": lambda path: fresh(path, seal({"a": 1})),
    "array": lambda path: fresh(path, b"[]\n"),
    "directory": lambda path: instead(path, Path.mkdir),
    "fifo": lambda path: instead(path, os.mkfifo),
    "link": lambda path: replace_by_link(path),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["state.json", "selections.json", "claim"])
def test_damaged_control_file_keeps_the_lock(campaign: Campaign, name: str, damage: str) -> None:
    reservation_id = uncertain_batch(campaign)
    path = campaign.claims / reservation_id if name == "claim" else campaign.control / name
    DAMAGES[damage](path)
    if name == "claim" and damage == "link":
        (campaign.claims / "aside").rename(campaign.folder / "aside")
    keep_lock(campaign, str(path))


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_pending_keeps_the_lock(campaign: Campaign, damage: str) -> None:
    crash(campaign, "manifest")
    DAMAGES[damage](campaign.control / "pending.json")
    keep_lock(campaign, "pending.json")


def test_missing_state_while_claims_exist_keeps_the_lock(campaign: Campaign) -> None:
    uncertain_batch(campaign)
    (campaign.control / "state.json").unlink()
    keep_lock(campaign, "is missing")


def test_missing_control_directory_while_claims_exist_keeps_the_lock(campaign: Campaign) -> None:
    uncertain_batch(campaign)
    shutil.rmtree(campaign.control)
    keep_lock(campaign, "is missing")


def test_missing_selections_keep_the_lock(campaign: Campaign) -> None:
    run(campaign.open().close())
    (campaign.control / "selections.json").unlink()
    keep_lock(campaign, "selections.json is missing")


def test_selections_of_another_batch_keep_the_lock(campaign: Campaign, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = QuickCampaign(tmp_path / "other", "ab")
    run(other.open().close())
    run(campaign.open().close())
    shutil.copy(other.control / "selections.json", campaign.control / "selections.json")
    keep_lock(campaign, "does not hold the selections")


def test_pending_without_state_keeps_the_lock(campaign: Campaign) -> None:
    crash(campaign, "intent")
    (campaign.control / "state.json").unlink()
    keep_lock(campaign, "exists without")


def test_pending_of_another_state_keeps_the_lock(campaign: Campaign) -> None:
    crash(campaign, "intent")
    path = campaign.control / "state.json"
    state = unseal(path.read_bytes())
    path.write_bytes(seal({**state, "stop": {"reason": "canceled", "detail": "older", "at": None}}))
    keep_lock(campaign, "belongs to another")


def test_claim_under_another_name_keeps_the_lock(campaign: Campaign) -> None:
    reservation_id = uncertain_batch(campaign)
    (campaign.claims / reservation_id).rename(campaign.claims / "another")
    keep_lock(campaign, "is the claim of")


def test_temporary_files_of_a_killed_owner_do_not_matter(campaign: Campaign) -> None:
    uncertain_batch(campaign)
    for folder in (campaign.folder, campaign.control, campaign.claims):
        (folder / ".state.json.0123456789abcdef.tmp").write_text("{half")
    c = campaign.open()
    assert phases(snapshot(c)) == {"a": "launched", "b": "reserved"}
    run(c.close())


def test_opening_killed_before_the_state_is_opened_afresh(campaign: Campaign) -> None:
    class Dies(Unsynced):
        def link(self, source: str, target: str) -> None:
            if target.endswith("state.json"):
                raise ZeroDivisionError
            super().link(source, target)

    with pytest.raises(ZeroDivisionError):
        campaign.open(Dies())
    assert (campaign.control / "selections.json").exists()
    abandon(campaign)
    campaign.selections.pop()  # that batch never began, so it may be another one
    c = campaign.open()
    assert snapshot(c).stop is None
    run(c.reserve("a"))
    run(c.close())
    run(campaign.open().close())


# -- an older control directory


def older_copy(campaign: Campaign) -> Path:
    """A copy of the directory from before the launch; the batch went on."""
    c = campaign.open()
    permit = run(c.reserve("a"))
    run(c.close())
    copied = campaign.folder / "backup"
    shutil.copytree(campaign.control, copied)
    c = campaign.open()
    run(c.launch_once(permit, answers))
    run(c.close())
    return copied


def test_older_control_directory_put_back_is_refused(campaign: Campaign) -> None:
    copied = older_copy(campaign)
    shutil.rmtree(campaign.control)
    copied.rename(campaign.control)
    refuse_open(campaign, "older control directory", OlderControlDirectoryError)


def test_older_control_directory_put_elsewhere_is_refused(campaign: Campaign) -> None:
    copied = older_copy(campaign)
    refuse_open(campaign, "older control directory", OlderControlDirectoryError, control_directory=copied)


def test_control_directory_older_than_a_reservation_is_refused(campaign: Campaign) -> None:
    run(campaign.open().close())
    copied = campaign.folder / "backup"
    shutil.copytree(campaign.control, copied)
    c = campaign.open()
    run(completed(c, "a"))
    run(c.close())
    shutil.rmtree(campaign.control)
    copied.rename(campaign.control)
    refuse_open(campaign, "older control directory", OlderControlDirectoryError)


# -- every byte


@pytest.mark.parametrize("name", ["state.json", "selections.json", "claim", "pending.json"])
def test_every_changed_byte_of_a_control_file_is_noticed(campaign: Campaign, name: str) -> None:
    """Every position through the reader that `open` uses, a spread of them through `open` itself."""
    records: dict[str, Any] = {"state.json": State, "selections.json": SelectionsRecord, "claim": Claim}
    record = records.get(name, Pending)
    if name == "pending.json":
        crash(campaign, "manifest")
        path = campaign.control / name
    else:
        reservation_id = uncertain_batch(campaign)
        path = campaign.claims / reservation_id if name == "claim" else campaign.control / name
    good = path.read_bytes()
    assert read_sealed(str(path), record, MAX_STATE_BYTES) is not None
    tried = 0
    for position in range(len(good)):
        for byte in {good[position] ^ 1, ord(" ")} - {good[position]}:
            with edited(path, position, byte), pytest.raises(DamagedError):
                read_sealed(str(path), record, MAX_STATE_BYTES)
            tried += 1
    for position in range(0, len(good), max(1, len(good) // 10)):
        with edited(path, position, good[position] ^ 1):
            keep_lock(campaign, str(path))
    print(f"{tried} changed bytes of {len(good)} noticed")
    assert path.read_bytes() == good
    run(campaign.open().close())


def test_hash_of_the_state_is_that_of_its_bytes(campaign: Campaign) -> None:
    c = campaign.open()
    run(c.reserve("a"))
    run(c.close())
    data = (campaign.control / "state.json").read_bytes()
    assert json.loads(data)["sha256"] == sha256(json_without_seal(data))


def json_without_seal(data: bytes) -> bytes:
    document = json.loads(data)
    del document["sha256"]
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def test_poisoned_opening_is_not_a_coordinator(campaign: Campaign) -> None:
    """The one write that sets the owner fails: nobody owns the batch, the lock stays for a person."""
    run(campaign.open().close())

    class Fails(Unsynced):
        def rename(self, source: str, target: str) -> None:
            if target.endswith("state.json"):
                raise OSError(5, "Input/output error")
            super().rename(source, target)

    with pytest.raises(StorageError):
        campaign.open(Fails())
    assert campaign.lock.exists()
    assert state_of(campaign)["owner"] is None
