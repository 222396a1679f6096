"""The inbox believes one delivery of a reservation and moves all else away, with the reason; nothing blocks it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator.inbox import (
    JUNK_PER_LISTING,
    Inbox,
    InboxName,
    WorkerVanishedError,
    check_artefact,
    read_name,
    reading_order,
)
from tests.workers.runs import KEY, Run
from workers.contract import MAX_DELIVERY_BYTES, Artefact, Completion, Delivery, DeliveryRefusedError, sign_delivery

LIMIT_SECONDS = 30


class Leaving:
    """A worker, as far as waiting for it goes: the test says when it has ended."""

    def __init__(self, run_directory: str = "/nonexistent") -> None:
        self.run_directory = run_directory
        self.exited = asyncio.Event()
        self.exit_code: int | None = None

    def leave(self, exit_code: int = 0) -> None:
        self.exit_code = exit_code
        self.exited.set()


class Box:
    """An inbox with one launched job whose report exists, and ways to put things into it."""

    def __init__(self, root: Path) -> None:
        self.run = Run(root)
        self.run.folder.mkdir(mode=0o700)
        self.report = self.run.folder / "report.json"
        self.report.write_text("{}")
        self.directory = self.run.control / "inbox"
        self.rejected = self.run.control / "rejected"
        self.inbox = Inbox(self.run.control, root)

    def delivery(self, **changes: Any) -> Delivery:
        path = "control/runs/r1/report.json"
        job = self.run.job
        delivery = Delivery(
            version=1,
            batch_id=job.batch_id,
            reservation_id=job.reservation_id,
            scenario_id=job.scenario_id,
            execution_id=job.execution_id,
            ordinal=job.ordinal,
            job_sha256=self.run.sha256,
            completion=Completion(
                outcome="passed",
                finished_at="2026-01-01T00:00:00.000Z",
                definition_digest=job.definition_digest,
                grader_digest=job.grader_digest,
                evidence_paths=[path],
            ),
            end_reason="goal_reached",
            artefacts=[Artefact(path=path, bytes=2, sha256=hashlib.sha256(b"{}").hexdigest())],
        )
        return msgspec.structs.replace(delivery, **changes)

    def put(self, data: bytes | None = None, name: str = "r1.00000001.json", **changes: Any) -> Path:
        path = self.directory / name
        temporary = self.run.control / "putting"
        temporary.write_bytes(sign_delivery(self.delivery(**changes), KEY) if data is None else data)
        temporary.rename(path)
        return path

    def reasons(self) -> dict[str, str]:
        found = {}
        for path in self.rejected.glob("*.reason.json"):
            told = json.loads(path.read_text())
            found[told["name"]] = told["reason"]
        return found


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path)
    yield box
    box.inbox.close()


def test_delivery_that_verifies_is_believed_and_stays(box: Box) -> None:
    path = box.put()
    box.inbox.collect()
    found = box.inbox.delivery_of("r1")
    assert found is not None
    assert found.completion.outcome == "passed"
    assert path.exists()
    assert list(box.rejected.iterdir()) == []


def test_first_one_stands_an_equal_one_is_ignored_another_is_rejected(box: Box) -> None:
    box.put()
    box.inbox.collect()
    box.put(name="r1.00000002.json")
    box.put(name="r1.00000000.json", end_reason="stuck")
    box.inbox.collect()
    found = box.inbox.delivery_of("r1")
    assert found is not None
    assert found.end_reason == "goal_reached"
    assert sorted(os.listdir(box.directory)) == ["r1.00000001.json", "r1.00000002.json"]
    assert box.reasons() == {"r1.00000000.json": "another delivery of this reservation came first"}


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_id": "b2"}, {"reservation_id": "r2"}, {"scenario_id": "s2"}, {"execution_id": "e2"}, {"ordinal": 2},
        {"job_sha256": "0" * 64}, {"version": 2},
    ],
)  # fmt: skip
def test_each_single_wrong_field_is_rejected(box: Box, changes: dict[str, Any]) -> None:
    box.put(**changes)
    box.inbox.collect()
    assert box.inbox.delivery_of("r1") is None
    assert os.listdir(box.directory) == []
    assert (box.rejected / "r1.00000001.json").is_file()
    assert next(iter(changes)) in box.reasons()["r1.00000001.json"]


def test_another_key_is_rejected(box: Box) -> None:
    box.put(sign_delivery(box.delivery(), "00" * 32))
    box.inbox.collect()
    assert "not signed with this reservation's key" in box.reasons()["r1.00000001.json"]


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_half_written_delivery_is_rejected(box: Box, cut: int) -> None:
    raw = sign_delivery(box.delivery(), KEY)
    box.put(raw[:cut])
    box.inbox.collect()
    assert box.inbox.delivery_of("r1") is None
    assert list(box.reasons()) == ["r1.00000001.json"]


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link_to_a_delivery(path: Path) -> None:
    real = path.parents[1] / "real"
    real.write_bytes(b"{}")
    path.symlink_to(real)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def _large(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(100):
            file.write(b'{"a": 1}' * (1 << 17))


def _socket(path: Path) -> None:
    # The name of a socket is short; it is made elsewhere and moved.
    previous = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("s")
        os.rename("s", path.name)
    finally:
        os.chdir(previous)


@pytest.mark.parametrize(
    "plant",
    [
        _fifo, _link_to_a_delivery, _sparse, _large, _socket,
        lambda path: path.mkdir(),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.write_bytes(b"[" * 900_000),
        lambda path: path.write_bytes(b'{"body": {}, "body": {}, "hmac": ""}'),
    ],
)  # fmt: skip
def test_what_is_no_plain_small_file_is_moved_away_and_never_blocks(box: Box, plant: Callable[[Path], object]) -> None:
    name = "r1.00000000.json"
    plant(box.directory / name)
    before = os.lstat(box.directory / name)
    box.put()
    box.inbox.collect()
    assert box.inbox.delivery_of("r1") is not None
    assert os.listdir(box.directory) == ["r1.00000001.json"]
    moved = os.lstat(box.rejected / name)
    assert (moved.st_ino, stat.S_IFMT(moved.st_mode)) == (before.st_ino, stat.S_IFMT(before.st_mode))
    assert name in box.reasons()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device or give a file away")
def test_device_and_foreign_file_are_rejected(box: Box) -> None:
    os.mknod(box.directory / "r1.0000000a.json", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    foreign = box.put(name="r1.0000000b.json")
    os.chown(foreign, 12345, -1)
    box.inbox.collect()
    assert box.inbox.delivery_of("r1") is None
    assert "regular" in box.reasons()["r1.0000000a.json"]
    assert "belongs to user 12345" in box.reasons()["r1.0000000b.json"]


def test_delivery_with_a_second_hard_link_is_rejected(box: Box) -> None:
    os.link(box.put(), box.run.control / "second")
    box.inbox.collect()
    assert "one link" in box.reasons()["r1.00000001.json"]


def test_strange_names_are_moved_away_under_names_that_can_be_kept(box: Box) -> None:
    names = [
        b"\xff\xfe.json",
        b"x" * 255,
        b"new\nline",
        b".hidden",
        b"r1.json",
        b"r1.00000001.json.bak",
        b"r1.zzzzzzzz.json",
    ]
    for name in names:
        Path(os.fsdecode(os.fsencode(box.directory) + b"/" + name)).write_bytes(b"x")
    box.inbox.collect()
    assert os.listdir(box.directory) == []
    kept = [name for name in os.listdir(os.fsencode(box.rejected)) if not name.endswith(b".reason.json")]
    assert len(kept) == len(names)
    assert len(box.reasons()) == len(names)


def test_rejected_files_of_the_same_name_are_all_kept(box: Box) -> None:
    for content in (b"one", b"two", b"three"):
        box.put(content)
        box.inbox.collect()
    kept = [path.read_bytes() for path in box.rejected.iterdir() if not path.name.endswith(".reason.json")]
    assert sorted(kept) == [b"one", b"three", b"two"]
    assert len(list(box.rejected.glob("*.reason.json"))) == 3


def test_hundred_thousand_junk_names_do_not_starve_the_right_delivery(tmp_path: Path) -> None:
    # Where there is a file system in memory, making so many names does not cost the disk's time.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=memory) as root:
        box = Box(Path(root))
        for number in range(100_000):
            os.close(os.open(box.directory / f"junk-{number}", os.O_CREAT | os.O_WRONLY, 0o600))
        box.put()

        async def wait() -> Delivery:
            return await asyncio.wait_for(box.inbox.wait_for("r1", Leaving()), LIMIT_SECONDS)

        assert asyncio.run(wait()).end_reason == "goal_reached"
        box.inbox.close()
        # One listing judged it, beside a bounded share of the junk.
        assert len(os.listdir(box.directory)) == 100_001 - JUNK_PER_LISTING


def test_foreign_reservation_without_a_job_is_rejected(box: Box) -> None:
    box.put(name="r9.00000001.json")
    box.inbox.collect()
    assert "no job of this control directory" in box.reasons()["r9.00000001.json"]


def test_late_delivery_of_an_ended_reservation_is_rejected(box: Box, tmp_path: Path) -> None:
    inbox = Inbox(box.run.control, tmp_path, ended=lambda reservation_id: reservation_id == "r1")
    box.put()
    inbox.collect()
    assert inbox.delivery_of("r1") is None
    assert box.reasons() == {"r1.00000001.json": "its reservation has ended"}


def test_delivery_that_nobody_waits_for_is_kept_for_who_will(box: Box, tmp_path: Path) -> None:
    """As after the death of a coordinator: a later one takes it up."""
    box.put()
    box.inbox.collect()
    later = Inbox(box.run.control, tmp_path)
    later.collect()
    assert later.delivery_of("r1") is not None


def test_job_file_that_is_not_the_launched_one_is_noticed(box: Box) -> None:
    box.put()
    box.inbox.expect("r1", "0" * 64)
    box.inbox.collect()
    assert "not the one that was launched" in box.reasons()["r1.00000001.json"]


def test_temporary_file_of_a_living_worker_is_left_alone_and_of_an_ended_one_rejected(box: Box) -> None:
    temporary = box.directory / "r1.00000001.tmp"
    temporary.write_bytes(b"half")
    box.inbox.collect()
    assert temporary.exists()
    gone = Leaving()

    async def wait() -> None:
        gone.leave(9)
        await box.inbox.wait_for("r1", gone)

    with pytest.raises(WorkerVanishedError):
        asyncio.run(wait())
    assert not temporary.exists()
    assert "half-written" in box.reasons()["r1.00000001.tmp"]


def _second_link(path: Path) -> None:
    os.link(path, path.with_name("second"))


def _replaced_by_a_link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def _folder_is_a_link(path: Path) -> None:
    folder = path.parent
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


def _replaced_by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "spoil",
    [
        _second_link, _replaced_by_a_link, _folder_is_a_link, _replaced_by_a_pipe,
        lambda path: path.unlink(),
        lambda path: path.write_text("[]"),
        lambda path: path.write_text("{} "),
        lambda path: os.truncate(path, 1 << 40),
    ],
)  # fmt: skip
def test_artefact_that_is_not_exactly_there_rejects_the_delivery(box: Box, spoil: Callable[[Path], object]) -> None:
    spoil(box.report)
    box.put()
    box.inbox.collect()
    assert box.inbox.delivery_of("r1") is None
    assert "artefact 'control/runs/r1/report.json'" in box.reasons()["r1.00000001.json"]


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../outside", "control/../../outside", "", "a//b", "./a", "a\0b", "x" * 300]
)
def test_artefact_path_that_leaves_the_evidence_root_is_refused(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").write_text("{}")
    with pytest.raises(DeliveryRefusedError):
        check_artefact(str(root), Artefact(path=path, bytes=2, sha256=hashlib.sha256(b"{}").hexdigest()))


def test_inbox_that_is_a_link_is_not_read(box: Box) -> None:
    box.put()
    box.directory.rename(box.run.control / "real")
    box.directory.symlink_to("real")
    box.inbox.collect()
    assert box.inbox.delivery_of("r1") is None


def test_exit_without_a_delivery_is_an_error_with_exit_code_reason_and_last_words(box: Box) -> None:
    (box.run.folder / "supervisor.log").write_text("worker: out of luck\n")
    worker = Leaving(str(box.run.folder))
    box.put(b"nonsense")

    async def wait() -> None:
        waiting = asyncio.create_task(box.inbox.wait_for("r1", worker))
        asyncio.get_running_loop().call_later(0.05, worker.leave, -9)
        await asyncio.wait_for(waiting, LIMIT_SECONDS)

    with pytest.raises(WorkerVanishedError) as caught:
        asyncio.run(wait())
    assert caught.value.exit_code == -9
    for part in ("signal 9", "out of luck", "not JSON"):
        assert part in str(caught.value)


def test_delivery_just_before_the_exit_is_found_by_the_listing_after_it(box: Box) -> None:
    worker = Leaving()
    box.put()
    worker.leave(0)

    async def wait() -> Delivery:
        return await box.inbox.wait_for("r1", worker)

    assert asyncio.run(wait()).reservation_id == "r1"


def test_names_are_read_exactly() -> None:
    assert read_name(b"r1.0123abcd.json") == InboxName(reservation_id="r1", complete=True)
    assert read_name(b"r1.0123abcd.tmp") == InboxName(reservation_id="r1", complete=False)
    for name in (b"r1.json", b"r1.0123abcd.json\n", b"../r1.0123abcd.json", b".0123abcd.json", b"r1.0123ABCD.json"):
        assert read_name(name) is None


def test_what_is_awaited_is_judged_before_everything_else() -> None:
    names = [f"junk{number}".encode() for number in range(1000)]
    names += [f"other.{number:08x}.json".encode() for number in range(1000)]
    order = reading_order([*names, b"mine.00000001.json"], {"mine"})
    assert order[0] == b"mine.00000001.json"
    assert len(order) == 1 + 2 * JUNK_PER_LISTING
    assert MAX_DELIVERY_BYTES == 1 << 20
