"""``min_tokens``: before it no token that ends a text is chosen, and no stop text ends it, whatever is drafted."""

from __future__ import annotations

import attrs
import pytest

from spec_core import Draft, Request, Run, Sampling, UsageError, hookimpl
from spec_core.testing.constraint import ToyConstraint
from spec_core.testing.toy import ToyTarget

EOG = frozenset({3, 4, 5, 6})
FAVOURS_ENDS = dict.fromkeys((*EOG, 9), 6.0)


@attrs.define(eq=False)
class DraftsEnds:
    """Drafts a token that ends texts, behind one that does not."""

    @hookimpl
    def draft(self, step):
        for seq, budget in step.undrafted:
            step.propose(seq, Draft([7, 3, 8][: min(budget, 3)]))


def target():
    return ToyTarget(recurrent=False, eog=EOG)


def generate(request, methods=(), **more):
    with Run(target(), methods, draft_max=3, **more) as run:
        return run.generate(request).result


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("methods", [(), (DraftsEnds(),)], ids=["plain", "drafted"])
def test_no_end_comes_before(temperature, count, methods):
    sampling = Sampling(temperature=temperature, logit_bias=FAVOURS_ENDS)
    for seed in range(6):
        request = Request([1, 2], max_tokens=20, seed=seed, sampling=sampling, stop_tokens={9}, min_tokens=count)
        result = generate(request, methods)

        assert not {*result.tokens[:count]} & (EOG | {9})
        assert len(result.tokens) > count or result.tokens[-1] in EOG | {9}
        assert result.tokens == generate(request).tokens
    assert len(generate(attrs.evolve(request, min_tokens=0)).tokens) <= count + 1


def test_ends_are_forbidden_also_where_they_end_nothing():
    """vLLM's meaning: with ``ignore_eos`` too."""
    sampling = Sampling(logit_bias=FAVOURS_ENDS)
    result = generate(Request([1, 2], max_tokens=8, sampling=sampling, ignore_eos=True, min_tokens=4))

    assert not {*result.tokens[:4]} & EOG and {*result.tokens[4:]} & EOG


def test_a_stop_text_is_not_searched_before():
    with Run(ToyTarget(recurrent=False)) as run:
        whole = run.generate([1, 2], max_tokens=12).text
        stop = whole[1]
        stopped = run.generate([1, 2], max_tokens=12, stop=stop).result
        later = run.generate([1, 2], max_tokens=12, stop=stop, min_tokens=2).result

    assert len(stopped.tokens) <= 2 < len(later.tokens)
    assert later.text == whole[:2] + whole[2:].partition(stop)[0]


def test_a_constraint_that_allows_only_the_end_ends_the_text():
    request = Request([7], max_tokens=20, constraint=ToyConstraint(share=0.3, length=3), min_tokens=10)
    with Run(ToyTarget(recurrent=False, eog=frozenset({0})), draft_max=3) as run:
        result = run.generate(request).result

    assert result.finish_reason in ("complete", "stop")


def test_min_tokens_may_equal_max_tokens():
    assert len(generate(Request([1, 2, 3], max_tokens=5, min_tokens=5)).tokens) == 5


@pytest.mark.parametrize(("wrong", "message"), [(-1, "min_tokens"), (1.5, "min_tokens"), (21, "more than max_tokens")])
def test_what_it_cannot_be_is_refused(wrong, message):
    with pytest.raises(UsageError, match=message):
        generate(Request([1, 2], max_tokens=20, min_tokens=wrong))


def test_a_rule_for_sampled_drafts_reads_it():
    sampling = Sampling(temperature=0.9, logit_bias=FAVOURS_ENDS)
    for seed in range(6):
        request = Request([1, 2], max_tokens=20, seed=seed, sampling=sampling, min_tokens=6)
        assert not {*generate(request, [DraftsEnds()], rule="rejection").tokens[:6]} & EOG
