"""Policies: how a seat chooses among the listed actions. Each draws by `getrandbits` only.

`random.Random.getrandbits` is the one generator call whose numbers every Python version agrees on.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable

from drivers.turns import ListedMove, Turn
from workers.simulation.configuration import Policy
from workers.simulation.errors import ConfigurationError, Refused

Chooser = Callable[[Turn, int, random.Random], str | None]
"""(turn, how many choices this seat has made in this game, the game's generator) -> the action's id.

None is sent as it is: the game chooses by the strategy's name, which it was given at reset.
"""

_FRACTION_BITS = 53
_NO_LIST = "the game takes free text, and the policy chooses from a list"


class NobodyError(Exception):
    """No policy can choose here: nobody has the seat, or the game takes free text and the policy needs a list."""


class UnlistedMoveError(Exception):
    """A policy of the user's chose an action that the game does not list; the game was not asked."""


def make_chooser(policy: Policy) -> Chooser:
    """The function that plays a policy. `ConfigurationError` when a `python` entry cannot be imported."""
    if policy.kind == "weighted":
        return _Weighted(policy.weights)
    if policy.kind == "python":
        return _load_entry(policy.entry)
    return _SIMPLE[policy.kind]


def needs_generator(policy: Policy) -> bool:
    """Whether the policy may draw; the others are spared the cost of seeding one."""
    return policy.kind in ("random", "weighted", "python")


def draw_below(count: int, generator: random.Random) -> int:
    """A uniform integer in 0..count-1, by rejection: no bias, and no other call than `getrandbits`."""
    bits = (count - 1).bit_length()
    value = generator.getrandbits(bits) if bits else 0
    while value >= count:
        value = generator.getrandbits(bits)
    return value


def _listed(turn: Turn) -> tuple[ListedMove, ...]:
    if turn.actions is None:
        raise NobodyError(_NO_LIST)
    return turn.actions


def _random(turn: Turn, choices: int, generator: random.Random) -> str:
    actions = turn.actions
    if actions is None:
        raise NobodyError(_NO_LIST)
    count = len(actions)
    bits = (count - 1).bit_length()
    if not bits:
        return actions[0].id
    value = generator.getrandbits(bits)
    while value >= count:
        value = generator.getrandbits(bits)
    return actions[value].id


def _first(turn: Turn, choices: int, generator: random.Random) -> str:
    return _listed(turn)[0].id


def _last(turn: Turn, choices: int, generator: random.Random) -> str:
    return _listed(turn)[-1].id


def _round_robin(turn: Turn, choices: int, generator: random.Random) -> str:
    actions = _listed(turn)
    return actions[choices % len(actions)].id


def _bridge(turn: Turn, choices: int, generator: random.Random) -> None:
    return None


_SIMPLE: dict[str, Chooser] = {
    "random": _random,
    "first": _first,
    "last": _last,
    "round_robin": _round_robin,
    "bridge": _bridge,
}


class _Weighted:
    """Listed actions in proportion to their weights; one without a weight is never chosen while another has one.

    Where no listed action has a weight the choice is uniform, so that a game does not end for want of a word.
    """

    def __init__(self, weights: dict[str, float]) -> None:
        self._weights = weights

    def __call__(self, turn: Turn, choices: int, generator: random.Random) -> str:
        actions = _listed(turn)
        weights = [self._weights.get(action.id, 0.0) for action in actions]
        total = 0.0
        for weight in weights:
            total += weight
        if total <= 0.0:
            return actions[draw_below(len(actions), generator)].id
        mark = generator.getrandbits(_FRACTION_BITS) / (1 << _FRACTION_BITS) * total
        chosen = actions[0].id
        for action, weight in zip(actions, weights, strict=True):
            if weight > 0.0:
                chosen = action.id
                if mark < weight:
                    break
                mark -= weight
        return chosen


def _load_entry(entry: str) -> Chooser:
    """A policy of the user's: `function(turn, generator) -> action id`."""
    function = load_object(entry, "policy.entry")

    def choose(turn: Turn, choices: int, generator: random.Random) -> str | None:
        chosen = function(turn, generator)
        if chosen is not None and not isinstance(chosen, str):
            raise TypeError(f"the policy chose a {type(chosen).__name__}; an action's id is a text")
        if chosen is not None and turn.actions is not None and chosen not in turn.move_ids:
            raise UnlistedMoveError(f"the policy chose {chosen[:40]!r}, which the game does not list")
        return chosen

    return choose


def load_object(entry: str, key: str) -> Callable[..., object]:
    """The object that `module:name` names. `ConfigurationError` names the key when it cannot be had or called."""
    module_name, _, name = entry.partition(":")

    def refuse(found: str) -> ConfigurationError:
        return ConfigurationError(
            "the configuration",
            [Refused(key=key, found=f"{entry!r}: {found}", allowed="it must name a function that can be imported")],
        )

    try:
        loaded: object = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, SyntaxError, ValueError) as error:
        raise refuse(f"{type(error).__name__}: {error}") from error
    if not callable(loaded):
        raise refuse(f"a {type(loaded).__name__}")
    return loaded
