"""Every game's seed and every policy's generator follow from the batch seed and the game's place alone."""

from __future__ import annotations

import hashlib
import random

from drivers.turns import ListedMove, Turn
from tests.workers.simulation.batches import configuration
from workers.simulation.configuration import load
from workers.simulation.play import Play, Table
from workers.simulation.policies import draw_below
from workers.simulation.seeds import game_seed, other_seed, policy_seed


def test_a_game_seed_is_the_first_bits_of_the_hash() -> None:
    digest = hashlib.sha256(b"playlane/game/1\x007\x003").digest()
    bits = "".join(f"{byte:08b}" for byte in digest)
    for seed_bits in (32, 53, 64):
        assert game_seed(7, 3, seed_bits) == int(bits[:seed_bits], 2)


def test_a_policy_seed_is_the_whole_hash() -> None:
    assert policy_seed(7, 3, "a") == int(hashlib.sha256(b"playlane/policy/1\x007\x003\x00a").hexdigest(), 16)


def test_the_other_seed_is_another_one_of_the_same_size() -> None:
    for k in range(2_000):
        assert other_seed(1, k, 32) != game_seed(1, k, 32)
        assert 0 <= other_seed(1, k, 32) < 2**32


def test_the_kth_games_of_all_strategies_share_one_game_seed_and_no_generator() -> None:
    read = load(configuration(strategies=[{"name": name, "policy": "random"} for name in ("a", "b", "c")]))
    table = Table(read, 64)
    turn = Turn(state=0, done=False, actions=tuple(ListedMove(id=str(n)) for n in range(1000)))
    rows = [[Play(table, k * 3 + place) for place in range(3)] for k in range(5)]
    assert [len({play.seed for play in row}) for row in rows] == [1] * 5
    assert len({row[0].seed for row in rows}) == 5
    first_choices = [play.take(turn) for row in rows for play in row]
    assert len(set(first_choices)) > 10


def test_draws_are_uniform_and_use_getrandbits_only() -> None:
    class OnlyBits(random.Random):
        def random(self) -> float:
            raise AssertionError("getrandbits is the only call whose numbers every version agrees on")

    generator = OnlyBits(1)
    counts = [0] * 7
    for _ in range(70_000):
        counts[draw_below(7, generator)] += 1
    # chi-squared with 6 degrees of freedom: 22.5 is the 0.1 % point
    assert sum((count - 10_000) ** 2 / 10_000 for count in counts) < 22.5
    assert draw_below(1, generator) == 0
