"""The formulas against exact sums, published values and their own definitions."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from workers.simulation.statistics import (
    MAX_BIN_WIDTH,
    Bins,
    Total,
    bin_of,
    edge_of,
    games_to_find,
    half_width,
    holm,
    paired_means,
    paired_shares,
    sign_test,
    significant,
    wilson,
)


def coverage(n: int, share: float) -> float:
    """The exact probability that the interval reported from n games holds the true share."""
    covered = []
    log_share, log_rest = math.log(share), math.log1p(-share)
    for count in range(n + 1):
        interval = wilson(count, n)
        if interval.low <= share <= interval.high:
            log_ways = math.lgamma(n + 1) - math.lgamma(count + 1) - math.lgamma(n - count + 1)
            covered.append(math.exp(log_ways + count * log_share + (n - count) * log_rest))
    return math.fsum(covered)


SHARES = [place / 100 for place in range(1, 100)]


@pytest.mark.parametrize("n", [500, 1000])
def test_wilson_covers_93_to_97_percent_from_500_games(n: int) -> None:
    covered = [coverage(n, share) for share in SHARES]
    assert min(covered) >= 0.93 and max(covered) <= 0.97


@pytest.mark.parametrize("n", [20, 30, 50, 100, 200])
def test_wilson_covers_95_percent_on_average_from_20_games(n: int) -> None:
    covered = [coverage(n, share) for share in SHARES]
    assert 0.945 <= math.fsum(covered) / len(covered) <= 0.96
    assert min(covered) >= 0.91


def test_wilson_has_its_published_values() -> None:
    # Newcombe (1998), Statistics in Medicine 17, table I: 81/263, 15/148, 0/20, 1/29
    for count, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        interval = wilson(count, n)
        assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


def test_wilson_stays_within_0_and_1_and_refuses_no_games() -> None:
    assert wilson(0, 5).low == 0 and wilson(5, 5).high == 1
    with pytest.raises(ValueError, match="no games"):
        wilson(0, 0)


def test_half_width_is_that_of_the_interval() -> None:
    interval = wilson(500, 1000)
    assert half_width(1000) == pytest.approx((interval.high - interval.low) / 2)


def test_games_to_find_a_difference() -> None:
    assert games_to_find(0.03) == 2919
    assert games_to_find(0.1) == 263


def test_holm_adjusts_step_by_step() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_sign_test_is_exact_for_few_pairs_and_close_to_it_for_many() -> None:
    assert sign_test(8, 2) == pytest.approx(112 / 1024)
    assert sign_test(0, 0) == 1.0
    exact = 2 * sum(math.comb(2000, i) for i in range(951)) / 2**2000
    assert sign_test(950, 1050) == pytest.approx(exact, rel=0.02)


def test_paired_shares_hold_the_difference_between_their_ends() -> None:
    interval, p = paired_shares(30, 10, 100)
    assert interval.value == 0.2 and interval.low < 0.2 < interval.high and p < 0.01
    same, certain = paired_shares(0, 0, 50)
    assert same.value == 0 and same.low < 0 < same.high and certain == 1


def test_paired_share_intervals_cover_the_true_difference() -> None:
    dice = random.Random(5)
    held = 0
    for _ in range(1500):
        draws = [dice.random() for _ in range(120)]
        interval, _ = paired_shares(sum(d < 0.3 for d in draws), sum(d > 0.8 for d in draws), 120)
        held += interval.low <= 0.1 <= interval.high
    assert 0.93 <= held / 1500 <= 0.975


def test_paired_means() -> None:
    values = [1.0, 2.0, 4.0, 5.0]
    interval, p = paired_means(4, sum(values), sum(value * value for value in values))
    error = math.sqrt(10 / 3 / 4)
    assert interval.value == 3 and interval.high == pytest.approx(3 + 1.959964 * error) and p < 0.01
    assert paired_means(5, 0.0, 0.0)[1] == 1.0


def test_a_total_is_correctly_rounded_where_a_running_sum_is_not() -> None:
    total = Total()
    values = [0.1] * 10_000 + [1e16, 1.0, -1e16]
    for value in values:
        total.add(value)
    exact = float(sum(map(Fraction, values)))
    assert total.value() == pytest.approx(exact, abs=1e-9)
    assert sum(values) != pytest.approx(exact, abs=1e-9)


def test_bins_are_narrow_ordered_and_exact_for_small_whole_numbers() -> None:
    for number in range(-512, 513):
        assert edge_of(bin_of(float(number))) == number
    dice = random.Random(1)
    values = [dice.choice([-1, 1]) * 10 ** dice.uniform(-300, 300) for _ in range(5_000)] + [5e-324, 1.7e308]
    for value in values:
        edge = edge_of(bin_of(value))
        assert abs(value - edge) <= abs(value) * MAX_BIN_WIDTH * 1.001
    ordered = sorted(values)
    assert sorted(map(bin_of, ordered)) == list(map(bin_of, ordered))


def test_quantiles_are_within_a_bin_of_the_sorted_values() -> None:
    dice = random.Random(2)
    values = sorted(dice.lognormvariate(3, 1) for _ in range(4001))
    bins = Bins()
    for value in values:
        bins.add(value)
    found = bins.quantiles((0.05, 0.25, 0.5, 0.75, 0.95), values[0], values[-1])
    wanted = [values[math.ceil(share * 4001) - 1] for share in (0.05, 0.25, 0.5, 0.75, 0.95)]
    assert found == pytest.approx(wanted, rel=0.005)
    assert Bins().quantiles((0.5,), 0, 0) == []


def test_numbers_are_written_with_six_digits_and_never_as_minus_zero() -> None:
    assert significant(1 / 3) == 0.333333
    assert math.copysign(1, significant(-0.0)) == 1
