"""Each policy chooses as it says."""

from __future__ import annotations

import random

import pytest

from drivers.turns import ListedMove, Turn
from workers.simulation.configuration import Policy, PolicyKind
from workers.simulation.errors import ConfigurationError
from workers.simulation.policies import NobodyError, UnlistedMoveError, make_chooser

TURN = Turn(state=0, done=False, actions=tuple(ListedMove(id=name) for name in ("a", "b", "c")))
GENERATOR = random.Random(1)


def chosen(policy: Policy, times: int = 6, turn: Turn = TURN) -> list[str | None]:
    chooser = make_chooser(policy)
    return [chooser(turn, made, GENERATOR) for made in range(times)]


@pytest.mark.parametrize(("kind", "expected"), [("first", "aaaaaa"), ("last", "cccccc"), ("round_robin", "abcabc")])
def test_fixed_policies(kind: PolicyKind, expected: str) -> None:
    assert chosen(Policy(kind=kind)) == list(expected)


def test_bridge_leaves_the_choice_to_the_game() -> None:
    assert chosen(Policy(kind="bridge")) == [None] * 6


def test_random_reaches_every_action() -> None:
    assert set(chosen(Policy(kind="random"), 100)) == {"a", "b", "c"}


def test_weighted_follows_its_weights() -> None:
    counts = {"a": 0, "b": 0, "c": 0}
    for name in chosen(Policy(kind="weighted", weights={"a": 3, "b": 1, "elsewhere": 50}), 20_000):
        assert name is not None
        counts[name] += 1
    assert counts["c"] == 0
    assert abs(counts["a"] - 15_000) < 4 * (20_000 * 0.75 * 0.25) ** 0.5


def test_weighted_is_uniform_where_nothing_listed_has_a_weight() -> None:
    assert set(chosen(Policy(kind="weighted", weights={"elsewhere": 1}), 100)) == {"a", "b", "c"}


@pytest.mark.parametrize("kind", ["random", "first", "last", "round_robin", "weighted"])
def test_a_policy_that_needs_a_list_says_so_in_a_free_text_game(kind: PolicyKind) -> None:
    with pytest.raises(NobodyError, match="free text"):
        chosen(Policy(kind=kind, weights={"a": 1}), 1, Turn(state=0, done=False))


def test_a_python_policy_may_only_choose_what_is_listed(tmp_path: object) -> None:
    assert chosen(Policy(kind="python", entry="tests.workers.simulation.test_policies:choose_b"), 1) == ["b"]
    with pytest.raises(UnlistedMoveError, match="'z'"):
        chosen(Policy(kind="python", entry="tests.workers.simulation.test_policies:choose_z"), 1)


@pytest.mark.parametrize("entry", ["no_such_module_here:f", "json:no_such_name", "json:__doc__"])
def test_an_entry_that_cannot_be_had_is_refused_with_its_key(entry: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make_chooser(Policy(kind="python", entry=entry))
    assert [fault.key for fault in caught.value.refused] == ["policy.entry"]


def choose_b(turn: Turn, generator: random.Random) -> str:
    return "b"


def choose_z(turn: Turn, generator: random.Random) -> str:
    return "z"
