"""A test of several options without all of their combinations: every two values of two options meet once or more."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import pytest

Case = tuple[int, ...]


def every_pair(**options: Iterable) -> pytest.MarkDecorator:
    """Parametrise a test with few combinations, always the same; each is the one of most pairs that are missing."""
    names, values = list(options), [list(some) for some in options.values()]
    cases = list(itertools.product(*(range(len(some)) for some in values)))
    random.Random(0).shuffle(cases)
    missing = set().union(*map(pairs_of, cases))
    chosen = set()
    while missing:
        case = max(cases, key=lambda case: len(missing & pairs_of(case)))
        missing -= pairs_of(case)
        chosen.add(case)
    rows = [[some[i] for some, i in zip(values, case, strict=True)] for case in sorted(chosen)]
    return pytest.mark.parametrize(names, [pytest.param(*row, id="-".join(map(str, row))) for row in rows])


def pairs_of(case: Case) -> set[tuple]:
    """(option, value, option, value) of every two options; of one alone, its value."""
    places = list(enumerate(case))
    return {(a, b) for a, b in itertools.combinations(places, 2)} or {(place,) for place in places}
