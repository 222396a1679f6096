"""The suites can fail: each mutant of the protocol lacks a sync, check, flag, hash or order, and is killed by name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

import pytest

from coordinator import CoordinatorError, commit, documents, inspection, lock, opening, rules
from coordinator.commit import Batch
from coordinator.coordinator import Coordinator
from coordinator.documents import decode
from coordinator.files import Files, Operations
from coordinator.records import Entry, Pending
from tests.crash import promises
from tests.crash.counts import count
from tests.crash.power import first_violation, play_life
from tests.crash.promises import Promise
from tests.crash.seam import FaultyOperations

pytestmark = pytest.mark.ci

Mutate = Callable[[pytest.MonkeyPatch], None]

LOST_SYNCS = (
    "sync pending.json",
    "sync manifest.json",
    "sync state.json",
    "sync selections.json",
    "sync lock",
    "sync claim",
    "sync job",
    "sync directory after rename of pending.json",
    "sync directory after rename of manifest.json",
    "sync directory after rename of state.json",
    "sync directory after unlink of pending.json",
    "sync directory after unlink of claim",
    "sync directory after unlink of state.json",
    "sync directory after rename of job",
)


def test_the_right_protocol_survives_every_power_cut(memory_root: Path) -> None:
    folder = memory_root / "right"
    folder.mkdir()
    judged, violation = first_violation(play_life(folder))
    assert violation is None
    count("modelled durable states, right protocol", judged)
    assert judged > 100


@pytest.mark.parametrize("lost", LOST_SYNCS)
def test_a_lost_sync_is_killed_by_a_power_cut(lost: str, memory_root: Path) -> None:
    folder = memory_root / lost.replace(" ", "-")
    folder.mkdir()
    judged, violation = first_violation(play_life(folder, lost))
    count("modelled durable states, mutants", judged)
    assert violation is not None, f"nothing noticed that {lost!r} is missing"
    count("mutants killed")


# -- order: patched while the life is played, judged with the right recovery


def without_intent(patch: pytest.MonkeyPatch) -> None:
    replace = Files.replace

    def mutant(files: Files, path: str, data: bytes, **options: Any) -> None:
        if not path.endswith("pending.json"):
            replace(files, path, data, **options)

    patch.setattr(Files, "replace", mutant)


def state_before_manifest(patch: pytest.MonkeyPatch) -> None:
    replace = Files.replace
    held: list[tuple[str, bytes, dict[str, Any]]] = []

    def mutant(files: Files, path: str, data: bytes, **options: Any) -> None:
        if path.endswith("manifest.json"):
            held.append((path, data, options))
            return
        replace(files, path, data, **options)
        if path.endswith("state.json") and held:
            late, content, kept = held.pop()
            replace(files, late, content, **kept)

    patch.setattr(Files, "replace", mutant)


def intent_removed_before_state(patch: pytest.MonkeyPatch) -> None:
    replace, remove = Files.replace, Files.remove

    def mutant(files: Files, path: str, data: bytes, **options: Any) -> None:
        pending = os.path.join(os.path.dirname(path), "pending.json")
        if path.endswith("state.json") and os.path.exists(pending):
            remove(files, pending)
        replace(files, path, data, **options)

    patch.setattr(Files, "replace", mutant)


def claim_before_launching(patch: pytest.MonkeyPatch) -> None:
    claim, set_entry = Batch.claim, Coordinator._set_entry

    def mutant(coordinator: Coordinator, entry: Entry) -> None:
        if entry.phase == "launching":
            batch = coordinator._batch
            claim(batch, rules.new_claim(entry.permit, batch.control.directory, batch.now()))
        set_entry(coordinator, entry)

    patch.setattr(Coordinator, "_set_entry", mutant)
    patch.setattr(Batch, "claim", lambda batch, claim: None)


def no_claim(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batch, "claim", lambda batch, claim: None)


def launching_not_durable(patch: pytest.MonkeyPatch) -> None:
    set_entry = Coordinator._set_entry

    def mutant(coordinator: Coordinator, entry: Entry) -> None:
        if entry.phase == "launching":
            batch = coordinator._batch
            batch.state = rules.with_entry(batch.state, entry)
        else:
            set_entry(coordinator, entry)

    patch.setattr(Coordinator, "_set_entry", mutant)


@pytest.mark.parametrize(
    "mutate",
    [
        without_intent,
        state_before_manifest,
        intent_removed_before_state,
        claim_before_launching,
        no_claim,
        launching_not_durable,
    ],
    ids=lambda one: one.__name__,
)
def test_a_wrong_order_is_killed_by_a_power_cut(mutate: Mutate, memory_root: Path) -> None:
    folder = memory_root / mutate.__name__
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        life = play_life(folder)
    judged, violation = first_violation(life)
    count("modelled durable states, mutants", judged)
    assert violation is not None
    count("mutants killed")


# -- checks, flags and hashes: each killed by the promise that it keeps


def manifest_not_read_again(patch: pytest.MonkeyPatch) -> None:
    read = Batch.manifest_bytes
    first: dict[int, bytes] = {}
    patch.setattr(Batch, "manifest_bytes", lambda batch: first.setdefault(id(batch), read(batch)))


def ownership_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batch, "check_ownership", lambda batch: None)


def lock_replaced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lock, "acquire", lambda files, path, owner: files.replace(path, documents.encode(owner)))


def claim_replaced(patch: pytest.MonkeyPatch) -> None:
    def mutant(batch: Batch, claim: Any) -> None:
        batch.files.replace(batch.manifest.claim(claim.reservation_id), documents.seal(claim))

    patch.setattr(Batch, "claim", mutant)


def intent_always_dropped(patch: pytest.MonkeyPatch) -> None:
    def mutant(batch: Batch) -> Any:
        state = batch.read_state()
        batch.files.remove(batch.control.pending)
        return state

    patch.setattr(opening, "settle", mutant)


def any_manifest_recognized(patch: pytest.MonkeyPatch) -> None:
    def mutant(batch: Batch) -> Any:
        found = commit.read_sealed(batch.control.pending, Pending, commit.MAX_STATE_BYTES)
        assert found is not None
        batch.read_state()
        batch.files.remove(batch.control.pending)
        return found[0].state

    patch.setattr(opening, "settle", mutant)


def nothing_poisons(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commit.Poisoning, "__exit__", lambda *_: None)


def sync_tried_again(patch: pytest.MonkeyPatch) -> None:
    sync = FaultyOperations.sync

    def mutant(operations: FaultyOperations, descriptor: int) -> None:
        try:
            sync(operations, descriptor)
        except OSError:
            sync(operations, descriptor)

    patch.setattr(FaultyOperations, "sync", mutant)


def token_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lock, "release", lambda files, path, token: files.remove(path))


def seal_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commit, "unseal", lambda data, **_: {k: v for k, v in decode(data).items() if k != "sha256"})


def claims_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opening, "read_claims", lambda manifest: {})


def age_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opening, "_refuse_older", lambda batch, state, claims: None)


def stop_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "refuse_stopped", lambda state: None)


def row_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "judge_row", lambda entry, ledger: None)


def keys_not_unique(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(documents._decoder, "object_pairs_hook", dict)
    patch.setattr(documents._decoder, "scan_once", py_make_scanner(documents._decoder))


def cleanup_stop_left_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Coordinator, "_record_stop", lambda coordinator, stop, failure=None: None)


def owner_not_set_to_null(patch: pytest.MonkeyPatch) -> None:
    replace = Batch.replace_state
    patch.setattr(Batch, "replace_state", lambda batch, state: state.owner and replace(batch, state))


def temporary_not_exclusive(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Operations, "create", lambda self, path: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))


def liveness_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(inspection, "liveness", lambda identity: "dead")


def every_repeat_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "is_repeat", lambda entry, *_: entry.phase == "completed")


def lanes_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "open_lanes", lambda state, ledger: (0, 0))


MUTANTS: tuple[tuple[Mutate, Promise], ...] = (
    (manifest_not_read_again, promises.an_edit_during_a_commit_is_not_overwritten),
    (ownership_not_checked, promises.without_the_lock_nothing_is_written),
    (lock_replaced, promises.an_owned_manifest_is_not_opened),
    (claim_replaced, promises.a_launch_begun_meanwhile_is_not_begun_again),
    (intent_always_dropped, promises.a_change_that_happened_is_finished),
    (any_manifest_recognized, promises.an_unknown_manifest_is_for_a_person),
    (nothing_poisons, promises.a_failed_commit_poisons),
    (sync_tried_again, promises.a_failed_sync_is_not_tried_again),
    (token_not_compared, promises.a_lock_with_another_token_stays),
    (seal_not_checked, promises.an_edited_state_is_noticed),
    (claims_not_read, promises.a_lost_state_is_no_fresh_start),
    (age_not_checked, promises.an_older_control_directory_is_refused),
    (stop_not_asked, promises.after_a_stop_nothing_is_launched),
    (row_not_compared, promises.an_edited_row_is_refused),
    (keys_not_unique, promises.a_key_given_twice_is_refused),
    (cleanup_stop_left_out, promises.a_failed_cleanup_stops_before_its_commit),
    (owner_not_set_to_null, promises.a_closed_batch_opens_without_a_stop),
    (temporary_not_exclusive, promises.a_planted_link_is_not_followed),
    (liveness_not_asked, promises.a_living_owner_is_not_recovered),
    (every_repeat_accepted, promises.another_completion_is_a_conflict),
    (lanes_not_counted, promises.a_third_lane_is_refused),
)


@pytest.mark.parametrize(("mutate", "promise"), MUTANTS, ids=lambda one: one.__name__)
def test_a_missing_check_breaks_its_promise(mutate: Mutate, promise: Promise, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.mkdir()
    wrong.mkdir()
    asyncio.run(promise(right))  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        with pytest.raises((AssertionError, CoordinatorError, pytest.fail.Exception)):
            asyncio.run(promise(wrong))  # type: ignore[arg-type]
    count("mutants killed")
