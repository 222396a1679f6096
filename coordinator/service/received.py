"""What a service makes of what it is sent: strict JSON, whole numbers in range, or a refusal that changes nothing."""

from __future__ import annotations

import os
from typing import Any, NoReturn, TypeVar

import msgspec

from coordinator.client import AnsweredNoError, NotSentError
from coordinator.documents import DocumentError, decode, given
from coordinator.errors import CoordinatorError
from coordinator.files import Files
from coordinator.service.wire import FINAL_RUN_STATES, MAX_CENTS, JobRequest, RunResult

MAX_BODY_BYTES = 4 << 20
MAX_KEY_CHARACTERS = 200
MAX_COUNT = 10**9

T = TypeVar("T")


def refuse(status: int, code: str, message: str) -> NoReturn:
    """Answer no."""
    raise AnsweredNoError(status, code, message)


def read_body(body: bytes, record: type[T]) -> T:
    """Strictly: a body with a key twice, or a number that is none, could be read in two ways."""
    try:
        return msgspec.convert(decode(body, limit_bytes=MAX_BODY_BYTES), record)
    except (DocumentError, msgspec.ValidationError) as error:
        refuse(400, "invalid_request", f"the body cannot be used: {error}")


def check_json(value: Any) -> Any:
    """A value of this process as plain JSON data."""
    try:
        return given(value)
    except DocumentError as error:
        refuse(400, "invalid_request", f"the body {error}")


def check_key(key: str) -> str:
    """An idempotency key."""
    if not 1 <= len(key) <= MAX_KEY_CHARACTERS or not (key.isascii() and key.isprintable()) or key != key.strip():
        refuse(400, "invalid_request", f"an idempotency key has 1 to {MAX_KEY_CHARACTERS} printable ASCII characters")
    return key


def check_name(name: str) -> str:
    """An upload's name; it is booked, never used as a path."""
    if not 1 <= len(name) <= MAX_KEY_CHARACTERS or not name.isprintable():
        refuse(400, "invalid_request", f"a file's name has 1 to {MAX_KEY_CHARACTERS} printable characters")
    return name


def check_count(count: int, what: str) -> int:
    """A whole number from 0 to a thousand million."""
    if type(count) is not int or not 0 <= count <= MAX_COUNT:
        refuse(400, "invalid_request", f"{what} {count!r} is not a whole number between 0 and {MAX_COUNT}")
    return count


def check_job_request(request: JobRequest) -> JobRequest:
    """A registration's price."""
    if not 0 <= request.confirm_price_cents <= MAX_CENTS:
        refuse(400, "invalid_request", f"confirm_price_cents is not between 0 and {MAX_CENTS}")
    return request


def check_result(result: RunResult) -> Any:
    """A result as plain JSON data, if its state and numbers are what they must be."""
    if result.state not in FINAL_RUN_STATES:
        refuse(400, "invalid_request", f"the state {result.state!r} is not final")
    check_count(result.actions_taken, "actions_taken")
    if result.duration is not None and not 0 <= result.duration <= MAX_COUNT:
        refuse(400, "invalid_request", f"duration {result.duration!r} is not a number of seconds")
    return check_json(result)


def keep_file(store: str, data: bytes, digest: str) -> None:
    """Keep an upload under its checksum in a private directory; nothing happens if it is there."""
    files = Files()
    try:
        files.make_directory(store)
        files.create(os.path.join(store, digest), data)
    except FileExistsError:
        return
    except CoordinatorError as error:
        raise NotSentError(f"the upload cannot be kept: {error}") from error
