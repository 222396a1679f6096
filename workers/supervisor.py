"""One run, supervised: begun once, played by a child, held to its limits, cleaned up, scanned, delivered.

The supervisor leads its own session and adopts every orphan below it. It outlives the coordinator that started it:
nothing that it needs comes from there after the secrets were read.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from workers.contract import Begun, DeliveredStop, Job, PlayResult
from workers.delivery import Account, decide_end, deliver, make_delivery, measure_all, read_result
from workers.descendants import become_subreaper, hide_memory, read_process
from workers.environment import HOME_NAME, TEMPORARY_NAME
from workers.folders import create_exclusively, make_private_directory, regular_files, remove_tree, write_new
from workers.jobs import key_name_of
from workers.player_process import LOG_NAME, PROGRESS_NAME, PlayerProcess, StopSignals
from workers.redaction import Scanner

BEGUN_NAME = "begun"
SUPERVISION_NAME = "supervision.json"


class AlreadyBegunError(Exception):
    """`begun` exists: this run was begun before, here or by another worker; nothing was run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} exists: this run was begun before; it is never begun twice")


class Supervision(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`runs/ID/supervision.json`: what the supervisor saw, for people and as evidence."""

    stopped_for: str | None
    why: str
    player_ended: str
    output_bytes: int
    processes_killed: list[str]
    processes_left: list[str]
    folders_left: list[str]
    redacted: dict[str, list[str]]


def utc_now() -> str:
    """The UTC time as ISO 8601 with milliseconds and `Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def supervise(job: Job, job_sha256: str, *, player: Sequence[str], secrets: Mapping[str, str]) -> Path:
    """Run a verified job with `player` as the command of its player; give the delivered file's path.

    The player's first line of standard input is the job without its key; each later one is `{"stop": reason}`; the
    end of input means that the supervisor is dead. Raises `AlreadyBegunError`, and OSError where not even a
    delivery of the failure could be written.
    """
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    become_subreaper()
    hide_memory()
    run = Path(job.run_directory)
    make_private_directory(run)
    with StopSignals() as signals:
        _begin(run)
        scanner = Scanner({**secrets, "the reservation's key": job.key})
        process = PlayerProcess(job, player, signals, model_key=secrets.get(key_name_of(job) or ""))
        fault = ""
        try:
            process.play()
        except Exception as error:  # noqa: BLE001 - the job boundary: whatever happened, the run is cleaned up and delivered
            fault = f"the supervisor met {type(error).__name__}: {error}"
        return _finish(job, job_sha256, process, scanner, fault)


def _begin(run: Path) -> None:
    own = read_process(os.getpid())
    begun = Begun(
        pid=os.getpid(),
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        process_start=own.start if own else "",
        host=socket.gethostname(),
        at=utc_now(),
    )
    try:
        create_exclusively(run / BEGUN_NAME, msgspec.json.format(msgspec.json.encode(begun), indent=2) + b"\n")
    except FileExistsError as error:
        raise AlreadyBegunError(run / BEGUN_NAME) from error


def _finish(job: Job, job_sha256: str, process: PlayerProcess, scanner: Scanner, fault: str) -> Path:
    run = process.run
    folders_left = [line for name in (HOME_NAME, TEMPORARY_NAME) for line in remove_tree(run / name)]
    result = read_result(run)
    left = [*process.survivors, *folders_left]
    redacted, notes = _redact(run, scanner)
    if fault:
        notes.insert(0, fault)
    if result is not None and result.leftovers:
        notes.append(f"the game left, and the driver removed: {', '.join(result.leftovers[:20])}")
    if process.killed:
        notes.append(f"processes ended by the supervisor: {', '.join(process.killed[:20])}")
    supervision = Supervision(
        stopped_for=process.ladder.reason,
        why=process.ladder.why,
        player_ended=process.exit_words,
        output_bytes=process.log.seen_bytes if process.log else 0,
        processes_killed=process.killed[:200],
        processes_left=process.survivors[:200],
        folders_left=folders_left[:200],
        redacted=redacted,
    )
    try:
        write_new(run / SUPERVISION_NAME, msgspec.json.format(msgspec.json.encode(supervision), indent=2) + b"\n")
    except OSError as error:
        notes.append(f"{SUPERVISION_NAME} could not be written: {error.strerror}")
    account = Account(
        result=result,
        reason=process.ladder.reason,
        why=process.ladder.why,
        exit_words=process.exit_words,
        log_tail=process.log.last_text(800) if process.log else "",
        cleanup_left=left,
        notes=notes,
    )
    return _deliver(job, job_sha256, account, scanner, redacted)


def _deliver(job: Job, job_sha256: str, account: Account, scanner: Scanner, redacted: dict[str, list[str]]) -> Path:
    named = account.result.artefacts if account.result else []
    artefacts, missing = measure_all(job, [*named, *_own_files(account.result, job)])
    account.notes.extend(missing)
    reason, outcome, failure = decide_end(account)
    stop = None
    if redacted:
        names = ", ".join(f"{name} ({', '.join(kinds)})" for name, kinds in list(redacted.items())[:10])
        stop = DeliveredStop(reason="secret_leak", detail=f"{len(redacted)} files held a secret, taken out: {names}")
    delivery = make_delivery(
        job,
        job_sha256,
        end=(reason, outcome, scanner.redact_text(failure) if failure else None),
        artefacts=artefacts,
        usage=account.result.usage if account.result else None,
        cleanup="failed" if account.cleanup_left else "passed",
        stop=stop,
        finished_at=utc_now(),
    )
    return deliver(delivery, job)


def _own_files(result: PlayResult | None, job: Job) -> list[str]:
    run = Path(job.run_directory)
    candidates = [SUPERVISION_NAME, LOG_NAME, PROGRESS_NAME]
    if result is None:
        # The player could not name its artefacts: what it left is evidence all the same.
        candidates += [str(path.relative_to(run)) for path in regular_files(run)[:200] if path.name != BEGUN_NAME]
    return [name for name in candidates if (run / name).is_file()]


def _redact(run: Path, scanner: Scanner) -> tuple[dict[str, list[str]], list[str]]:
    """Look through every file of the run; give name -> kinds of what was taken out, and notes."""
    redacted: dict[str, list[str]] = {}
    notes: list[str] = []
    for path in regular_files(run):
        name = str(path.relative_to(run))
        if path.name == BEGUN_NAME:
            continue
        shown = scanner.redact_text(name)
        if shown != name:
            # A name goes into deliveries and reports as well.
            path = path.rename(run / f"renamed-{len(redacted)}{path.suffix[:8]}")
            shown = path.name
            redacted.setdefault(shown, []).append("its name")
        try:
            hits = scanner.redact_file(path)
        except OSError as error:
            # A file that could not be looked through must not leave this machine as evidence.
            path.unlink(missing_ok=True)
            notes.append(f"{shown} could not be looked through for secrets and was removed: {error.strerror}")
            continue
        if hits:
            redacted.setdefault(shown, []).extend(sorted({hit.what for hit in hits}))
    return redacted, notes
