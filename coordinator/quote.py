"""What is asked of a service, and whether its quote and its answer may be acted upon. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from coordinator.errors import CoordinatorError, RefusedError
from coordinator.service.wire import Build, Estimate, EstimateRequest, Job, JobRequest, Pack, RunLength

SIMULATION_MODE = "direct_command_batch"
RUN_UNITS = ("persona_run", "persona_playtest")
"""What services call a playthrough in a breakdown; other units are not runs."""
Pair = tuple[str, str]


class QuoteError(RefusedError):
    """A quote that must not be accepted; `faults` are all of them."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = list(faults)
        super().__init__("the quote cannot be accepted: " + "; ".join(faults))


class PriceError(RefusedError):
    """The price is above what was allowed, or above the balance."""


class PlanMismatchError(CoordinatorError):
    """The registered runs are not the plan's: nothing is launched, the job is kept for reconciliation."""

    def __init__(self, job_id: str, missing: Sequence[Pair], surplus: Sequence[Pair]) -> None:
        self.job_id = job_id
        said = [
            f"{what} {', '.join(' / '.join(pair) for pair in pairs[:5])}"
            + (f" and {len(pairs) - 5} more" if len(pairs) > 5 else "")
            for what, pairs in (("missing are", missing), ("not planned are", surplus))
            if pairs
        ]
        super().__init__(f"the runs of job {job_id} are not the plan's: {'; '.join(said)}; nothing was launched")


# -- what is asked ---------------------------------------------------------------------------------------------------


def pairs_of(scenarios: Sequence[dict[str, Any]]) -> list[Pair]:
    """Persona and controller of each playthrough, in the plan's order."""
    return [(one["playtest"]["persona"], one["playtest"]["controller"]) for one in scenarios]


def make_request(
    scenarios: Sequence[dict[str, Any]], *, run_length: RunLength, controllers_chosen: bool
) -> EstimateRequest:
    """The plan in the service's words.

    `controllers` goes along only when they were chosen: a service that knows none plays the standard one. A service
    knows no targets: several of them are repetitions to it. Raises `RefusedError` for a plan that is no full matrix.
    """
    pairs = pairs_of(scenarios)
    personas = list(dict.fromkeys(persona for persona, _ in pairs))
    controllers = list(dict.fromkeys(controller for _, controller in pairs))
    times = set(Counter(pairs).values())
    if len(times) != 1 or len(set(pairs)) != len(personas) * len(controllers):
        raise RefusedError("this plan cannot be priced: personas x controllers x repetitions is not a full matrix")
    repetitions = times.pop()
    drivers = sorted({one["playtest"]["driver"] for one in scenarios})
    return EstimateRequest(
        modules=["persona_playtest"],
        personas=personas,
        run_length=run_length,
        controllers=controllers if controllers_chosen else None,
        repetitions=repetitions if repetitions > 1 else None,
        driver=drivers[0] if len(drivers) == 1 else None,
    )


def make_registration(request: EstimateRequest, *, price_cents: int, version: str, build: Build) -> bytes:
    """The exact bytes that are sent, and sent again."""
    fields = msgspec.structs.asdict(request)
    return msgspec.json.encode(
        JobRequest(**fields, confirm_price_cents=price_cents, cli_version=version, build=build), order="deterministic"
    )


# -- what may be accepted --------------------------------------------------------------------------------------------


def judge_pack(pack: Pack, request: EstimateRequest) -> list[str]:
    """Why this service cannot play the plan: a sentence each. A pack that does not tell a limit sets none."""
    routing, faults = pack.routing, []
    runs = count_runs(request)
    if routing.max_personas is not None and runs > routing.max_personas:
        faults.append(f"{runs} runs are asked for; this service plays at most {routing.max_personas} at once")
    known = [one["name"] if isinstance(one, dict) and "name" in one else one for one in pack.personas]
    unknown = [name for name in request.personas if known and name not in known]
    if unknown:
        faults.append(f"this service does not know the personas {', '.join(unknown)}")
    if request.controllers is not None:
        if not routing.controller_plans:
            faults.append("this service takes no plan of controllers; leave --controller and --compare-with out")
        elif routing.action_controllers is not None:
            missing = [name for name in request.controllers if name not in routing.action_controllers]
            if missing:
                faults.append(f"this service does not have the controllers {', '.join(missing)}")
    most = routing.repetitions or 1
    if most is not True and (request.repetitions or 1) > most:
        faults.append(f"this service plays a run at most {most} times, not {request.repetitions}")
    return faults


def count_runs(request: EstimateRequest) -> int:
    return len(request.personas) * len(request.controllers or ["standard"]) * (request.repetitions or 1)


def judge_quote(estimate: Estimate, request: EstimateRequest, *, is_embedded: bool) -> Estimate:
    """The estimate, if it is one of exactly this plan. Raises `QuoteError` with everything that is wrong."""
    faults = []
    if not estimate.ok:
        faults.append("the service does not offer it")
    runs = count_runs(request)
    if estimate.persona_run_count != runs:
        faults.append(f"it counts {estimate.persona_run_count} runs, the plan has {runs}")
    sold = [row.count for row in estimate.breakdown if row.unit in RUN_UNITS]
    if sold and sum(sold) != runs:
        faults.append(f"its breakdown counts {sum(sold)} runs, the plan has {runs}")
    if estimate.run_length != request.run_length:
        faults.append(f"it is for a {estimate.run_length!r} run, not a {request.run_length!r} one")
    if request.controllers is not None and estimate.controllers != request.controllers:
        faults.append(f"it repeats the controllers as {estimate.controllers!r}, not {request.controllers!r}")
    amounts = {name: getattr(estimate, name) for name in ("estimate_cents", "balance_cents", "low", "likely", "worst")}
    for name, amount in amounts.items():
        if amount is not None and amount < 0:
            faults.append(f"{name} is {amount}")
    if estimate.estimate_cents == 0 and not is_embedded:
        faults.append("a price of 0 is only ever accepted from the embedded service")
    if faults:
        raise QuoteError(faults)
    return estimate


def judge_simulation_quote(estimate: Estimate, *, is_embedded: bool) -> Estimate:
    """The same for a simulation batch: one unit, a whole positive price, its mode and limits. Raises `QuoteError`."""
    faults = [] if estimate.ok else ["the service does not offer it"]
    free = is_embedded and estimate.estimate_cents == 0
    units = [(row.unit, row.count) for row in estimate.breakdown]
    if units != [("playtest_run", 1)]:
        faults.append(f"it sells {units!r}, not exactly one playtest_run")
    elif estimate.breakdown[0].unit_cents != estimate.estimate_cents:
        faults.append(
            f"the unit costs {estimate.breakdown[0].unit_cents} cents, the total is {estimate.estimate_cents}"
        )
    if estimate.estimate_cents <= 0 and not free:
        faults.append(f"its price is {estimate.estimate_cents} cents; a positive whole number is needed")
    if estimate.execution_mode != SIMULATION_MODE:
        faults.append(f"its execution mode is {estimate.execution_mode!r}, not {SIMULATION_MODE!r}")
    if not estimate.simulation_limits:
        faults.append("it does not state its limits")
    if faults:
        raise QuoteError(faults)
    return estimate


def judge_price(
    price_cents: int, *, balance_cents: int, max_price: int | None, accepted_cents: int | None = None
) -> None:
    """Raise `PriceError` if the price is over the balance, over `max_price` (millionths of a dollar), or higher than
    the one that was accepted before.
    """
    if price_cents > balance_cents:
        raise PriceError(
            f"the price is {in_dollars(price_cents)}, the balance is {in_dollars(balance_cents)}; raise it with"
            " coordinate budget set"
        )
    if max_price is not None and price_cents * 10_000 > max_price:
        raise PriceError(f"the price is {in_dollars(price_cents)}, above --max-price {max_price / 1_000_000:.2f}")
    if accepted_cents is not None and price_cents > accepted_cents:
        raise PriceError(
            f"the price has risen from {in_dollars(accepted_cents)}, which was accepted, to {in_dollars(price_cents)}"
        )


def assign_runs(job: Job, scenarios: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Scenario id -> run id. Raises `PlanMismatchError` unless the job's playthroughs are the plan's, as a multiset."""
    waiting: dict[Pair, list[str]] = {}
    # Rows without a controller were sold by a service that knows only the standard one.
    for run in job.runs:
        if run.module == "persona_playtest":
            waiting.setdefault((run.persona or "", run.controller or "standard"), []).append(run.run_id)
    found = Counter({pair: len(runs) for pair, runs in waiting.items()})
    planned = Counter(pairs_of(scenarios))
    if found != planned:
        raise PlanMismatchError(job.job_id, sorted((planned - found).elements()), sorted((found - planned).elements()))
    return {one["id"]: waiting[one["playtest"]["persona"], one["playtest"]["controller"]].pop(0) for one in scenarios}


def in_dollars(amount_cents: int) -> str:
    return f"${amount_cents // 100}.{amount_cents % 100:02d}"
