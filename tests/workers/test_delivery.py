"""Signing and verifying, the decision of a run's end, and the way into the inbox."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.workers.runs import KEY, Run, make_job
from workers.contract import (
    MAX_DELIVERY_BYTES,
    Artefact,
    Completion,
    Delivery,
    DeliveryRefusedError,
    PlayResult,
    Usage,
    sign_delivery,
    verify_delivery,
)
from workers.delivery import MAX_ARTEFACTS, Account, decide_end, deliver, measure_all, read_result

SHA = "ab" * 32


def make_delivery(**changes: Any) -> Delivery:
    delivery = Delivery(
        version=1,
        batch_id="b1",
        reservation_id="r1",
        scenario_id="s1",
        execution_id="e1",
        ordinal=1,
        job_sha256=SHA,
        completion=Completion(
            outcome="passed",
            finished_at="2026-01-01T00:00:00.000Z",
            definition_digest="d1",
            grader_digest="g1",
            evidence_paths=["control/runs/r1/report.json"],
            usage=Usage(cost_usd=0.25, tokens=10),
            observed_failure='ünï\u2028 "quoted"',
        ),
        end_reason="goal_reached",
        artefacts=[Artefact(path="control/runs/r1/report.json", bytes=2, sha256="0" * 64)],
    )
    return msgspec.structs.replace(delivery, **changes)


def test_signed_delivery_comes_back_equal(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    delivery = make_delivery()
    raw = sign_delivery(delivery, KEY)
    found = verify_delivery(raw, KEY, job=job, job_sha256=SHA)
    assert msgspec.to_builtins(found) == msgspec.to_builtins(delivery)
    assert raw.endswith(b"}\n")
    assert json.loads(raw)["body"]["jobSha256"] == SHA
    assert sign_delivery(found, KEY) == raw


def test_every_single_byte_edit_of_a_delivery_is_noticed(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    raw = sign_delivery(make_delivery(), KEY)
    for position in range(len(raw)):
        for edited in (
            raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :],
            raw[:position] + raw[position + 1 :],
            raw[:position] + b" " + raw[position:],
        ):
            with pytest.raises(DeliveryRefusedError):
                verify_delivery(edited, KEY, job=job, job_sha256=SHA)
    for length in range(len(raw)):
        with pytest.raises(DeliveryRefusedError):
            verify_delivery(raw[:length], KEY, job=job, job_sha256=SHA)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2}, {"batch_id": "b2"}, {"reservation_id": "r2"}, {"scenario_id": "s2"}, {"execution_id": "e2"},
        {"ordinal": 2}, {"job_sha256": "cd" * 32}, {"artefacts": []},
        {"artefacts": [Artefact(path="control/runs/r1/report.json", bytes=2, sha256="0" * 64)] * 2},
        {"completion": msgspec.structs.replace(make_delivery().completion, definition_digest="d2")},
        {"completion": msgspec.structs.replace(make_delivery().completion, grader_digest="g2")},
    ],
)  # fmt: skip
def test_each_single_wrong_field_is_refused_though_signed(tmp_path: Path, changes: dict[str, Any]) -> None:
    raw = sign_delivery(make_delivery(**changes), KEY)
    with pytest.raises(DeliveryRefusedError):
        verify_delivery(raw, KEY, job=make_job(tmp_path), job_sha256=SHA)


def test_another_key_is_refused(tmp_path: Path) -> None:
    raw = sign_delivery(make_delivery(), "00" * 32)
    with pytest.raises(DeliveryRefusedError, match="not signed with this reservation's key"):
        verify_delivery(raw, KEY, job=make_job(tmp_path), job_sha256=SHA)


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"null", b"[]", b"{}", b'{"body": {}, "hmac": ""}', b'{"body": NaN, "hmac": "0"}', b"[" * 100_000,
        b'{"a":' * 100_000, b'{"body": {"n": ' + b"9" * 5000 + b'}, "hmac": "0"}',
        b'{"body": {"a": "\\ud800"}, "hmac": ""}',
        b'{"body": {}, "body": {}, "hmac": ""}', b"\xff\xfe", b"\x00" * 4096, b" " * (MAX_DELIVERY_BYTES + 1),
    ],
)  # fmt: skip
def test_what_is_no_delivery_at_all_is_refused(tmp_path: Path, raw: bytes) -> None:
    with pytest.raises(DeliveryRefusedError):
        verify_delivery(raw, KEY, job=make_job(tmp_path), job_sha256=SHA)


def test_delivery_over_the_limit_is_not_signed() -> None:
    completion = msgspec.structs.replace(make_delivery().completion, observed_failure="x" * MAX_DELIVERY_BYTES)
    with pytest.raises(DeliveryRefusedError, match="more than"):
        sign_delivery(make_delivery(completion=completion), KEY)


def test_delivery_is_in_the_inbox_under_its_final_name_only_and_private(tmp_path: Path) -> None:
    run = Run(tmp_path)
    path = deliver(make_delivery(), run.job)
    assert [found.name for found in (run.control / "inbox").iterdir()] == [path.name]
    assert path.name.startswith("r1.")
    assert path.suffix == ".json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert verify_delivery(path.read_bytes(), KEY, job=run.job, job_sha256=SHA) == verify_delivery(
        sign_delivery(make_delivery(), KEY), KEY, job=run.job, job_sha256=SHA
    )


def result(**changes: Any) -> PlayResult:
    return msgspec.structs.replace(
        PlayResult(
            end_reason="goal_reached", outcome="passed", partial=False, actions_taken=1, artefacts=[], usage=Usage()
        ),
        **changes,
    )


def account(**changes: Any) -> Account:
    return msgspec.structs.replace(
        Account(result=None, reason=None, why="", exit_words="exit code 0", log_tail="", cleanup_left=[], notes=[]),
        **changes,
    )


@pytest.mark.parametrize(
    ("given", "end", "outcome"),
    [
        (account(result=result()), "goal_reached", "passed"),
        (account(result=result(end_reason="budget", outcome="budget_exceeded")), "budget", "budget_exceeded"),
        (account(), "harness_fault", "failed"),
        (account(reason="wall_clock", why="late"), "wall_clock", "failed"),
        (account(reason="interrupted"), "interrupted", "interrupted"),
        (account(reason="canceled"), "canceled", "canceled"),
        (account(reason="harness_fault"), "harness_fault", "failed"),
        (account(reason="interrupted", result=result()), "goal_reached", "passed"),
        (account(reason="interrupted", result=result(end_reason="canceled", outcome="canceled")), "canceled",
         "canceled"),
        (account(reason="wall_clock", result=result(end_reason="wall_clock")), "wall_clock", "passed"),
        (account(reason="wall_clock", result=result(end_reason="interrupted", outcome="interrupted")), "wall_clock",
         "failed"),
        (account(reason="harness_fault", result=result(end_reason="interrupted", outcome="interrupted")),
         "harness_fault", "failed"),
    ],
)  # fmt: skip
def test_end_of_a_run_follows_the_player_and_the_limit_that_struck(given: Account, end: str, outcome: str) -> None:
    assert decide_end(given)[:2] == (end, outcome)


def test_observed_failure_is_bounded_and_none_for_a_clean_run() -> None:
    assert decide_end(account(result=result()))[2] is None
    text = decide_end(account(log_tail="x" * 100_000))[2]
    assert text is not None
    assert len(text) == 2_000


def test_long_lists_of_artefacts_are_bound_by_a_file_of_their_own(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.folder.mkdir(mode=0o700)
    names = [f"shot-{number}" for number in range(MAX_ARTEFACTS + 5)]
    for name in names:
        (run.folder / name).write_text(name)
    artefacts, notes = measure_all(run.job, names)
    assert notes == []
    assert len(artefacts) == MAX_ARTEFACTS + 1
    listing = json.loads((run.folder / "artefacts.json").read_text())
    assert len(listing) == len(names)
    assert artefacts[0].path.endswith("artefacts.json")
    assert artefacts[0].sha256 == hashlib.sha256((run.folder / "artefacts.json").read_bytes()).hexdigest()


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize(
    "plant",
    [
        lambda path: path.write_text("{}"),
        lambda path: path.write_bytes(b"[" * 100_000),
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: os.mkfifo(path),
        lambda path: path.mkdir(),
        _sparse,
    ],
)
def test_result_file_that_is_none_is_read_as_none(tmp_path: Path, plant: Callable[[Path], object]) -> None:
    plant(tmp_path / "result.json")
    assert read_result(tmp_path) is None
