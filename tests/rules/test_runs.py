"""Rules in a run: the distribution of whole texts, refusals at the start, temperature 0, failures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sampler import SAMPLED, Sampler, near, text_distribution

from spec_core import Compat, PluginError, Refused, Request, Run, Sampling, hookimpl
from spec_core.assembly.discovery import discover_plugins
from spec_core.errors import TargetError
from spec_core.testing import Oracle, ToyTarget
from tests.core.toys import chi_square_p, dense, finish, ones, plain

TINY = {"vocab": 3, "width": 4, "recurrent": False, "sharpness": 1.0}
PROMPT, N, TEXTS = [0, 2], 4, 400
DREW = ["rejection", "block", "traversal", "k-seq"]
LOSSLESS = [*DREW, "point-mass"]

lossless = pytest.mark.parametrize("rule", LOSSLESS)


@pytest.fixture(scope="module")
def tiny():
    return ToyTarget(**TINY)


@pytest.fixture(scope="module")
def distribution(tiny):
    return text_distribution(tiny, PROMPT, N)


def count_texts(run: Run, distribution: dict, sampling: Sampling = SAMPLED) -> np.ndarray:
    """Counts of the texts over seeds."""
    seqs = [run.submit(PROMPT, max_tokens=N, seed=seed, sampling=sampling) for seed in range(TEXTS)]
    finish(run)
    order = {text: i for i, text in enumerate(distribution)}
    return np.bincount([order[tuple(run.take(seq).tokens)] for seq in seqs], minlength=len(distribution))


def p_value(counts: np.ndarray, distribution: dict) -> float:
    return chi_square_p(counts, np.array(list(distribution.values())))


@pytest.mark.repeats(2)
@lossless
def test_texts_of_a_sampling_drafter_have_the_targets_distribution(rule, tiny, distribution):
    """Through the whole loop, over several steps: chi-square of all texts of four tokens."""
    run = Run(tiny, [Sampler(near(tiny))], rule=rule, max_sequences=32)

    assert p_value(count_texts(run, distribution), distribution) > 1e-3
    assert run.stats.report()["draft_acceptance"] > 0.3


@pytest.mark.repeats(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "rule, replace", [*((rule, False) for rule in LOSSLESS if rule != "k-seq"), ("rejection", True), ("k-seq", True)]
)
def test_texts_of_a_sampling_tree_have_the_targets_distribution(rule, replace, tiny, distribution):
    """Siblings drawn with and without replacement."""
    run = Run(tiny, [Sampler(near(tiny), (2, 2), replace)], rule=rule, max_sequences=32)

    assert p_value(count_texts(run, distribution), distribution) > 1e-3
    assert run.stats.report()["accepted_per_step"] > 0.5


def test_the_chi_square_finds_a_lossy_rule(tiny, distribution):
    """The same measure and the same number of texts."""
    run = Run(tiny, [Sampler(near(tiny))], rule="typical", max_sequences=32)

    assert p_value(count_texts(run, distribution), distribution) < 1e-6


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_cuts_and_penalties_are_applied_with_the_drafted_prefix(rule, tiny):
    """The distribution is that of plain decoding, where a token that was just said is penalised at once."""
    sampling = Sampling(temperature=0.9, top_k=2, repetition_penalty=1.6)
    distribution = text_distribution(tiny, PROMPT, N, sampling)

    assert (
        p_value(
            count_texts(Run(tiny, [Sampler(near(tiny))], rule=rule, max_sequences=32), distribution, sampling),
            distribution,
        )
        > 1e-3
    )


@lossless
@pytest.mark.parametrize("kind", ["right", "wrong"])
def test_at_temperature_0_every_rule_is_exact_match(rule, kind):
    """The core decides at temperature 0: the text is plain decoding's, token for token."""
    request = Request([3, 1, 4], max_tokens=12, name="a")
    text = {"a": [3, 1, 4, *plain(request, recurrent=False).tokens]}
    run = dense([Oracle(text, lambda i, seq: kind == "right")], rule=rule)

    assert plain(request, recurrent=False).tokens == run.generate(request).result.tokens


@lossless
def test_the_same_seed_gives_the_same_text(rule, tiny):
    """Coins are a function of seed, position and the request's number; they do not depend on the requests beside it."""
    requests = [Request(PROMPT, max_tokens=9, seed=seed, sampling=SAMPLED) for seed in range(6)]
    by_slots = []
    for slots in (1, 4, 4):
        run = Run(tiny, [Sampler(near(tiny))], rule=rule, max_sequences=slots, reuse=False)
        seqs = [run.submit(r) for r in requests]
        finish(run)
        by_slots.append([run.take(seq).tokens for seq in seqs])

    assert by_slots[0] == by_slots[1] == by_slots[2]


@lossless
def test_a_request_alone_in_a_fresh_run_is_reproduced_by_its_seed(rule, tiny):
    alone = lambda seed: Run(tiny, [Sampler(near(tiny))], rule=rule).generate(
        PROMPT, max_tokens=9, seed=seed, sampling=SAMPLED
    ).result.tokens  # fmt: skip

    assert [alone(seed) for seed in range(6)] == [alone(seed) for seed in range(6)]
    assert len({tuple(alone(seed)) for seed in range(6)}) > 1


# refusals


class Declares:
    """Declares its proposal."""

    def __init__(self, *proposals):
        self.proposals = proposals

    @hookimpl
    def compat(self):
        return Compat(drafts=self.proposals)

    @hookimpl
    def draft(self, step):
        pass


@pytest.mark.parametrize("rule", DREW)
def test_a_rule_with_ratios_refuses_drafts_of_unknown_proposal(rule):
    """At the start, with a hint: the rule divides by q."""
    with pytest.raises(Refused, match=f"rule {rule} judges the proposals deterministic, mixed, sampled") as error:
        dense([("secret", Declares("unknown"))], rule=rule)

    assert f"leave --rule out (the default judges every proposal), or run {rule} without secret" in str(error.value)
    assert dense([Declares("sampled"), ones()], rule=rule)


@pytest.mark.parametrize("rule", ["point-mass", "typical", "synthetic"])
def test_the_other_rules_judge_drafts_of_every_proposal(rule):
    run, asked_for = dense([Declares("sampled", "unknown", "deterministic")], rule=rule), []
    run.observe(lambda step: asked_for.append(step.wants_probs))
    run.generate([3, 1, 4], max_tokens=2).result

    assert asked_for and not any(asked_for)


def test_siblings_of_other_rows_are_no_case_for_k_seq(tiny):
    with pytest.raises(PluginError, match="k-seq judges siblings drawn independently from one distribution") as error:
        Run(tiny, [Sampler(near(tiny), (2,))], rule="k-seq").generate(PROMPT, max_tokens=4, sampling=SAMPLED).result

    assert "use --rule rejection or traversal" in str(error.value)


@pytest.mark.parametrize("rule", [*LOSSLESS, "typical"])
def test_logits_that_are_no_numbers_end_their_sequence_only(rule, tiny):
    class Sick(ToyTarget):
        def forward(self, batch, needs):
            output = super().forward(batch, needs)
            for part in batch.parts:
                if part.seq.name == "sick" and part.drafted:
                    output.logits[part.logits_row] = torch.nan
            return output

    run = Run(Sick(**TINY), [Sampler(near(tiny))], rule=rule)
    sick, well = (run.submit(PROMPT, max_tokens=N, sampling=SAMPLED, name=name) for name in ("sick", "well"))
    finish(run)

    with pytest.raises(TargetError, match="NaN"):
        run.take(sick)
    assert len(run.take(well).tokens) == N


def test_all_rules_are_installed():
    assert {*LOSSLESS, "coupled", "typical", "synthetic"} <= {entry.name for entry in discover_plugins(["rule"])}
