"""Files that leave this machine: which ones, under which checksum, sent once, queued while the network is away.

Only what the allow-list names goes up: reports, pictures and bookkeeping; video and transcript when they were asked
for. Never the game's source, how it is started, or its environment.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from coordinator.client import Service, ServiceError
from coordinator.documents import encode, sha256
from coordinator.errors import CoordinatorError, DamagedError
from coordinator.files import Files, read_bounded
from coordinator.journal import Journal
from coordinator.reports.sources import PICTURE_SUFFIXES, VIDEO_SUFFIXES, list_run_files
from coordinator.results import Standing

MAX_FILE_BYTES = 64 << 20
MAX_QUEUE_BYTES = 16 << 20
ALWAYS = ("report.md", "usage.json")


class Upload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One file. `path` is absolute; `name` is what the service books it under."""

    run_id: str
    name: str
    path: str
    bytes: int
    sha256: str
    sent: bool = False


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """`uploads.json` beside the journal."""

    version: int
    uploads: list[Upload]


def list_uploads(journal: Journal, standings: Sequence[Standing], *, video: bool, transcript: bool) -> list[Upload]:
    """What the allow-list names of every run that has its end, in the plan's order.

    A run's report goes up with its result, in the part of it that may; the file itself, which tells how the game was
    started, stays.
    """
    found = []
    for one in standings:
        run_id = journal.runs.get(one.scenario_id)
        if one.kind != "final" or run_id is None or not os.path.isdir(one.directory):
            continue
        for name in list_run_files(Path(one.directory)):
            if is_allowed(name, video=video, transcript=transcript):
                path = os.path.join(one.directory, name)
                data = read_bounded(path, MAX_FILE_BYTES)
                found.append(Upload(run_id=run_id, name=name, path=path, bytes=len(data), sha256=sha256(data)))
    return found


def is_allowed(name: str, *, video: bool, transcript: bool) -> bool:
    """Whether a file of a run's folder may go up. `name` is relative to it."""
    lower = name.lower()
    if lower.endswith(PICTURE_SUFFIXES):
        return True
    if lower.endswith(VIDEO_SUFFIXES):
        return video
    return name in ALWAYS or (transcript and name == "transcript.jsonl")


def queue_path(journal_path: str) -> str:
    return os.path.join(os.path.dirname(journal_path), "uploads.json")


def write_queue(journal_path: str, uploads: Sequence[Upload]) -> None:
    Files().replace(queue_path(journal_path), encode(Queue(version=1, uploads=list(uploads))))


def read_queue(journal_path: str) -> list[Upload]:
    """Raises `DamagedError` for a file that is no queue."""
    try:
        data = read_bounded(queue_path(journal_path), MAX_QUEUE_BYTES)
    except FileNotFoundError:
        return []
    try:
        return msgspec.json.decode(data, type=Queue).uploads
    except msgspec.DecodeError as error:
        raise DamagedError(f"{queue_path(journal_path)} is no queue of uploads: {error}") from error


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """`sent` counts files that went up now, `known` those that the service had, `waiting` a sentence for the rest."""

    sent: int
    known: int
    waiting: list[str]


async def drain(service: Service, job_id: str, journal_path: str) -> Drained:
    """Send what is queued, a file at a time; each is marked as soon as it was answered. Safe to repeat."""
    uploads = read_queue(journal_path)
    sent = known = 0
    waiting = []
    for position, one in enumerate(uploads):
        if one.sent:
            continue
        try:
            data = read_bounded(one.path, MAX_FILE_BYTES)
            if sha256(data) != one.sha256:
                waiting.append(f"{one.path}: it is not the file that was queued")
                continue
            is_new = await service.upload(job_id, one.run_id, one.name, data, one.sha256)
        except FileNotFoundError:
            waiting.append(f"{one.path}: it is gone")
            continue
        except (ServiceError, CoordinatorError) as error:
            waiting.append(f"{one.path}: {error}")
            continue
        sent, known = sent + is_new, known + (not is_new)
        uploads[position] = msgspec.structs.replace(one, sent=True)
        write_queue(journal_path, uploads)
    return Drained(sent=sent, known=known, waiting=waiting)
