"""`verify` over journal, ledger and batches: right purchases pass, each planted contradiction is found."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator.commit import MAX_STATE_BYTES, read_sealed
from coordinator.documents import encode, seal, sha256
from coordinator.journal import Batch
from coordinator.money import verify_purchases
from coordinator.records import Entry, Permit, Receipt, State
from tests.service.conftest import MakeStage
from tests.service.stage import body_of, played, run
from tests.service.test_journal import journal

SCENARIOS = ("newcomer-standard", "explorer-standard")


class Bought:
    """A finished purchase of two runs in a project: the first used 3 cents, the second was interrupted and skipped."""

    def __init__(self, root: Path, make_stage: MakeStage) -> None:
        self.root = root
        store = root / ".playlane"
        stage = make_stage(store)
        self.ledger_path = stage.path
        job = stage.register("key-1")
        result = played(30_000)
        stage.complete(job, 0, result)
        run(stage.service.finish(job.job_id))
        stage.close()
        self.job_id, self.runs = job.job_id, [one.run_id for one in job.runs]
        self.folder = store / "campaigns" / "key-1"
        self.control = self.folder / "batch-1"
        self.control.mkdir(parents=True, mode=0o700)
        self.journal = journal(
            key="key-1",
            state="finished",
            request=body_of().decode(),
            manifest_path=str(self.folder / "manifest.json"),
            batches=[Batch(batch_id="b1", control_directory=str(self.control))],
            job_id=self.job_id,
            runs=dict(zip(SCENARIOS, self.runs, strict=True)),
            results={self.runs[0]: {"state": "succeeded", "answered": "succeeded"}},
            job_state="succeeded",
            exit_code=0,
        )
        self.entries = {
            f"r{number}": entry(name, f"r{number}", cost)
            for number, (name, cost) in enumerate(zip(SCENARIOS, (0.03, 0), strict=True))
        }
        self.kept = self.folder / "results" / f"{sha256(self.runs[0].encode())[:32]}.json"
        self.kept.parent.mkdir()
        self.kept.write_bytes(encode(result))
        self.write()

    def write(self, **changes: Any) -> None:
        """The journal and the state, with changes of the journal."""
        self.journal = msgspec.structs.replace(self.journal, **changes)
        (self.folder / "journal.json").write_bytes(seal(self.journal))
        state = State(
            version=1, batch_id="b1", manifest_path=self.journal.manifest_path, owner=None, selections_sha256="0" * 64,
            entries=self.entries,
        )  # fmt: skip
        (self.control / "state.json").write_bytes(seal(state))

    def sql(self, *statements: str) -> None:
        connection = sqlite3.connect(self.ledger_path)
        with connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()

    def problems(self) -> list[str]:
        return [one.what for one in verify_purchases(self.root).problems]


def entry(name: str, reservation_id: str, cost: float, phase: str = "completed") -> Entry:
    return Entry(
        phase=phase,
        permit=Permit(
            reservation_id=reservation_id, batch_id="b1", scenario_id=name, execution_id="e", ordinal=1, args=[]
        ),
        reserved_attempt={},
        receipt=Receipt(reserved_sha256="0" * 64, completion={"usage": {"costUsd": cost}}),
    )


@pytest.fixture
def bought(tmp_path: Path, make_stage: MakeStage) -> Bought:
    return Bought(tmp_path, make_stage)


def contents(root: Path) -> dict[Path, bytes]:
    """Every file but those that SQLite itself lays beside a ledger that is being read."""
    files = [one for one in root.rglob("*") if one.is_file() and not one.name.startswith("ledger.sqlite-")]
    return {one: one.read_bytes() for one in files}


def test_a_right_purchase_has_no_problems_and_verifying_changes_no_file(bought: Bought) -> None:
    before = contents(bought.root)
    found = verify_purchases(bought.root)
    assert found.problems == []
    assert found.checked == {"postings": 5, "purchases": 1}
    assert contents(bought.root) == before
    assert read_sealed(str(bought.control / "state.json"), State, MAX_STATE_BYTES) is not None


def charge_again(bought: Bought) -> None:
    bought.sql(
        f"INSERT INTO posting (at, kind, job_id) VALUES ('now', 'hold', '{bought.job_id}')",
        "INSERT INTO entry SELECT MAX(id), 'balance', -200000 FROM posting",
        "INSERT INTO entry SELECT MAX(id), 'held', 200000 FROM posting",
    )


def charge_as_another_job(bought: Bought) -> None:
    bought.sql(
        "INSERT INTO job SELECT 'job_2', 'key-2', request_sha256, game, 0, 0, 'skipped', 0, created_at, NULL FROM job",
        "INSERT INTO run SELECT 'run_' || position, 'job_2', position, module, persona, controller, repetition,"
        " token_sha256, 'skipped', 0, 0, NULL, 0, beaten_at, stall_seconds, NULL, 0 FROM run",
    )


def keep_another_result(bought: Bought) -> None:
    bought.kept.write_bytes(encode(played(90_000)))


def launch_what_was_not_bought(bought: Bought) -> None:
    bought.entries["r9"] = entry("stranger", "r9", 0)
    bought.write()


def spend_without_a_launch(bought: Bought) -> None:
    del bought.entries["r0"]
    bought.write()


def use_more_than_was_booked(bought: Bought) -> None:
    bought.entries["r8"] = entry(SCENARIOS[0], "r8", 0.05)
    bought.write()


def lose_the_answer(bought: Bought) -> None:
    bought.write(results={})


def one_run_for_both(bought: Bought) -> None:
    bought.write(runs=dict.fromkeys(SCENARIOS, bought.runs[0]))


def change_the_request(bought: Bought) -> None:
    bought.write(request=body_of(cli_version="9").decode())


def agree_to_less(bought: Bought) -> None:
    bought.write(price_cents=19)


def forget_the_job(bought: Bought) -> None:
    bought.write(job_id=None, job_state="not registered: price_changed", runs={}, results={})


PLANTED: list[tuple[Callable[[Bought], object], str]] = [
    (lambda b: b.sql("UPDATE entry SET microdollars = microdollars + 1 WHERE rowid = 4"), "does not sum to zero"),
    (charge_again, "was charged 2 times"),
    (charge_as_another_job, "registered under a key that no journal has"),
    (lambda b: b.sql("DELETE FROM entry WHERE posting_id = (SELECT MAX(id) FROM posting)"), "has 0 entries, not 2"),
    (lambda b: b.sql("UPDATE run SET spent_microdollars = 40000 WHERE position = 0"), "the account says $0.03"),
    (lambda b: b.sql("UPDATE run SET part_microdollars = 1 WHERE position = 0"), "are not its part of $0.000001"),
    (lambda b: b.sql("UPDATE run SET used_microdollars = 999999 WHERE position = 0"), "more than its part"),
    (lambda b: b.sql("UPDATE job SET state = 'open'"), "is open, but the journal is finished"),
    (lambda b: b.sql("UPDATE job SET state = 'canceled'"), "was settled as canceled, the journal says succeeded"),
    (lambda b: b.sql("UPDATE run SET state = 'failed' WHERE position = 0"), "answered with succeeded"),
    (lambda b: b.sql("UPDATE run SET result_sha256 = NULL WHERE position = 0"), "has no result, but the journal's"),
    (lambda b: b.sql("UPDATE run SET persona = 'stranger' WHERE position = 0"), "not those that were asked for"),
    (lambda b: b.sql("UPDATE run SET state = 'playing' WHERE position = 1"), "is playing, but its job is succeeded"),
    (lambda b: b.sql("UPDATE job SET idempotency_key = 'other'"), "has the key other"),
    (lambda b: b.sql("UPDATE entry SET microdollars = 0.5 WHERE rowid = 1"), "no whole number"),
    (keep_another_result, "by another result than the one kept"),
    (launch_what_was_not_bought, "none of the runs that were bought"),
    (spend_without_a_launch, "was never launched"),
    (use_more_than_was_booked, "used $0.08, only $0.03 were booked"),
    (lose_the_answer, "that the journal does not know"),
    (one_run_for_both, "stands for 2 scenarios"),
    (change_the_request, "by another request than the journal's"),
    (agree_to_less, "agreed were 19 cents"),
    (forget_the_job, "says that nothing was bought"),
    (lambda b: b.write(job_id="job_none"), "the journal names job_none"),
    (lambda b: b.write(job_state=None), "does not say how the job was settled"),
    (lambda b: (b.folder / "journal.json").write_bytes(b"{}"), "the journal cannot be used"),
    (lambda b: b.ledger_path.unlink(), "but the project has no ledger"),
]


@pytest.mark.parametrize(("plant", "said"), PLANTED, ids=[said for _, said in PLANTED])
def test_a_planted_contradiction_is_found(bought: Bought, plant: Callable[[Bought], object], said: str) -> None:
    plant(bought)
    assert any(said in problem for problem in bought.problems()), bought.problems()


def test_a_lost_answer_to_the_registration_is_no_contradiction(bought: Bought) -> None:
    """The job is there, the journal waits for the answer: a resume sends the same bytes again."""
    bought.entries = {}
    bought.write(state="registering", job_id=None, runs={}, results={}, job_state=None, exit_code=None)
    assert bought.problems() == []


def test_a_late_result_that_stays_local_is_no_contradiction(bought: Bought) -> None:
    bought.write(
        results={
            **bought.journal.results,
            bought.runs[1]: {"state": "succeeded", "answered": "skipped", "late": True},
        }
    )
    assert bought.problems() == []


def test_a_remote_purchase_is_judged_without_the_projects_ledger(bought: Bought, tmp_path: Path) -> None:
    bought.ledger_path.unlink()
    bought.write(service="http://127.0.0.1:1")
    assert bought.problems() == []
    bought.entries["r9"] = entry("stranger", "r9", 0)
    bought.write()
    assert len(bought.problems()) == 1


def test_only_the_purchases_of_a_manifest_are_judged_when_it_is_named(bought: Bought) -> None:
    found = verify_purchases(bought.root, bought.root / "other.json")
    assert (found.problems, found.checked) == ([], {"postings": 5})
    named = verify_purchases(bought.root, bought.journal.manifest_path)
    assert named.checked["purchases"] == 1


def test_a_project_without_purchases_has_nothing_to_verify(tmp_path: Path) -> None:
    found = verify_purchases(tmp_path)
    assert (found.problems, found.checked, list(tmp_path.iterdir())) == ([], {}, [])
