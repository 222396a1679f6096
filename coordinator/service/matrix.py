"""What a request asks for, row by row, and what each row costs. Pure."""

from __future__ import annotations

from typing import NoReturn

import msgspec

from coordinator.client import AnsweredNoError
from coordinator.errors import InvalidInputError
from coordinator.service.ledger import check_amount
from coordinator.service.wire import (
    CONTROLLERS,
    MAX_REPETITIONS,
    MODULES,
    RUN_LENGTHS,
    BreakdownRow,
    EstimateRequest,
    cents,
)

MAX_RUNS = 10_000
MAX_NAME_CHARACTERS = 200


class RunPrice(msgspec.Struct, frozen=True, kw_only=True):
    """What one run costs, in millionths of a dollar: a quote has all three."""

    low: int = 0
    likely: int = 0
    worst: int = 0

    def __post_init__(self) -> None:
        for name in ("low", "likely", "worst"):
            check_amount(getattr(self, name), f"price ({name})")
        if not self.low <= self.likely <= self.worst:
            raise InvalidInputError(f"price: low {self.low}, likely {self.likely}, worst {self.worst} are not in order")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One run to be registered. A simulation has neither persona nor controller."""

    module: str
    persona: str | None = None
    controller: str | None = None
    repetition: int | None = None


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """`cap` bounds what one job holds (millionths of a dollar); None: no bound."""

    run: RunPrice = RunPrice()
    long_run: RunPrice | None = None
    simulation: RunPrice = RunPrice()
    cap: int | None = None

    def __post_init__(self) -> None:
        if self.cap is not None:
            check_amount(self.cap, "cap")

    def of(self, row: Row, run_length: str) -> RunPrice:
        if row.module == "balance_sim":
            return self.simulation
        return self.long_run if run_length == "long" and self.long_run is not None else self.run

    def totals(self, rows: list[Row], run_length: str) -> RunPrice:
        """Of all rows, each bounded by the cap: `worst` is what is held."""
        found = [self.of(row, run_length) for row in rows]
        low, likely, worst = (sum(getattr(price, name) for price in found) for name in ("low", "likely", "worst"))
        bound = worst if self.cap is None else min(worst, self.cap)
        return RunPrice(low=min(low, bound), likely=min(likely, bound), worst=bound)

    def parts(self, rows: list[Row], run_length: str) -> list[int]:
        """Each row's fixed part of the hold, in proportion to its price; together they are the hold exactly.

        What does not divide goes to the first rows, one millionth each.
        """
        worst = [self.of(row, run_length).worst for row in rows]
        hold, total = self.totals(rows, run_length).worst, sum(worst)
        if total == 0:
            return [0] * len(rows)
        parts = [hold * one // total for one in worst]
        left = hold - sum(parts)
        for position, one in enumerate(worst):
            if left == 0:
                break
            if one:
                parts[position] += 1
                left -= 1
        return parts

    def breakdown(self, rows: list[Row], run_length: str) -> list[BreakdownRow]:
        return [
            BreakdownRow(unit=unit, count=len(found), unit_cents=cents(self.of(found[0], run_length).worst))
            for unit, found in (
                ("persona_run", [row for row in rows if row.module == "persona_playtest"]),
                ("playtest_run", [row for row in rows if row.module == "balance_sim"]),
            )
            if found
        ]


def rows_of(request: EstimateRequest, personas: tuple[str, ...] = ()) -> list[Row]:
    """The runs of a request, in order: persona, then controller, then repetition; a simulation batch last.

    `personas` are the known ones; empty: any. Raises `AnsweredNoError` with `invalid_estimate`.
    """
    _check_plan(request, personas)
    repetitions = 1 if request.repetitions is None else request.repetitions
    rows: list[Row] = []
    if "persona_playtest" in request.modules:
        rows.extend(
            Row(module="persona_playtest", persona=persona, controller=controller, repetition=repetition)
            for persona in request.personas
            for controller in request.controllers or ["standard"]
            for repetition in range(1, repetitions + 1)
        )
    if "balance_sim" in request.modules:
        rows.append(Row(module="balance_sim"))
    if not 1 <= len(rows) <= MAX_RUNS:
        _refuse(f"{len(rows)} runs are asked for; 1 to {MAX_RUNS} can be")
    return rows


def _check_plan(request: EstimateRequest, personas: tuple[str, ...]) -> None:
    named = [("modules", request.modules), ("personas", request.personas), ("controllers", request.controllers or [])]
    for what, names in named:
        if len(names) != len(set(names)):
            _refuse(f"{what} {names!r} repeat one")
        if any(not 1 <= len(name) <= MAX_NAME_CHARACTERS for name in names):
            _refuse(f"{what}: a name has 1 to {MAX_NAME_CHARACTERS} characters")
    _check_known("module", request.modules, MODULES)
    _check_known("persona", request.personas, personas or tuple(request.personas))
    _check_known("controller", request.controllers or [], CONTROLLERS)
    _check_known("run_length", [request.run_length], RUN_LENGTHS)
    if request.controllers == []:
        _refuse("controllers is empty; leave it out for the standard one")
    if request.repetitions is not None and not 1 <= request.repetitions <= MAX_REPETITIONS:
        _refuse(f"repetitions {request.repetitions} is not between 1 and {MAX_REPETITIONS}")


def _check_known(what: str, given: list[str], known: tuple[str, ...]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        _refuse(f"{what} {', '.join(unknown)} is not known; known are {', '.join(known)}")


def _refuse(message: str) -> NoReturn:
    raise AnsweredNoError(400, "invalid_estimate", message)
