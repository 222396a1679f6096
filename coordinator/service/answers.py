"""What a client believes of a service's answers. Malformed is not a no: what was asked may have happened.

An amount that is missing, fractional, negative, huge or not a number must never be acted on, whoever sent it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from coordinator.client import UnknownOutcomeError, UnusableAnswerError
from coordinator.service.wire import MAX_CENTS, MAX_REPETITIONS, Estimate, Job, Pack, RunState

MAX_ID_CHARACTERS = 200
MAX_UNITS = 10**6
_AMOUNTS = ("estimate_cents", "balance_cents", "low", "likely", "worst")

T = TypeVar("T")


def read_answer(document: dict[str, Any], record: type[T], what: str) -> T:
    """An answer's form. Raises `UnknownOutcomeError`."""
    try:
        return msgspec.convert(document, record)
    except msgspec.ValidationError as error:
        raise UnknownOutcomeError(f"{what}: the answer is not a {record.__name__}: {error}") from error


def inner(document: dict[str, Any], key: str) -> dict[str, Any]:
    """`{"job": {...}}` and `{"run": {...}}`, or the object itself, as servers of different age answer."""
    found = document.get(key)
    return {**document, **found} if isinstance(found, dict) else document


def read_pack(document: dict[str, Any], what: str) -> Pack:
    """What a service offers. Some tell of repetitions only whether there can be any."""
    routing = document.get("routing")
    if isinstance(routing, dict) and isinstance(routing.get("repetitions"), bool):
        most = MAX_REPETITIONS if routing["repetitions"] else 1
        document = {**document, "routing": {**routing, "repetitions": most}}
    return read_answer(document, Pack, what)


def read_estimate(document: dict[str, Any], what: str) -> Estimate:
    """A remote service's quote, which is never free. Raises `UnusableAnswerError`: asking has bought nothing."""
    try:
        found = msgspec.convert(document, Estimate)
    except msgspec.ValidationError as error:
        raise UnusableAnswerError(f"{what}: the quote cannot be used: {error}") from error
    for name in _AMOUNTS:
        amount = getattr(found, name)
        if amount is not None:
            _check_amount(amount, name, what)
    for row in found.breakdown:
        _check_amount(row.unit_cents, f"unit_cents of {row.unit!r}", what)
        _check_units(row.count, f"count of {row.unit!r}", what)
    _check_units(found.persona_run_count, "persona_run_count", what)
    if found.ok and found.estimate_cents == 0:
        raise UnusableAnswerError(f"{what}: a quote of 0 is only ever accepted from the embedded service")
    return found


def read_job(document: dict[str, Any], what: str) -> Job:
    """A registered job. Raises `UnusableAnswerError` for an answer that nothing may be launched by."""
    found = read_answer(inner(document, "job"), Job, what)
    _check_amount(found.price.price_cents, "price_cents", what)
    ids = [run.run_id for run in found.runs]
    for one in (found.job_id, *ids):
        _check_id(one, what)
    if len(set(ids)) != len(ids):
        raise UnusableAnswerError(f"{what}: the answer names a run twice")
    return found


def read_run(document: dict[str, Any], run_id: str, what: str) -> RunState:
    """A run's state. Raises `UnknownOutcomeError` for an answer about another run."""
    found = read_answer(inner(document, "run"), RunState, what)
    if found.run_id != run_id:
        raise UnknownOutcomeError(f"{what}: the answer is about run {found.run_id[:MAX_ID_CHARACTERS]!r}")
    return found


def _check_amount(amount: int, name: str, what: str) -> None:
    if not 0 <= amount <= MAX_CENTS:
        raise UnusableAnswerError(f"{what}: {name} is {amount}, not between 0 and {MAX_CENTS} cents")


def _check_units(count: int, name: str, what: str) -> None:
    if not 0 <= count <= MAX_UNITS:
        raise UnusableAnswerError(f"{what}: {name} is {count}, not between 0 and {MAX_UNITS}")


def _check_id(one: str, what: str) -> None:
    """An id goes into paths and onto terminals."""
    if not 1 <= len(one) <= MAX_ID_CHARACTERS or not (one.isascii() and one.isprintable()) or one in (".", ".."):
        raise UnusableAnswerError(f"{what}: {one[:MAX_ID_CHARACTERS]!r} is not usable as an id")
