"""What the independent service sells and at what price: its switches, the order it is sent, and the quote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

JsonObject = dict[str, Any]

PLAYTEST = "persona_playtest"
AGGREGATE = "aggregate_report"
SIMULATION = "balance_sim"
MODULES = (PLAYTEST, AGGREGATE, SIMULATION)


class RefusalError(Exception):
    """An answer that is not a success: the HTTP status, the error code and the sentence for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def says_it_ended(simulation: JsonObject) -> bool:
    """Whether a delivered simulation counts as a result: any object that is not empty.

    The protocol does not say which key counts the games that reached an end; a test that knows sets its own reader.
    """
    return bool(simulation)


@dataclass
class Terms:
    """The switches of one server. A test sets them before or between requests; amounts are whole cents."""

    games: set[str] = field(default_factory=lambda: {"game-1"})
    account_tokens: set[str] = field(default_factory=lambda: {"account-token"})
    personas: tuple[str, ...] = ("newcomer", "speedrunner", "explorer")
    action_controllers: tuple[str, ...] = ("random", "offline", "model")
    # An older version: no controller plans, no max_personas in the pack, none of the later keys.
    controller_plans: bool = True
    max_personas: int | None = 12
    extra_keys: bool = True
    # A server that does not know --long either sells a standard run or refuses the word.
    honours_long: bool = True
    refuses_long: bool = False
    prices_cents: dict[str, int] = field(default_factory=lambda: {"standard": 25, "long": 60})
    aggregate_cents: int = 5
    simulation_cents: int = 40
    simulation_unit: str = "playtest_run"
    simulation_count: int = 1
    execution_mode: str | None = "direct_command_batch"
    simulation_limits: JsonObject | None = field(
        default_factory=lambda: {"max_games": 1000, "max_steps_per_game": 10_000, "wall_seconds": 600}
    )
    # The price that holds from the next quote on: a quote is given, and then the price moves.
    price_after_quote_cents: int | None = None
    wall_seconds: int = 1800
    # A status with which every heartbeat is refused (401, 403, 404 or 409).
    heartbeat_refusal: int | None = None
    # Each state only from the one before it; else any later state is a legal step.
    one_state_at_a_time: bool = False
    simulation_is_usable: Callable[[JsonObject], bool] = says_it_ended
    select_action: Callable[[JsonObject], JsonObject] | None = None
    model: Callable[[JsonObject], JsonObject] | None = None


@dataclass(frozen=True, kw_only=True)
class Order:
    """What an estimate or a registration asks for, as this version of the server understands it."""

    modules: tuple[str, ...]
    personas: tuple[str, ...]
    run_length: str
    controllers: tuple[str, ...]
    repetitions: int
    is_simulation: bool

    def runs(self) -> list[tuple[str, str | None, int]]:
        """The playthroughs: persona, controller (None where none was asked for) and repetition from 1."""
        if PLAYTEST not in self.modules:
            return []
        return [
            (persona, controller, repetition)
            for persona in self.personas
            for controller in (self.controllers or (None,))
            for repetition in range(1, self.repetitions + 1)
        ]


@dataclass(frozen=True, kw_only=True)
class Quote:
    """A price, its rows of (unit, count, unit cents), and what one run of each module costs."""

    rows: tuple[tuple[str, int, int], ...]
    cents_by_module: dict[str, int]

    @property
    def total_cents(self) -> int:
        return sum(count * unit_cents for _, count, unit_cents in self.rows)


def invalid(message: str) -> RefusalError:
    return RefusalError(422, "invalid_estimate", message)


def words(sent: JsonObject, key: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """A list of known words that are not repeated. Raises RefusalError (422) else."""
    value = sent.get(key)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise invalid(f"{key} must be a list of strings; found {value!r}")
    unknown = [word for word in value if word not in known]
    if unknown:
        raise invalid(f"{key}: unknown {', '.join(unknown)}; known are {', '.join(known)}")
    if len(set(value)) != len(value):
        raise invalid(f"{key}: a word is repeated in {value!r}")
    return tuple(value)


def whole(sent: JsonObject, key: str, *, least: int) -> int:
    """A whole number of at least `least`; true and false are not numbers. Raises RefusalError (422) else."""
    value = sent.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise invalid(f"{key} must be a whole number of at least {least}; found {value!r}")
    return value


def read_order(sent: JsonObject, terms: Terms) -> Order:
    """Reads the keys that `estimate` and `jobs` share; a key this version does not know is ignored.

    Raises RefusalError (422 invalid_estimate) naming the key.
    """
    modules = words(sent, "modules", MODULES)
    if not modules:
        raise invalid("modules is empty; nothing was asked for")
    is_simulation = SIMULATION in modules
    if is_simulation and len(modules) > 1:
        raise invalid(f"{SIMULATION} is sold by itself; found modules {list(modules)!r}")
    if is_simulation != isinstance(sent.get("simulation"), dict):
        raise invalid(f"simulation must be an object exactly when modules is [{SIMULATION}]")
    personas = words(sent, "personas", terms.personas)
    if not personas and PLAYTEST in modules:
        raise invalid("personas is empty; a playtest needs at least one")
    run_length = sent.get("run_length")
    if run_length not in ("standard", "long") or (run_length == "long" and terms.refuses_long):
        raise invalid(f"run_length: unknown {run_length!r}")
    if not terms.honours_long:
        run_length = "standard"
    controllers: tuple[str, ...] = ()
    if terms.controller_plans and sent.get("controllers") is not None:
        controllers = words(sent, "controllers", terms.action_controllers)
    repetitions = 1
    if terms.extra_keys and sent.get("repetitions") is not None:
        repetitions = whole(sent, "repetitions", least=1)
    order = Order(
        modules=modules,
        personas=personas,
        run_length=run_length,
        controllers=controllers,
        repetitions=repetitions,
        is_simulation=is_simulation,
    )
    if terms.max_personas is not None and len(order.runs()) > terms.max_personas:
        raise invalid(f"{len(order.runs())} runs asked for; at most {terms.max_personas} are sold at once")
    return order


def quote(order: Order, terms: Terms) -> Quote:
    """The price of an order at this moment's prices."""
    if order.is_simulation:
        return Quote(
            rows=((terms.simulation_unit, terms.simulation_count, terms.simulation_cents),),
            cents_by_module={SIMULATION: terms.simulation_cents * terms.simulation_count},
        )
    run_cents = terms.prices_cents[order.run_length]
    rows: list[tuple[str, int, int]] = []
    if PLAYTEST in order.modules:
        rows.append((PLAYTEST, len(order.runs()), run_cents))
    if AGGREGATE in order.modules:
        rows.append((AGGREGATE, 1, terms.aggregate_cents))
    return Quote(rows=tuple(rows), cents_by_module={PLAYTEST: run_cents, AGGREGATE: terms.aggregate_cents})


def pack(terms: Terms) -> JsonObject:
    """The answer of `pack`; what an older version did not know is left out."""
    routing: JsonObject = {
        "action_controllers": list(terms.action_controllers) if terms.controller_plans else [],
        "controller_plans": terms.controller_plans,
    }
    if terms.max_personas is not None:
        routing["max_personas"] = terms.max_personas
    if terms.extra_keys:
        routing["repetitions"] = True
    return {"personas": list(terms.personas), "routing": routing}


def estimate(order: Order, terms: Terms, balance_cents: int) -> JsonObject:
    """The answer of `estimate`. What is charged is the total, so `worst` is never above it."""
    price = quote(order, terms)
    answer: JsonObject = {
        "ok": True,
        "estimate_cents": price.total_cents,
        "balance_cents": balance_cents,
        "breakdown": [{"unit": unit, "count": count, "unit_cents": cents} for unit, count, cents in price.rows],
        "persona_run_count": len(order.runs()),
        "run_length": order.run_length,
    }
    if order.controllers:
        answer["controllers"] = list(order.controllers)
    if order.is_simulation:
        if terms.execution_mode is not None:
            answer["execution_mode"] = terms.execution_mode
        if terms.simulation_limits is not None:
            answer["simulation_limits"] = terms.simulation_limits
    if terms.extra_keys:
        answer["low"] = price.total_cents // 2
        answer["likely"] = price.total_cents * 3 // 4
        answer["worst"] = price.total_cents
    return answer
