"""The purchase's journal: durable, sealed, locked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from coordinator.documents import encode
from coordinator.errors import StorageError
from coordinator.files import Files, Operations
from coordinator.identity import own_identity
from coordinator.journal import Journal, JournalError, JournalFile, list_journals, new_key, read_journal


def journal(**changes: object) -> Journal:
    found = Journal(
        version=1,
        kind="campaign",
        key="k1",
        game="local",
        service="embedded",
        state="registering",
        created_at="2030-01-01T00:00:00.000Z",
        request="{}",
        price_cents=20,
        limits={},
        options={},
        manifest_path="/none/manifest.json",
    )
    return msgspec.structs.replace(found, **changes)


def created(tmp_path: Path) -> tuple[JournalFile, Path]:
    folder = tmp_path / ".playlane" / "campaigns" / "k1"
    return JournalFile.create(str(folder), journal()), folder / "journal.json"


def test_a_journal_and_every_folder_made_for_it_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file, path = created(tmp_path)
    finally:
        os.umask(before)
    modes = {one.name: one.stat().st_mode & 0o777 for one in (path, *list(path.parents)[:3])}
    assert modes == {"journal.json": 0o600, "k1": 0o700, "campaigns": 0o700, ".playlane": 0o700}
    assert (path.with_name("journal.json.lock").stat().st_mode & 0o777) == 0o600
    file.close()


def test_what_was_changed_is_read_again(tmp_path: Path) -> None:
    file, path = created(tmp_path)
    changed = file.change(job_id="job_1", runs={"s": "r"}, state="registered")
    file.close()
    assert read_journal(str(path)) == changed == journal(job_id="job_1", runs={"s": "r"}, state="registered")
    assert list_journals(str(tmp_path)) == [(str(path), changed)]
    again = JournalFile.open(str(path))
    assert again.journal == changed
    again.close()


def test_every_edited_byte_of_a_journal_is_noticed(tmp_path: Path) -> None:
    file, path = created(tmp_path)
    file.close()
    whole = path.read_bytes()
    unnoticed = []
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        try:
            read_journal(str(path))
        except JournalError:
            continue
        unnoticed.append(position)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(JournalError):
            read_journal(str(path))
    assert unnoticed == []
    path.write_bytes(whole)
    assert read_journal(str(path)) == journal()


def test_a_damaged_journal_is_listed_with_what_is_wrong(tmp_path: Path) -> None:
    file, path = created(tmp_path)
    file.close()
    path.write_bytes(b"{}")
    found = list_journals(str(tmp_path))
    assert [one for one, _ in found] == [str(path)]
    assert isinstance(found[0][1], JournalError)
    assert list_journals(str(tmp_path / "other")) == []


def test_a_journal_is_created_once(tmp_path: Path) -> None:
    file, path = created(tmp_path)
    file.close()
    with pytest.raises(JournalError, match="coordinate resume k1"):
        created(tmp_path)
    JournalFile.open(str(path)).close()


def test_a_journal_in_use_is_refused_and_names_who_uses_it(tmp_path: Path) -> None:
    file, path = created(tmp_path)
    with pytest.raises(JournalError, match=rf"used by process {os.getpid()} .*alive.*journal\.json\.lock"):
        JournalFile.open(str(path))
    file.close()
    JournalFile.open(str(path)).close()


HOLDER = """
import sys
from coordinator.journal import JournalFile
file = JournalFile.open(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def test_a_living_process_keeps_its_journal_and_a_killed_one_loses_it(tmp_path: Path) -> None:
    file, path = created(tmp_path)
    file.close()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(JournalError, match=f"process {holder.pid}"):
            JournalFile.open(str(path))
        holder.kill()
    assert path.with_name("journal.json.lock").stat().st_size > 0, "what it wrote into the lock is still there"
    JournalFile.open(str(path)).close()


def test_a_lock_of_another_host_and_one_that_cannot_be_read_are_refused_by_path(tmp_path: Path) -> None:
    file, path = created(tmp_path)
    file.close()
    lock = path.with_name("journal.json.lock")
    lock.write_bytes(encode(msgspec.structs.replace(own_identity(), host="elsewhere", pid=1)))
    with pytest.raises(JournalError, match="elsewhere"):
        JournalFile.open(str(path))
    for garbage in (b"\x00", b"{}", b"x" * 100_000):
        lock.write_bytes(garbage)
        with pytest.raises(JournalError, match=r"journal\.json\.lock cannot be read"):
            JournalFile.open(str(path))
        assert lock.read_bytes() == garbage, "a refusal leaves the lock as it was"
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalError, match="cannot be opened"):
        JournalFile.open(str(path))
    assert not (tmp_path / "elsewhere").exists()


class Failing(Operations):
    """The disk is full when a file is to be replaced."""

    def rename(self, source: str, target: str) -> None:
        raise OSError(28, "No space left on device")


def test_a_change_that_fails_leaves_journal_and_memory_as_they_were(tmp_path: Path) -> None:
    file, path = created(tmp_path)
    file.close()
    failing = JournalFile.open(str(path), files=Files(Failing()))
    with pytest.raises(StorageError, match="No space left"):
        failing.change(state="registered")
    assert failing.journal.state == read_journal(str(path)).state == "registering"
    failing.close()


def test_a_journal_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    file, path = created(tmp_path)
    with pytest.raises(JournalError, match="more than the"):
        file.change(warnings=["x" * (8 << 20)])
    assert read_journal(str(path)) == journal()
    file.close()


def test_keys_do_not_repeat() -> None:
    assert len({new_key() for _ in range(1_000)}) == 1_000
