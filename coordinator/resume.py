"""Finds the purchase that is meant, looks at what a dead coordinator left of it, and mends that as a person would.

Mending is what `recover` and `recover --end` do: take a provably dead owner's lock, adopt verified deliveries, close
rows that nobody will complete. It never launches.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from coordinator.errors import CoordinatorError, RefusedError
from coordinator.inspection import RecoveryReport, inspect_recovery
from coordinator.journal import Journal, JournalError, list_journals, read_journal
from coordinator.lanes import find_delivery
from coordinator.recovery import recover


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What lies on disk of the newest batch. `report` is None where no batch ever began."""

    report: RecoveryReport | None

    @property
    def has_dead_lock(self) -> bool:
        return self.report is not None and self.report.owner_liveness != "none"

    @property
    def needs_mending(self) -> bool:
        return self.has_dead_lock or (
            self.report is not None and bool(self.report.workers or self.report.reserved or self.report.pending)
        )


def find_journal(project: Path, name: str) -> str:
    """The path of the journal that a key, the beginning of one (8 characters at least), a job's id or a path names.

    Raises `JournalError` for none, for several, and for a damaged one that the name can only mean.
    """
    if name.endswith("journal.json") and os.path.lexists(name):
        return os.path.abspath(name)
    journals = list_journals(str(project))
    found = []
    for path, journal in journals:
        key = os.path.basename(os.path.dirname(path))
        by_key = key == name or (len(name) >= 8 and key.startswith(name))
        if by_key or (isinstance(journal, Journal) and journal.job_id == name):
            found.append((path, journal))
    if len(found) > 1:
        raise JournalError(f"{name} means {len(found)} purchases; say more of the key")
    if not found:
        damaged = [path for path, journal in journals if isinstance(journal, JournalError)]
        also = f"; these cannot be read: {', '.join(damaged)}" if damaged else ""
        raise JournalError(f"there is no purchase {name!r} in {project}{also}; coordinate resume lists them")
    path, journal = found[0]
    if isinstance(journal, JournalError):
        raise journal
    return path


def open_journal_of(project: Path, manifest_path: Path) -> str | None:
    """The journal of the purchase that a campaign is played in, if it is registered and not settled."""
    wanted = os.path.realpath(manifest_path)
    for path, journal in list_journals(str(project)):
        is_open = isinstance(journal, Journal) and journal.state in ("registering", "registered")
        if is_open and isinstance(journal, Journal) and os.path.realpath(journal.manifest_path) == wanted:
            return path
    return None


def judge_journal(path: str, *, service: str | None, game: str | None) -> Journal:
    """The journal, if this command may go on with it. Raises `JournalError` and `RefusedError`.

    `service` and `game` are what was named on the command line; trailing slashes do not matter.
    """
    journal = read_journal(path)
    if journal.kind != "campaign":
        raise RefusedError(f"{path} is of a {journal.kind}; go on with it with: coordinate simulate --resume {path}")
    if service is not None and service.rstrip("/") != journal.service.rstrip("/"):
        raise RefusedError(f"{path} was bought at {journal.service}, not at {service}; a purchase stays where it is")
    if game is not None and game != journal.game:
        raise RefusedError(f"{path} is of the game {journal.game!r}, not of {game!r}")
    return journal


def look_at(journal: Journal) -> Found:
    """Raises `RefusedError` while the owner of the batch or one of its workers lives."""
    manifest = Path(journal.manifest_path)
    if not manifest.is_file():
        raise RefusedError(f"{manifest} is gone; put the campaign's folder back")
    report = _inspect(journal, manifest)
    if report is None:
        return Found(report=None)
    if report.owner_liveness == "alive":
        raise RefusedError(f"a coordinator plays this campaign ({report.lock}); wait for it, or: coordinate stop")
    living = [f"{one.reservation_id} (pid {one.pid})" for one in report.workers if one.liveness == "alive"]
    if living:
        raise RefusedError(
            f"workers of this purchase live: {', '.join(living)}; they finish within their limits and deliver, then"
            " the same command goes on"
        )
    return Found(report=report)


def _inspect(journal: Journal, manifest: Path) -> RecoveryReport | None:
    owned = os.path.lexists(f"{os.path.realpath(manifest)}.coordinator-lock")
    control = journal.batches[-1].control_directory if journal.batches else None
    if not owned and (control is None or not os.path.lexists(os.path.join(control, "state.json"))):
        return None
    return inspect_recovery(manifest, None if owned else control)


async def mend(journal: Journal, found: Found, *, take_lock: bool, worker_is_dead: Sequence[str] = ()) -> list[str]:
    """Recover the batch and close every row that is left open; scenario ids of rows whose end nobody saw.

    `take_lock`: a person has said that the lock's owner is dead. Raises `RefusedError` while somebody may live.
    """
    report = found.report
    if report is None or not found.needs_mending:
        return []
    if found.has_dead_lock and not take_lock:
        raise RefusedError(
            f"the campaign's lock is left over ({report.lock}); if you know that this owner is dead, say"
            f" --owner-is-dead {report.token}"
        )
    control = report.control_directory
    done = await recover(
        journal.manifest_path,
        owner_is_dead=report.token if found.has_dead_lock else None,
        control_directory=control,
        worker_is_dead=worker_is_dead,
        find_delivery=find_delivery,
    )
    if done.problems:
        raise CoordinatorError(f"recovery met what it does not understand: {'; '.join(done.problems)}")
    left = inspect_recovery(journal.manifest_path, control) if os.path.lexists(f"{control}/state.json") else None
    rows = [*(one.reservation_id for one in left.workers), *left.reserved] if left is not None else []
    if not rows:
        return []
    # Whether their workers may be alive was judged by the first recovery, with the person's word where it was needed.
    ended = await recover(
        journal.manifest_path, control_directory=control, worker_is_dead=[*worker_is_dead, *rows], end=rows
    )
    if ended.problems:
        raise CoordinatorError(f"rows could not be closed: {'; '.join(ended.problems)}")
    assert left is not None
    return [one.scenario_id for one in left.workers]
