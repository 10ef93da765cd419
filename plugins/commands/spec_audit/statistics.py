"""Two-sample tests with bounded false alarms, and the smallest bias that they find.

Sources: Fisher's exact test for each next character (R. A. Fisher, 1922); Pearson's chi-squared test of homogeneity
for all texts at once; Bonferroni's correction over tests; alpha spending over looks (Lan and DeMets, 1983).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import sqrt

import attrs

from spec_audit.trie import branches, classes
from spec_core.errors import UsageError

LOOKS = ((0.25, 0.1), (0.5, 0.2), (1.0, 0.7))
"""(part of the draws, part of the false alarms) of each look at the data."""
ALPHA = 0.02
"""False alarms of a whole audit without faults, at most."""
SYMBOLS = 24
"""Max characters that are tested in one look at a prompt: those with the most draws."""
POWER = 0.99
"""Chance of finding the bias that is printed."""


def check_installed() -> None:
    """Raise UsageError if scipy or httpx is not installed."""
    try:
        import httpx  # noqa: F401
        import scipy.stats  # noqa: F401
    except ImportError as error:
        raise UsageError(f"spec audit needs {error.name}", hint="pip install 'spec-core[audit]'") from error


@attrs.frozen
class Excess:
    """A character whose frequency was compared. counts: draws of each arm with it; totals: draws that reach it."""

    beginning: str
    symbol: str
    counts: tuple[int, int]
    totals: tuple[int, int]
    chance: float

    @property
    def shares(self) -> tuple[float, float]:
        """Frequency in each arm."""
        return self.counts[0] / max(1, self.totals[0]), self.counts[1] / max(1, self.totals[1])


@attrs.frozen
class Comparison:
    """Two samples of texts. chance: p-value corrected for both kinds of test. worst_excess: of the most different
    character."""

    chance: float
    worst_excess: Excess | None
    symbols: tuple[Excess, ...]


def compare_texts(first: Mapping[str, int], second: Mapping[str, int]) -> Comparison:
    """Whether two samples of texts have the same distribution: half of the alarms each for symbols and for all texts.

    Which characters are tested depends on the sum of both samples alone, so every single test stays exact.
    """
    from scipy import stats

    tables = [
        (branch.beginning, symbol, pair, branch.totals)
        for branch in branches(first, second)
        for symbol, pair in _testable_symbols(branch.counts)
    ]
    tables.sort(key=lambda table: -min(sum(table[2]), sum(table[3]) - sum(table[2])))
    chosen = tables[:SYMBOLS]
    chances = fisher_chances([pair for *_, pair, _ in chosen], [totals for *_, totals in chosen])
    symbols = tuple(Excess(*table, chance) for table, chance in zip(chosen, chances, strict=True))
    parts = classes(first, second)
    joint = float(stats.chi2_contingency(list(zip(*parts, strict=True)))[1]) if len(parts) > 1 else 1.0
    worst = min(symbols, key=lambda symbol: symbol.chance, default=None)
    # SYMBOLS and not their number: the correction must not depend on the look.
    single = min(1.0, 2 * SYMBOLS * worst.chance) if worst else 1.0
    return Comparison(min(single, 2 * joint, 1.0), worst, symbols)


def _testable_symbols(counts: Mapping[str, tuple[int, int]]) -> list[tuple[str, tuple[int, int]]]:
    """Symbols of a branch to test: of two, the other one is implied."""
    ordered = sorted(counts.items(), key=lambda item: (-sum(item[1]), item[0]))
    return ordered[:-1]


def fisher_chances(pairs: Sequence[tuple[int, int]], totals: Sequence[tuple[int, int]]) -> list[float]:
    """Fisher's exact test of each pair of counts: twice the smaller tail."""
    import numpy as np
    from scipy import stats

    if not pairs:
        return []
    (first, second), (first_total, second_total) = np.array(pairs).T, np.array(totals).T
    below = stats.hypergeom(first_total + second_total, first + second, first_total)
    return np.minimum(1.0, 2 * np.minimum(below.cdf(first), below.sf(first - 1))).tolist()


def smallest_bias(share: float, draws: int, level: float) -> float | None:
    """The smallest growth of a probability that a test at this level finds with 99 %, from ``draws`` of each arm.

    level: of the single test. None if no growth is large enough.
    """
    from scipy import optimize, stats

    if draws < 1:
        return None
    limit, reserve = stats.norm.isf(level / 2), stats.norm.isf(1 - POWER)

    def lack(growth: float) -> float:
        other, middle = share + growth, share + growth / 2
        under_null = sqrt(2 * middle * (1 - middle) / draws)
        apart = sqrt((share * (1 - share) + other * (1 - other)) / draws)
        # Two draws of continuity: Fisher's test is a little conservative.
        return growth - 2 / draws - limit * under_null - reserve * apart

    highest = 1 - share
    return float(optimize.brentq(lack, 0, highest)) if lack(highest) > 0 else None


def symbol_level(alpha: float) -> float:
    """Level of the test of one character in the last look, of a comparison that may alarm with ``alpha``."""
    return alpha * LOOKS[-1][1] / 2 / SYMBOLS


def least_bias(symbols: Sequence[Excess], alpha: float, first: Callable[[str], bool]) -> tuple[Excess, float] | None:
    """The smallest bias that is found, at the character that is most evenly drawn.

    first: whether a beginning lies in the first token, which no draft can change.
    """
    later, level = (symbol for symbol in symbols if not first(symbol.beginning)), symbol_level(alpha)
    biases = ((symbol, smallest_bias(symbol.shares[0], min(symbol.totals), level)) for symbol in later)
    return next(((symbol, bias) for symbol, bias in biases if bias is not None), None)


def repeated_more(texts: Sequence[str], lag: int) -> float:
    """Chance that texts ``lag`` apart are equal as often as these are, if all draws are independent."""
    from scipy import stats

    counts, number = Counter(texts), len(texts)
    expected = sum(c * (c - 1) for c in counts.values()) / (number * (number - 1)) if number > 1 else 1.0
    places = [i for i in range(number - lag) if (i // lag) % 2 == 0]
    equal = sum(texts[i] == texts[i + lag] for i in places)
    if not places or expected >= 1:
        return 1.0
    return float(stats.binomtest(equal, len(places), expected, alternative="greater").pvalue)


def worse_than(differing: int, number: int, floor: tuple[int, int]) -> float:
    """Chance of at least this number of differing texts if texts differ as often as in the floor, by Fisher's test."""
    from scipy import stats

    table = [[differing, number - differing], [floor[1], floor[0] - floor[1]]]
    return float(stats.fisher_exact(table, alternative="greater")[1])


def interval(ratios: Sequence[float], seed: int) -> tuple[float, float]:
    """The 95 % bootstrap interval of a median (Efron, 1979: percentiles)."""
    import numpy as np
    from scipy import stats

    if len(ratios) < 2 or min(ratios) == max(ratios):
        return min(ratios), max(ratios)
    rng = np.random.default_rng(seed)
    result = stats.bootstrap((list(ratios),), np.median, method="percentile", n_resamples=999, rng=rng)
    return float(result.confidence_interval.low), float(result.confidence_interval.high)
