"""Matrices of methods against each other: the ratio of two rates on the same prompts, with its paired interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from spec_compare.figures.facets import Facet, facets
from spec_compare.figures.outcome import Outcome
from spec_compare.figures.pairs import Pair, both_ways
from spec_compare.figures.titles import cut_middle
from spec_compare.report.sections import NAME_MAX

HEAD_MAX = 24
"""Max characters of a name above a column."""


@attrs.frozen
class PairCell:
    """One contender over another. clear: the interval leaves out 1, so that one of both is faster."""

    ratio: str
    interval: str
    clear: bool


@attrs.frozen
class MatrixLine:
    """A contender over each of the others; None on the diagonal, and where texts forbid a ratio."""

    name: str
    whole: str
    cells: list[PairCell | None]


@attrs.frozen
class Matrix:
    """The contenders of a facet against each other. heads: (name that fits, whole name) of the columns."""

    caption: str
    heads: list[tuple[str, str]]
    lines: list[MatrixLine]


def matrices(outcome: Outcome) -> list[Matrix]:
    """A matrix per facet with two contenders or more that can be compared."""
    pairs = {(pair.contender, pair.other): pair for pair in both_ways(outcome.pairs)}
    listed = facets(outcome.header)
    built = [_matrix(facet, pairs, facet.title if len(listed) > 1 else "All families") for facet in listed]
    return [matrix for matrix in built if matrix.lines]


def _matrix(facet: Facet, pairs: Mapping[tuple[str, str], Pair], caption: str) -> Matrix:
    names = [name for name in facet.series if any(name == one for one, _ in pairs)]
    return Matrix(
        caption,
        [(cut_middle(facet.series[name], HEAD_MAX), facet.series[name]) for name in names],
        [_line(name, facet.series[name], names, pairs) for name in names],
    )


def _line(name: str, whole: str, names: Sequence[str], pairs: Mapping[tuple[str, str], Pair]) -> MatrixLine:
    cells = [_cell(pairs[name, other]) if (name, other) in pairs else None for other in names]
    return MatrixLine(cut_middle(whole, NAME_MAX), whole, cells)


def _cell(pair: Pair) -> PairCell:
    if pair.low is None or pair.high is None:
        return PairCell(f"{pair.ratio:.2f}×", "", clear=False)
    return PairCell(f"{pair.ratio:.2f}×", f"{pair.low:.2f}-{pair.high:.2f}", clear=pair.low > 1 or pair.high < 1)
