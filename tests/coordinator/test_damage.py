"""Damaged, missing, older and edited control files: the lock is kept, or nothing is written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.commit import MAX_STATE_BYTES, read_sealed
from coordinator.documents import seal, sha256, unseal
from coordinator.errors import (
    DamagedError,
    OlderControlDirectoryError,
    StorageError,
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
    fresh,
    phases,
    run,
    snapshot,
    state_of,
)
from tests.coordinator.campaign import Campaign
from tests.coordinator.opening import crash, keep_lock, refuse_open, uncertain_batch


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return QuickCampaign(tmp_path)


# -- damage


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
