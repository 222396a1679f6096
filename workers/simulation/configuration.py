"""What a batch is asked to play: `simulation.json`, read strictly, every fault named by its key. Pure, but for hashes.

Everything here is plain data: the coordinator uses it to plan, the worker to play.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from workers.simulation.errors import ConfigurationError, Refused
from workers.simulation.seeds import MAX_SEED

MAX_CONFIGURATION_BYTES = 64_000
MAX_CELLS = 32
MAX_METRICS = 32
MAX_OUTCOMES = 64
MAX_SEATS = 16
MAX_RUNS = 1_000_000_000
MAX_STEPS = 10_000_000
MAX_WORKERS = 64
MAX_NAME_CHARACTERS = 64
EVERY_SEAT = "*"
SIMPLE_POLICIES = ("random", "first", "last", "round_robin", "bridge")

PolicyKind = Literal["random", "first", "last", "round_robin", "bridge", "weighted", "python"]

_KEYS = {
    "version", "seed", "runs", "max_steps", "workers", "strategies", "driver_config", "params", "variants", "objective",
}  # fmt: skip
_REQUIRED = ("version", "seed", "runs", "max_steps", "workers", "strategies")
_ENTRY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one seat chooses. `weights` belong to `weighted`, `entry` (`module:function`) to `python`."""

    kind: PolicyKind
    weights: dict[str, float] = msgspec.field(default_factory=dict)
    entry: str = ""


class Strategy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A name and who plays which seat; the seat `*` is every seat that is not named."""

    name: str
    seats: dict[str, Policy]


class Variant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The game with other parameters: these go over the batch's own, key by key. The unnamed one changes nothing."""

    name: str = ""
    params: dict[str, Any] = msgspec.field(default_factory=dict)


class Objective(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What "better" means: one of the outcomes `win` came, or `metric` was higher (`maximize`), lower (`minimize`)."""

    win: tuple[str, ...] = ()
    metric: str = ""
    direction: Literal["maximize", "minimize"] = "maximize"


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """A checked `simulation.json`. `cells` are strategies x variants, in the order of `strategies`, variants within."""

    version: int
    seed: int
    runs: int
    max_steps: int
    workers: int
    strategies: tuple[Strategy, ...]
    variants: tuple[Variant, ...] = (Variant(),)
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    objective: Objective | None = None
    driver_config: str | None = None

    @property
    def cells(self) -> tuple[tuple[Strategy, Variant], ...]:
        return tuple((strategy, variant) for strategy in self.strategies for variant in self.variants)

    def locate(self, index: int) -> tuple[int, int]:
        """Run `index` as (k, position of its cell): index = k x cells + position."""
        return divmod(index, len(self.strategies) * len(self.variants))


def load(data: bytes | Mapping[str, Any], *, origin: str = "the simulation configuration") -> Configuration:
    """Check a `simulation.json`, as its bytes or already decoded.

    Raises `ConfigurationError`, which lists every key that is unknown, missing or out of its range.
    """
    decoded = _decode(data, origin) if isinstance(data, bytes) else dict(data)
    reader = _Reader()
    configuration = reader.configuration(decoded)
    if reader.refused or configuration is None:
        raise ConfigurationError(origin, reader.refused)
    return configuration


def disclose(configuration: Configuration) -> dict[str, Any]:
    """What a service may see of a batch: numbers, names of strategies, kinds of policies; no command, path or module.

    Shape: {version, seed (decimal string), runs, max_steps, workers, strategies: [{name, policies: [kind]}]}.
    """
    return {
        "version": configuration.version,
        "seed": str(configuration.seed),
        "runs": configuration.runs,
        "max_steps": configuration.max_steps,
        "workers": configuration.workers,
        "strategies": [
            {"name": strategy.name, "policies": sorted({policy.kind for policy in strategy.seats.values()})}
            for strategy in configuration.strategies
        ],
    }


def _decode(data: bytes, origin: str) -> dict[str, Any]:
    def refuse(found: str, allowed: str) -> ConfigurationError:
        return ConfigurationError(origin, [Refused(key="(whole file)", found=found, allowed=allowed)])

    if len(data) > MAX_CONFIGURATION_BYTES:
        raise refuse(f"{len(data)} bytes", f"at most {MAX_CONFIGURATION_BYTES} are read")
    try:
        decoded = json.loads(
            data.decode("utf-8-sig"), object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise refuse(str(error)[:200] or "brackets nested too deeply", "it must be JSON") from error
    if not isinstance(decoded, dict):
        raise refuse(_show(decoded), "it must be a JSON object")
    return decoded


class _Reader:
    """Reads a decoded configuration part by part and collects every fault, so that a person mends them in one go."""

    def __init__(self) -> None:
        self.refused: list[Refused] = []

    def refuse(self, key: str, value: object, allowed: str) -> None:
        self.refused.append(Refused(key=key, found=_show(value), allowed=allowed))

    def configuration(self, decoded: Mapping[str, Any]) -> Configuration | None:
        self._only(decoded, _KEYS, "")
        for key in _REQUIRED:
            if key not in decoded:
                self.refused.append(Refused(key=key, found="nothing", allowed="it must be given"))
        if "version" in decoded and (type(decoded["version"]) is not int or decoded["version"] != 1):
            self.refuse("version", decoded["version"], "this program reads version 1")
        seed = self.seed(decoded["seed"]) if "seed" in decoded else 0
        runs = self._count(decoded, "runs", MAX_RUNS)
        max_steps = self._count(decoded, "max_steps", MAX_STEPS)
        workers = self._count(decoded, "workers", MAX_WORKERS)
        params = self._object(decoded.get("params", {}), "params")
        strategies = self._strategies(decoded.get("strategies", []))
        variants = self._variants(decoded["variants"]) if "variants" in decoded else (Variant(),)
        objective = self._objective(decoded["objective"]) if decoded.get("objective") is not None else None
        driver_config = decoded.get("driver_config")
        if driver_config is not None and (not isinstance(driver_config, str) or not driver_config.strip()):
            self.refuse("driver_config", driver_config, "it must be the path of a bridge file")
        cells = len(strategies) * len(variants)
        if cells > MAX_CELLS:
            self.refuse("strategies x variants", cells, f"at most {MAX_CELLS}")
        if self.refused:
            return None
        return Configuration(
            version=1,
            seed=seed,
            runs=runs,
            max_steps=max_steps,
            workers=workers,
            strategies=strategies,
            variants=variants,
            params=params,
            objective=objective,
            driver_config=driver_config,
        )

    def seed(self, value: object) -> int:
        if type(value) is str and re.fullmatch(r"[0-9]{1,20}", value):
            value = int(value)
        if type(value) is int and 0 <= value <= MAX_SEED:
            return value
        self.refuse("seed", value, "it must be an integer from 0 to 2^64-1, as a number or as decimal digits")
        return 0

    def _count(self, decoded: Mapping[str, Any], key: str, largest: int) -> int:
        value = decoded.get(key)
        if type(value) is int and 1 <= value <= largest:
            return value
        if key in decoded:
            self.refuse(key, value, f"it must be an integer from 1 to {largest}")
        return 1

    def _only(self, decoded: Mapping[str, Any], allowed: set[str], prefix: str) -> None:
        for key in decoded:
            if key not in allowed:
                name = f"{prefix}{key}"
                self.refused.append(
                    Refused(key=_clip(name), found="an unknown key", allowed=f"known are {', '.join(sorted(allowed))}")
                )

    def _object(self, value: object, key: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self.refuse(key, value, "it must be an object")
        return {}

    def _name(self, value: object, key: str, taken: set[str]) -> str:
        if (
            not isinstance(value, str)
            or not value.strip()
            or len(value) > MAX_NAME_CHARACTERS
            or not value.isprintable()
        ):
            self.refuse(key, value, f"it must be a text of 1 to {MAX_NAME_CHARACTERS} printable characters")
            return ""
        if value in taken:
            self.refuse(key, value, "the name stands twice; names must differ")
        taken.add(value)
        return value

    def _strategies(self, value: object) -> tuple[Strategy, ...]:
        if not isinstance(value, list) or not value:
            self.refuse("strategies", value, "it must be a list of at least one strategy")
            return ()
        taken: set[str] = set()
        strategies = []
        for position, item in enumerate(value):
            key = f"strategies[{position}]"
            if not isinstance(item, dict):
                self.refuse(key, item, "it must be an object with name and policy, or name and seats")
                continue
            self._only(item, {"name", "policy", "seats"}, f"{key}.")
            name = self._name(item.get("name"), f"{key}.name", taken)
            strategies.append(Strategy(name=name, seats=self._seats(item, key)))
        return tuple(strategies)

    def _seats(self, item: Mapping[str, Any], key: str) -> dict[str, Policy]:
        if ("policy" in item) == ("seats" in item):
            self.refuse(key, sorted(item), "it must have exactly one of policy and seats")
            return {}
        if "policy" in item:
            policy = self._policy(item["policy"], f"{key}.policy")
            return {EVERY_SEAT: policy} if policy else {}
        seats = self._object(item["seats"], f"{key}.seats")
        if not 1 <= len(seats) <= MAX_SEATS:
            self.refuse(f"{key}.seats", len(seats), f"it must name 1 to {MAX_SEATS} seats")
        read: dict[str, Policy] = {}
        for seat, value in seats.items():
            if not seat or len(seat) > MAX_NAME_CHARACTERS or not seat.isprintable():
                self.refuse(f"{key}.seats", seat, f"a seat's name has 1 to {MAX_NAME_CHARACTERS} printable characters")
            policy = self._policy(value, f"{key}.seats.{_clip(seat)}")
            if policy:
                read[seat] = policy
        return read

    def _policy(self, value: object, key: str) -> Policy | None:
        if isinstance(value, str) and value in SIMPLE_POLICIES:
            return msgspec.convert({"kind": value}, Policy)
        allowed = f"{', '.join(SIMPLE_POLICIES)}, or an object of kind weighted or python"
        if not isinstance(value, dict):
            self.refuse(key, value, f"allowed are {allowed}")
            return None
        kind = value.get("kind")
        if kind in SIMPLE_POLICIES:
            self._only(value, {"kind"}, f"{key}.")
            return msgspec.convert({"kind": kind}, Policy)
        if kind == "weighted":
            self._only(value, {"kind", "weights"}, f"{key}.")
            return self._weighted(value.get("weights"), f"{key}.weights")
        if kind == "python":
            self._only(value, {"kind", "entry"}, f"{key}.")
            entry = value.get("entry")
            if isinstance(entry, str) and _ENTRY.fullmatch(entry):
                return Policy(kind="python", entry=entry)
            self.refuse(f"{key}.entry", entry, "it must be written module:function")
            return None
        self.refuse(f"{key}.kind", kind, f"allowed are {allowed}")
        return None

    def _weighted(self, value: object, key: str) -> Policy | None:
        if not isinstance(value, dict) or not value:
            self.refuse(key, value, "it must be an object of action ids and weights")
            return None
        weights: dict[str, float] = {}
        for action, weight in value.items():
            if type(weight) not in (int, float) or not math.isfinite(weight) or not 0 <= weight <= 1e9:
                self.refuse(f"{key}.{_clip(action)}", weight, "a weight is a number from 0 to 1e9")
                return None
            weights[action] = float(weight)
        if not any(weights.values()):
            self.refuse(key, value, "at least one weight must be above 0")
            return None
        return Policy(kind="weighted", weights=weights)

    def _variants(self, value: object) -> tuple[Variant, ...]:
        if not isinstance(value, list) or not value:
            self.refuse("variants", value, "it must be a list of at least one variant, or be left out")
            return (Variant(),)
        taken: set[str] = set()
        variants = []
        for position, item in enumerate(value):
            key = f"variants[{position}]"
            if not isinstance(item, dict):
                self.refuse(key, item, "it must be an object with name and params")
                continue
            self._only(item, {"name", "params"}, f"{key}.")
            name = self._name(item.get("name"), f"{key}.name", taken)
            variants.append(Variant(name=name, params=self._object(item.get("params", {}), f"{key}.params")))
        return tuple(variants)

    def _objective(self, value: object) -> Objective | None:
        objective = self._object(value, "objective")
        self._only(objective, {"win", "metric", "direction"}, "objective.")
        if ("win" in objective) == ("metric" in objective):
            self.refuse("objective", sorted(objective), "it must have exactly one of win and metric")
            return None
        if "win" in objective:
            win = objective["win"]
            if "direction" in objective:
                self.refuse("objective.direction", objective["direction"], "a direction belongs to a metric")
            if not isinstance(win, list) or not win or not all(isinstance(name, str) and name for name in win):
                self.refuse("objective.win", win, "it must be a list of at least one outcome")
                return None
            if len(set(win)) != len(win):
                self.refuse("objective.win", win, "an outcome stands twice")
            return Objective(win=tuple(win))
        if not isinstance(objective["metric"], str) or not objective["metric"]:
            self.refuse("objective.metric", objective["metric"], "it must be the name of a metric")
        direction = objective.get("direction")
        if direction not in ("maximize", "minimize"):
            self.refuse("objective.direction", direction, "it must be maximize or minimize")
            return None
        return Objective(metric=str(objective["metric"]), direction=direction)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    decoded = dict(pairs)
    if len(decoded) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} stands twice")
    return decoded


def _no_constant(token: str) -> float:
    raise ValueError(f"{token} is no JSON number")


def _finite(token: str) -> float:
    value = float(token)
    if not math.isfinite(value):
        raise ValueError(f"the number {token[:40]} is too large")
    return value


def _clip(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _show(value: object) -> str:
    return _clip(json.dumps(value, ensure_ascii=True, default=str))
