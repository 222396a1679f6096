"""The end of a run: artefacts measured, the completion decided, one signed file put into the inbox."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from pathlib import Path

import msgspec

from workers.contract import (
    DELIVERY_VERSION,
    Artefact,
    Completion,
    DeliveredStop,
    Delivery,
    EndReason,
    Job,
    PlayResult,
    Usage,
    sign_delivery,
)
from workers.folders import sync_directory, write_new

MAX_FAILURE_CHARACTERS = 2_000
MAX_ARTEFACTS = 1_000
MAX_RESULT_BYTES = 4 << 20
ARTEFACT_LIST_NAME = "artefacts.json"
RESULT_NAME = "result.json"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor knows at the end of a run. `reason` is why it stopped the player, None if it did not."""

    result: PlayResult | None
    reason: EndReason | None
    why: str
    exit_words: str
    log_tail: str
    cleanup_left: list[str]
    notes: list[str]


def read_result(run_directory: Path) -> PlayResult | None:
    """The player's `result.json`, or None if there is none, or none that has the form."""
    path = run_directory / RESULT_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_RESULT_BYTES:
            return None
        raw = b""
        while chunk := os.read(descriptor, MAX_RESULT_BYTES + 1 - len(raw)):
            raw += chunk
        return msgspec.json.decode(raw, type=PlayResult)
    except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None
    finally:
        os.close(descriptor)


def decide_end(account: Account) -> tuple[EndReason, str, str | None]:
    """End reason, outcome, observed failure: the player's own account where it has one, else what was seen of it.

    A limit that struck wins over a player that calls its stop `interrupted`. Without a result the outcome of
    `interrupted` and `canceled` is their name, every other one is `failed`.
    """
    result, reason = account.result, account.reason
    sentences: list[str] = []
    if result is not None:
        end, outcome = result.end_reason, result.outcome
        if result.observed_failure:
            sentences.append(result.observed_failure)
        if reason in ("wall_clock", "harness_fault") and end in ("interrupted", "canceled", "wall_clock"):
            end = reason
            outcome = "failed" if reason == "harness_fault" or outcome != "passed" else outcome
            sentences.append(account.why)
    elif reason is not None:
        end, outcome = reason, reason if reason in ("interrupted", "canceled") else "failed"
        sentences += [account.why, f"the player left no result ({account.exit_words})"]
    else:
        end, outcome = "harness_fault", "failed"
        sentences.append(f"the player left no result ({account.exit_words})")
    if result is None and account.log_tail.strip():
        sentences.append(f"its last output: {account.log_tail.strip()}")
    if account.cleanup_left:
        sentences.append(f"left after the run: {', '.join(account.cleanup_left)}")
    sentences += account.notes
    text = "; ".join(sentence for sentence in sentences if sentence)
    return end, outcome, text[:MAX_FAILURE_CHARACTERS] or None


def measure(path: Path, *, root: Path) -> Artefact | None:
    """Size and SHA-256 of a regular file with one link, from one descriptor; None for anything else.

    The file is reached from the evidence root without following a link. Raises nothing of the file's own.
    """
    parts = path.relative_to(root).parts
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            os.close(directory)
            directory = inner
        descriptor = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except (OSError, ValueError):
        return None
    finally:
        os.close(directory)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
            return None
        digest = hashlib.file_digest(file, "sha256")
        return Artefact(path="/".join(parts), bytes=file.tell(), sha256=digest.hexdigest())


def measure_all(job: Job, paths: list[str]) -> tuple[list[Artefact], list[str]]:
    """The artefacts among `paths` (relative to the run's folder), and a note for each that is none.

    Beyond `MAX_ARTEFACTS` the whole list goes into a file of its own, which stands first and binds all others.
    """
    run, root = Path(job.run_directory), Path(job.evidence_root)
    artefacts: list[Artefact] = []
    notes: list[str] = []
    for name in dict.fromkeys(paths):
        if name.startswith("/") or ".." in Path(name).parts or "\0" in name or not name:
            notes.append(f"artefact {name[:100]!r} is not a path inside the run's folder")
            continue
        artefact = measure(run / name, root=root)
        if artefact is None:
            notes.append(f"artefact {name[:100]!r} is missing or no regular file with one link")
        else:
            artefacts.append(artefact)
    if len(artefacts) > MAX_ARTEFACTS:
        listing = run / ARTEFACT_LIST_NAME
        listing.unlink(missing_ok=True)
        write_new(listing, msgspec.json.format(msgspec.json.encode(artefacts), indent=2) + b"\n")
        first = measure(listing, root=root)
        artefacts = ([first] if first else []) + artefacts[:MAX_ARTEFACTS]
    return artefacts, notes


def make_delivery(
    job: Job,
    job_sha256: str,
    *,
    end: tuple[EndReason, str, str | None],
    artefacts: list[Artefact],
    usage: Usage | None,
    cleanup: str,
    stop: DeliveredStop | None,
    finished_at: str,
) -> Delivery:
    """Put the parts together; `usage` None is an unknown count, never zero."""
    end_reason, outcome, observed_failure = end
    return Delivery(
        version=DELIVERY_VERSION,
        batch_id=job.batch_id,
        reservation_id=job.reservation_id,
        scenario_id=job.scenario_id,
        execution_id=job.execution_id,
        ordinal=job.ordinal,
        job_sha256=job_sha256,
        completion=Completion(
            outcome=outcome,
            finished_at=finished_at,
            definition_digest=job.definition_digest,
            grader_digest=job.grader_digest,
            evidence_paths=[artefact.path for artefact in artefacts],
            cleanup=cleanup,
            usage=usage or Usage(cost_usd=None, tokens=None, coverage="unknown"),
            classification=None if outcome == "passed" else end_reason,
            observed_failure=observed_failure,
        ),
        end_reason=end_reason,
        artefacts=artefacts,
        stop=stop,
    )


def deliver(delivery: Delivery, job: Job) -> Path:
    """Sign and put into the inbox: temporary name, sync, rename, sync of the directory. Raises OSError."""
    raw = sign_delivery(delivery, job.key)
    inbox = Path(job.inbox_directory)
    name = f"{job.reservation_id}.{secrets.token_hex(8)}"
    temporary, final = inbox / f"{name}.tmp", inbox / f"{name}.json"
    write_new(temporary, raw)
    os.rename(temporary, final)
    sync_directory(inbox)
    return final
