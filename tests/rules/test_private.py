"""No two requests of a run share private coins, so the text of one may be drafted for the next.

The long form is ``tests/campaigns/text_distribution.py``.
"""

from __future__ import annotations

import pytest
from spec_methods.ngram import Ngram
from spec_methods.recycling import Recycling
from spec_methods.suffix import Suffix

from spec_core import Run
from spec_core.testing import QuickTarget
from tests.campaigns.text_distribution import (
    IMPROBABLE,
    SAMPLED,
    away,
    bound_of,
    campaign,
    chance,
    distribution_of,
    texts,
)
from tests.core.toys import finish

TEXTS = 400


@pytest.mark.repeats(1)
@pytest.mark.slow
@pytest.mark.parametrize("case", ["ngram rejection", "ngram block", "suffix rejection", "suffix block"])
def test_the_second_of_two_equal_requests_has_the_targets_distribution(case):
    """Same prompt, same seed, drafted from a store that has the first one's text."""
    distribution = distribution_of(case)
    counts = texts(case, range(TEXTS))

    assert away(counts, distribution) < bound_of(TEXTS, len(distribution))
    assert chance(counts, distribution) > IMPROBABLE


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal", "k-seq", "point-mass"])
def test_equal_requests_get_texts_of_their_own(rule):
    """Also without drafts: tokens that the core chooses are drafted for the next request."""
    run = Run(QuickTarget(), rule=rule)
    seqs = [run.submit([0, 1], max_tokens=12, seed=0, sampling=SAMPLED) for _ in range(4)]
    finish(run)

    assert len({tuple(run.take(seq).tokens) for seq in seqs}) == 4


def test_under_shared_noise_equal_requests_get_one_text():
    run = Run(QuickTarget())
    seqs = [run.submit([0, 1], max_tokens=12, seed=0, sampling=SAMPLED) for _ in range(4)]
    finish(run)

    assert len({tuple(run.take(seq).tokens) for seq in seqs}) == 1


@pytest.mark.parametrize("method", [Ngram(shared=True), Suffix(shared=True), Recycling(shared=True)], ids=type)
def test_what_is_shared_is_of_one_run(method):
    """An instance that is used again drafts nothing from the run before: there a seed begins anew."""
    before = method.common
    Run(QuickTarget(), [method])

    assert method.common is not before


def test_an_interrupted_campaign_goes_on_where_it_was(tmp_path):
    """Counts are saved after every block, and the same seeds give the same counts."""
    kept = tmp_path / "texts.json"
    (_, some), (_, whole) = (next(campaign(n, kept, ["ngram block"])) for n in (8, 20))

    assert (some.total(), whole.total()) == (8, 20)
    assert whole == texts("ngram block", range(20))
