"""Short spellings of what the coordinator's tests do over and over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from coordinator import Coordinator, CoordinatorError, Permit, State
from coordinator.files import Operations
from tests.coordinator.campaign import Campaign, attempt, completion

T = TypeVar("T")


class Unsynced(Operations):
    """Real files, without the waiting for the disk: syncs matter to power loss only, which tests/crash shows."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass


class QuickCampaign(Campaign):
    """A campaign for tests of rules."""

    def open(self, operations: Operations | None = None, **changes: Any) -> Coordinator:
        return super().open(operations or Unsynced(), **changes)

    def write(self, document: dict[str, Any]) -> None:
        fresh(self.path, json.dumps(document).encode())


def fresh(path: Path, data: bytes) -> None:
    """A new file with the old one's name and mode; some file systems flush one that is truncated and written."""
    mode = path.stat().st_mode & 0o777 if path.exists() else None
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    if mode is not None:
        path.chmod(mode)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """One event loop a call, with a limit: a test that hangs is a failure with a trace."""

    async def limited() -> T:
        return await asyncio.wait_for(coroutine, 30)

    return asyncio.run(limited())


def refused(phrase: str, kind: type[BaseException] = CoordinatorError) -> Any:
    return pytest.raises(kind, match=re.escape(phrase))


async def answers(permit: Permit) -> str:
    """A launcher that works."""
    return f"launched {permit.scenario_id}"


def returns(value: T) -> Callable[[Permit], Coroutine[Any, Any, T]]:
    async def launcher(_: Permit) -> T:
        return value

    return launcher


def raises(error: BaseException) -> Callable[[Permit], Coroutine[Any, Any, None]]:
    async def launcher(_: Permit) -> None:
        raise error

    return launcher


async def launched(c: Coordinator, name: str) -> Permit:
    permit = await c.reserve(name)
    await c.launch_once(permit, answers)
    return permit


async def completed(c: Coordinator, name: str, **changes: Any) -> Permit:
    permit = await launched(c, name)
    await c.complete(permit, completion(name, **changes))  # type: ignore[arg-type]
    return permit


async def finish(c: Coordinator, permit: Permit, **changes: Any) -> None:
    await c.complete(permit, completion(permit.scenario_id, **changes))  # type: ignore[arg-type]


def snapshot(c: Coordinator) -> State:
    return run(c.snapshot())


def phases(state: State) -> dict[str, str]:
    return {entry.permit.scenario_id: entry.phase for entry in state.entries.values()}


@contextlib.contextmanager
def untouched(*paths: Path) -> Iterator[None]:
    """The files' bytes and identity are the same after as before."""
    before = [(path.read_bytes(), path.stat().st_ino) for path in paths]
    yield
    for path, (data, inode) in zip(paths, before, strict=True):
        assert path.read_bytes() == data, path
        assert path.stat().st_ino == inode, path


@contextlib.contextmanager
def nothing_written(campaign: Campaign) -> Iterator[None]:
    """No file of the campaign is new, gone or different (`events.jsonl` aside)."""
    before = tree(campaign.folder)
    yield
    assert tree(campaign.folder) == before


@contextlib.contextmanager
def edited(path: Path, position: int, byte: int) -> Iterator[None]:
    """One byte of the file is another; put back afterwards. In place, so that thousands of edits are quick."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        before = os.pread(descriptor, 1, position)
        os.pwrite(descriptor, bytes([byte]), position)
        yield
        os.pwrite(descriptor, before, position)
    finally:
        os.close(descriptor)


def tree(folder: Path) -> dict[str, object]:
    """Every name below a folder with its kind, mode and content."""
    found: dict[str, object] = {}
    for place, directories, files in os.walk(folder):
        for name in [*directories, *files]:
            path = Path(place, name)
            if name == "events.jsonl":
                continue
            mode = path.lstat().st_mode
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
            found[str(path.relative_to(folder))] = (mode, content)
    return found


def state_of(campaign: Campaign) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((campaign.control / "state.json").read_text())
    return found


def abandon(campaign: Campaign) -> None:
    """What a person's recovery does to the lock of a dead owner, and nothing else."""
    campaign.lock.unlink()


def select(campaign: Campaign, **changes: Any) -> None:
    campaign.selections[0] = {"scenarioId": "a", "attempt": attempt("a", **changes)}


def change_scenario(campaign: Campaign, **changes: Any) -> None:
    document = campaign.read()
    document["scenarios"][0].update(changes)
    campaign.write(document)
