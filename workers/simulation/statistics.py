"""The formulas of the summary: intervals, paired differences, adjustment, quantiles. Pure, and the same everywhere.

Only +, -, *, /, `math.sqrt`, `math.fsum` and exact integers meet what is written into files: their results are the same
bits on every machine. `math.erfc` is used for p values, which are written with four digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

Z_95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution: two-sided 95 %."""
Z_POWER_90 = 1.2815515655446004
"""The 90 % quantile: what a plan adds so that a difference is found in nine batches of ten."""
BINS_PER_OCTAVE = 256
MAX_BIN_WIDTH = 1 / BINS_PER_OCTAVE
BLOCK_GAMES = 4_096
EXACT_SIGN_TEST_PAIRS = 1_000


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate and its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(count: int, n: int, z: float = Z_95) -> Interval:
    """The share `count / n` with Wilson's score interval. `ValueError` when n is 0.

    Source: Wilson (1927), J. Am. Stat. Assoc. 22, 209-212.
    """
    if n < 1:
        raise ValueError("a share of no games has no interval")
    share = count / n
    z2 = z * z
    denominator = 1 + z2 / n
    centre = (share + z2 / (2 * n)) / denominator
    half = z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / denominator
    low = 0.0 if count == 0 else max(0.0, centre - half)
    high = 1.0 if count == n else min(1.0, centre + half)
    return Interval(value=share, low=low, high=high)


def half_width(n: int, share: float = 0.5, z: float = Z_95) -> float:
    """Half the width of the Wilson interval to expect from n games at this true share."""
    z2 = z * z
    return z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)


def games_to_find(difference: float, *, share: float = 0.5) -> int:
    """How many games it takes to tell a share from one `difference` away, at 95 % confidence with 90 % power.

    Source: the normal approximation for one proportion, n = ((z_a + z_b) / d)^2 p (1 - p).
    """
    return math.ceil(((Z_95 + Z_POWER_90) / difference) ** 2 * share * (1 - share))


def paired_shares(better: int, worse: int, n: int) -> tuple[Interval, float]:
    """The difference of two shares over n pairs, of which `better` and `worse` differ; with its interval and p value.

    The interval is Agresti and Min's (half a pair added to each of the four cells); the p value is McNemar's, exact up
    to `EXACT_SIGN_TEST_PAIRS` pairs that differ. Source: Agresti and Min (2005), Statistics in Medicine 24, 729-740.
    """
    if n < 1:
        raise ValueError("no pairs, no difference")
    total = n + 2
    up, down = better + 0.5, worse + 0.5
    centre = (up - down) / total
    half = Z_95 * math.sqrt((up + down) - (up - down) ** 2 / total) / total
    value = (better - worse) / n
    interval = Interval(value=value, low=max(-1.0, min(value, centre - half)), high=min(1.0, max(value, centre + half)))
    return interval, sign_test(better, worse)


def sign_test(better: int, worse: int) -> float:
    """The two-sided p value of the sign test (McNemar's): exact where few pairs differ, else normal with correction."""
    differ = better + worse
    if differ == 0:
        return 1.0
    if differ <= EXACT_SIGN_TEST_PAIRS:
        tail = sum(math.comb(differ, i) for i in range(min(better, worse) + 1))
        return min(1.0, float(2 * tail / (1 << differ)))
    z = max(0.0, abs(better - worse) - 1) / math.sqrt(differ)
    return two_sided_p(z)


def paired_means(n: int, total: float, squares: float) -> tuple[Interval, float]:
    """The mean of n paired differences, from their sum and sum of squares; with its 95 % interval and p value."""
    if n < 2:
        raise ValueError("a mean difference needs two pairs")
    mean = total / n
    variance = max(0.0, (squares - total * total / n) / (n - 1))
    error = math.sqrt(variance / n)
    p = (1.0 if mean == 0 else 0.0) if error == 0 else two_sided_p(abs(mean) / error)
    return Interval(value=mean, low=mean - Z_95 * error, high=mean + Z_95 * error), p


def two_sided_p(z: float) -> float:
    """The probability that a standard normal value is further from 0 than z."""
    return math.erfc(abs(z) / math.sqrt(2))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values adjusted for being many (Holm's step-down), in the order given.

    Source: Holm (1979), Scandinavian Journal of Statistics 6, 65-70.
    """
    order = sorted(range(len(p_values)), key=lambda place: (p_values[place], place))
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


class Total:
    """A sum that does not depend on luck: `math.fsum` over each block of 4,096 values, and over the blocks' sums."""

    __slots__ = ("_block", "_sums")

    def __init__(self) -> None:
        self._block: list[float] = []
        self._sums: list[float] = []

    def add(self, value: float) -> None:
        self._block.append(value)
        if len(self._block) == BLOCK_GAMES:
            self._close_block()

    def value(self) -> float:
        return math.fsum([*self._sums, math.fsum(self._block)])

    def _close_block(self) -> None:
        self._sums.append(math.fsum(self._block))
        self._block.clear()
        # A batch of any length keeps a bounded list: full lists of sums become one sum, at fixed places.
        if len(self._sums) == BLOCK_GAMES:
            self._sums = [math.fsum(self._sums)]


class Bins:
    """Counts in fixed logarithmic bins: 256 equal parts of each power of two, at most 0.4 % of the value wide.

    Whole numbers up to 512 are exact. A quantile is the lower edge of its bin, kept within minimum and maximum.
    """

    __slots__ = ("counts", "n")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.n = 0

    def add(self, value: float) -> None:
        self.n += 1
        place = bin_of(value)
        self.counts[place] = self.counts.get(place, 0) + 1

    def quantiles(self, shares: Iterable[float], low: float, high: float) -> list[float]:
        """The values below which these shares lie (nearest rank). Empty bins: an empty list."""
        wanted = [max(1, math.ceil(share * self.n)) for share in shares]
        places = sorted(self.counts)
        found: list[float] = []
        seen = 0
        at = 0
        for rank in wanted:  # ascending shares
            while at < len(places) and seen + self.counts[places[at]] < rank:
                seen += self.counts[places[at]]
                at += 1
            if at < len(places):
                found.append(min(high, max(low, edge_of(places[at]))))
        return found


_OFFSET = 1_100


def bin_of(value: float) -> int:
    """The number of a value's bin: 0 for 0, positive and ascending for positive values, mirrored for negative ones."""
    if value == 0:
        return 0
    mantissa, exponent = math.frexp(abs(value))
    place = (exponent + _OFFSET) * BINS_PER_OCTAVE + int((mantissa - 0.5) * (2 * BINS_PER_OCTAVE)) + 1
    return place if value > 0 else -place


def edge_of(place: int) -> float:
    """The edge of a bin that is nearest to 0."""
    if place == 0:
        return 0.0
    exponent, part = divmod(abs(place) - 1, BINS_PER_OCTAVE)
    edge = math.ldexp(0.5 + part / (2 * BINS_PER_OCTAVE), exponent - _OFFSET)
    return edge if place > 0 else -edge


def significant(value: float, digits: int = 6) -> float:
    """A number as it is written into files: rounded to so many significant digits, never -0."""
    return float(f"{value:.{digits}g}") + 0.0
