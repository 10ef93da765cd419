"""Choices of texts as columns are the arrays of the same choices one by one."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from spec_core import Sampling
from spec_core.sampling.draws import Draw, PlainRows, pack_columns, pack_draws
from spec_core.sampling.noise import DOMAIN_CHOICE, DOMAIN_TOKEN

SPANS = [
    PlainRows(0, Sampling(0.8), (12345, 7, DOMAIN_TOKEN), 40, (0,)),
    PlainRows(1, Sampling(0.0), (-1, -2, DOMAIN_CHOICE), 0, (0, 1, 1, 2, 3)),
    PlainRows(6, Sampling(1.3), ((1 << 64) + 5, 1 << 40, DOMAIN_TOKEN), 1 << 31, (0, 1)),
    PlainRows(9, Sampling(0.1), (3, 4, DOMAIN_TOKEN), 5, ()),
]


@pytest.mark.parametrize("spans", [SPANS, SPANS[:1], SPANS[1:2]])
def test_columns_are_the_arrays_of_single_choices(spans):
    """Trees, negative and large seeds, a text without rows."""
    draws = [
        Draw(span.row + i, span.sampling, span.source, span.t + depth)
        for span in spans
        for i, depth in enumerate(span.depths)
    ]
    columns, expected = pack_columns(spans, 300), pack_draws(draws, 300)

    for field in attrs.fields(type(expected)):
        one, other = getattr(columns, field.name), getattr(expected, field.name)
        assert one.dtype == other.dtype and np.array_equal(one, other), field.name
