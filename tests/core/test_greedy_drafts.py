"""Methods whose drafts are deterministic only because the request is greedy: ``drafts={"sampled", "greedy"}``."""

from __future__ import annotations

import pytest
import torch

from spec_core import Draft, PluginError, Refused, Run, hookimpl
from spec_core.testing import RuleConformance, ToyTarget, check_conformance
from spec_core.toolkit import TokenDrafter, choosers, walk_draft
from tests.core.toys import Drafts, Says


def dense(methods, rule=None):
    return Run(ToyTarget(recurrent=False), methods, rule=None if rule is None else ("rule", rule))


class Decides(Says):
    """A rule that judges these kinds, and chooses as the core does."""

    @hookimpl
    def accept(self, step):
        for seq, choice in choosers(step):
            step.decide(seq, walk_draft(step.part(seq).draft, choice))


class GreedyOrDrawn(Drafts):
    """Drafts the last token: drawn from a uniform row for a request with a temperature."""

    @hookimpl
    def draft(self, step):
        vocab = step.target.info.vocab
        for seq, _ in step.undrafted:
            drawn = seq.sampling.temperature > 0 and step.wants_probs
            step.propose(seq, Draft([1], probs=torch.full((1, vocab), 1 / vocab) if drawn else None))


@pytest.mark.parametrize(
    "judges, fits",
    [({"sampled", "greedy"}, True), ({"sampled", "deterministic"}, True), ({"sampled"}, False), ({"greedy"}, False)],
)
def test_a_rule_takes_greedy_drafts_if_it_judges_them_or_all_deterministic_ones(judges, fits):
    """The rule of a cascade needs no look-ups, and still takes a draft model whose greedy drafts have no rows."""
    method, rule = GreedyOrDrawn(drafts={"sampled", "greedy"}), Decides(judges=judges)
    if not fits:
        with pytest.raises(Refused, match="rule judges the proposals"):
            dense([method], rule)
        return
    run, plain = dense([method], rule), dense([])
    for temperature in (0.0, 0.8):
        texts = [one.generate([1], max_tokens=8, temperature=temperature, seed=3).result.tokens for one in (run, plain)]
        assert texts[0] == texts[1]


def test_a_rule_of_greedy_drafts_refuses_a_lookup():
    """Its drafts are deterministic at every temperature."""
    with pytest.raises(Refused, match=r"rule judges the proposals greedy, sampled; .* drafts deterministic"):
        dense([Drafts(drafts={"deterministic"})], Decides(judges={"sampled", "greedy"}))


def test_a_deterministic_draft_at_a_temperature_is_refused_before_any_token():
    """The error names what was declared, and the plugin."""
    run = dense([("mine", Drafts(drafts={"sampled", "greedy"}))])

    assert run.generate([1], max_tokens=4).result.tokens
    generation = run.generate([1], max_tokens=4, temperature=0.8)
    next(generation)  # the prompt's step drafts nothing
    with pytest.raises(
        PluginError, match=r"'mine' failed in draft: .* temperature 0.8, but compat declared greedy, sampled"
    ):
        next(generation)


def test_a_method_that_is_greedy_alone_is_offered_no_request_with_a_temperature():
    """It drafts the others of the batch."""
    run = dense([("mine", Drafts(drafts={"greedy"}))])
    texts = run.generate([[1], [1]], max_tokens=6)[0].result, None
    hot = run.generate([1], max_tokens=6, temperature=0.8, seed=3).result

    assert texts[0].stats["drafted"] > 0
    assert hot.stats["drafted"] == 0


def test_greedy_drafts_are_never_mixed_with_drawn_ones():
    """A request has one temperature, so a rule without ``mixed`` takes both; a look-up before it is refused."""
    rule = Decides(judges={"sampled", "deterministic"})
    after = GreedyOrDrawn(drafts={"sampled", "greedy"}, extends=True)

    assert dense([("before", GreedyOrDrawn(drafts={"sampled", "greedy"})), after], rule)
    with pytest.raises(Refused, match="some tokens were drawn and others not"):
        dense([Drafts(drafts={"deterministic"}), after], rule)


def test_the_proposal_of_a_draft_itself_is_deterministic():
    """Greedy is a fact about requests."""
    with pytest.raises(ValueError, match=r"got 'greedy'; greedy is said in Compat\(drafts=\.\.\.\)"):
        Draft([1], proposal="greedy")


def test_drafters_that_choose_as_the_request_does_say_so():
    """Chains are drawn wherever a rule reads rows."""
    assert TokenDrafter(0.1).proposals == {"greedy", "sampled", "unknown"}
    assert TokenDrafter(0.1, "greedy").proposals == {"deterministic"}
    assert TokenDrafter(0.1).tree_proposals == {"greedy", "sampled", "unknown", "deterministic"}


def test_a_rule_of_greedy_drafts_passes_the_kit():
    """The kit gives it deterministic drafts at temperature 0 alone."""
    outcomes = check_conformance(RuleConformance, lambda: Decides(judges={"sampled", "greedy"}))

    assert [one.found for one in outcomes if one.result == "broken"] == []
    assert "test_greedy_text_equals_plain_decoding" in [one.check for one in outcomes if one.result == "kept"]
