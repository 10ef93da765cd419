"""Requests with a constraint: the text is that of plain constrained decoding, and a failure ends one sequence alone."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
import torch
from toys import DRAFTERS, drafter, plain, sampling_keywords, texts, together

from spec_core import Compat, Draft, Request, Run, Sampling, UsageError, Verdict, hookimpl
from spec_core.contract.fields import field_of
from spec_core.errors import ConstraintError
from spec_core.sampling import native, reference
from spec_core.sampling.choose import adjust_row, bits, draw_token
from spec_core.testing import ToyConstraint, ToyRollback, ToyTarget
from spec_core.testing.constraint import ToyMatcher
from spec_core.toolkit import allowed_mask, forced_tokens
from tests.support.choices import cases

EOG = frozenset({3})
PROMPT = [1, 2, 5]


def request_of(name: str = "a", seed: int = 0, temperature: float = 0.8, **more: Any) -> Request:
    more = {"constraint": ToyConstraint(seed, share=0.12, length=25), "max_tokens": 30, **more}
    return Request(PROMPT, name=name, **{**sampling_keywords(seed, temperature), **more})


def is_accepted(request: Request, tokens: list[int]) -> bool:
    matcher = request.constraint.start(ToyTarget(eog=EOG))
    return all(matcher.advance(token) for token in tokens if token not in EOG)


# the text


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("kind", DRAFTERS)
def test_the_text_is_that_of_plain_constrained_decoding(kind, temperature):
    """Every drafter, hybrid target, batch of four beside an unconstrained one."""
    requests = [request_of(f"c{i}", i, temperature) for i in range(4)]
    requests.append(attrs.evolve(requests[0], name="free", constraint=None))
    expected = [plain(r, eog=EOG) for r in requests]
    run = Run(ToyTarget(eog=EOG), [drafter(kind, texts(requests, eog=EOG))], rollback=ToyRollback("snapshot"))

    results = together(run, requests)

    assert [(r.tokens, r.finish_reason) for r in results] == [(r.tokens, r.finish_reason) for r in expected]
    assert all(is_accepted(r, result.tokens) for r, result in zip(requests[:4], results, strict=False))
    assert not is_accepted(requests[0], results[4].tokens)


def test_a_complete_text_ends_with_its_own_reason():
    request = request_of(constraint=ToyConstraint(share=0.2, length=7))

    result = plain(request)

    assert (len(result.tokens), result.finish_reason) == (7, "complete")


def test_a_text_ends_only_where_its_constraint_may_end():
    """The end-of-text token is allowed at every fifth position, and is the likeliest everywhere."""
    biased = Sampling(logit_bias={3: 50.0})

    result = plain(request_of(sampling=biased), eog=EOG)

    assert (len(result.tokens), result.tokens[-1], result.finish_reason) == (6, 3, "stop")


def test_the_end_of_a_constraint_is_found_within_a_draft():
    request = request_of(constraint=ToyConstraint(share=0.2, length=4))
    known = {"a": [*PROMPT, *plain(request).tokens, 7, 7, 7, 7]}
    run = Run(ToyTarget(recurrent=False), [drafter("all-right", known)])

    result = run.generate(request).result

    assert (result.tokens, result.finish_reason) == (plain(request, recurrent=False).tokens, "complete")


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal", "k-seq", "point-mass"])
def test_rules_with_private_noise_emit_only_what_is_allowed(rule):
    requests = [request_of(f"c{i}", i, 1.0) for i in range(6)]
    method = drafter("chains", texts(requests, eog=EOG, recurrent=False))
    run = Run(ToyTarget(eog=EOG, recurrent=False), [method], rule=rule)

    assert all(is_accepted(r, result.tokens) for r, result in zip(requests, together(run, requests), strict=True))


# the choice


@pytest.mark.skipif(native.module is None, reason="needs the extension")
def test_the_native_choice_under_a_mask_is_that_of_the_reference():
    """Bit by bit: token, logit and distance, for rows with bias, penalties and cuts."""
    rng = np.random.default_rng(0)
    for case in cases(5, 300):
        mask = rng.integers(0, 2**32, -(-len(case.row) // 32), dtype=np.uint32)
        mask |= rng.integers(0, 2**32, len(mask), dtype=np.uint32)
        history = case.tokens, case.prompt, case.drafted
        row = adjust_row(case.row, case.sampling, [*case.tokens, *case.drafted], case.prompt, mask)
        expected = reference.choose_token(row.numpy(), case.sampling, case.source, case.t)

        choice = draw_token(case.row, case.sampling, case.source, case.t, history, mask)

        np.testing.assert_array_equal(choice, expected)
        assert not np.isfinite(choice[1]) or mask[choice[0] // 32] >> (choice[0] % 32) & 1


def test_the_choice_without_native_code_is_the_same(monkeypatch):
    request = request_of()
    expected = plain(request).tokens
    monkeypatch.setattr(native, "module", None)

    assert Run(ToyTarget()).generate(request).result.tokens == expected


def test_tokens_beyond_the_mask_are_not_allowed():
    row, mask = torch.zeros(40), np.array([0b100], np.uint32)

    assert adjust_row(row, Sampling(), [], 0, mask).isfinite().nonzero().tolist() == [[2]]
    assert bits(mask) == (mask.ctypes.data, 1)
    assert draw_token(row, Sampling(), (0, 0, 0), 0, ((), 0, ()), mask)[0] == 2


# drafters


class Looks:
    """Records what the toolkit says about constraints; drafts what is forced."""

    def __init__(self) -> None:
        self.seen = []

    @hookimpl
    def compat(self):
        return Compat(drafts={"deterministic"})

    @hookimpl
    def draft(self, step):
        for seq, budget in step.undrafted:
            matcher = field_of(seq, "matcher")
            before = list(matcher.tokens) if matcher else None
            ids = forced_tokens(seq, [], budget)
            self.seen.append((allowed_mask(seq), ids, allowed_mask(seq, [*ids, 47, 47])))
            assert before is None or matcher.tokens == before
            if ids:
                step.propose(seq, Draft(ids))


def test_drafters_read_masks_and_forced_tokens():
    request = request_of(constraint=ToyConstraint(share=0.0, length=20))
    looks = Looks()

    result = Run(ToyTarget(recurrent=False), [looks], draft_max=4).generate(request).result

    assert result.tokens == plain(request, recurrent=False).tokens
    assert looks.seen[0][0].dtype == np.uint32 and len(looks.seen[0][1]) == 4
    assert not looks.seen[0][2].any()  # 47 twice is not allowed: nothing follows
    assert result.stats["steps"] <= 6


def test_without_a_constraint_everything_is_allowed():
    looks = Looks()
    Run(ToyTarget(recurrent=False), [looks]).generate([1, 2], max_tokens=3).result

    assert looks.seen[0] == (None, [], None)


# failures


@attrs.define(eq=False)
class Broken(ToyMatcher):
    """Fails in one way after some tokens."""

    how: str = ""
    after: int = 3

    @property
    def _now(self) -> bool:
        return len(self.tokens) >= self.after

    def masks(self, drafted):
        rows = super().masks(drafted)
        if self.how == "dead end":
            empty = range(max(0, self.after - len(self.tokens)), len(rows))
            rows[list(empty)] = 0
            return rows
        if not self._now:
            return rows
        if self.how == "raises":
            raise RuntimeError("no masks today")
        if self.how == "shape":
            return rows[:, :1]
        return rows.astype(np.int64) if self.how == "type" else rows

    def advance(self, token):
        if self._now and self.how == "refuses":
            return False
        return super().advance(token)


@attrs.frozen
class BrokenConstraint(ToyConstraint):
    how: str = ""

    def start(self, target):
        if self.how == "start":
            raise RuntimeError("not today")
        return Broken(self, target.info.vocab, target.info.eog, how=self.how)


WAYS = {
    "dead end": "allows no token after 3 tokens of output",
    "raises": "RuntimeError: no masks today",
    "shape": "masks of shape",
    "type": "masks of type int64: needed is uint32",
    "refuses": "does not accept token",
}


@pytest.mark.parametrize("drafted", [False, True], ids=["plain", "drafted"])
@pytest.mark.parametrize("how", WAYS)
def test_a_constraint_that_fails_ends_its_own_sequence(how, drafted):
    bad = request_of("bad", constraint=BrokenConstraint(share=0.2, how=how))
    good = request_of("good", 1)
    right = plain(attrs.evolve(bad, constraint=ToyConstraint(share=0.2)), recurrent=False).tokens
    known = {"bad": [*PROMPT, *right], "good": [*PROMPT, *plain(good, recurrent=False).tokens]}
    run = Run(ToyTarget(recurrent=False), [drafter("all-right", known), Looks()] if drafted else [])

    seqs = [run.submit(bad), run.submit(good)]
    for _ in run:
        pass

    assert run.take(seqs[1]).tokens == known["good"][3:]
    assert run.stats.switched_off == {}
    result = run.results[seqs[0]]
    assert result.finish_reason == "error"
    if how == "dead end":  # with drafts too, what came before is kept
        assert result.tokens == right[:3]
    with pytest.raises(ConstraintError, match=WAYS[how]) as caught:
        run.take(seqs[0])
    assert caught.value.hint


class KeepsAll:
    """A rule that looks at nothing."""

    @hookimpl
    def compat(self):
        return Compat(lossy="keeps every draft")

    @hookimpl
    def accept(self, step):
        for seq in list(step.undecided):
            draft = step.part(seq).draft
            if draft is not None:
                step.decide(seq, Verdict(range(len(draft)), 0))


def test_a_rule_cannot_put_a_forbidden_token_into_the_text():
    request = request_of()
    known = {"a": [*PROMPT, *([9] * 40)]}
    run = Run(ToyTarget(recurrent=False), [drafter("all-right", known)], rule=KeepsAll())
    seq = run.submit(request)
    for _ in run:
        pass

    assert is_accepted(request, run.results[seq].tokens)
    with pytest.raises(ConstraintError, match="rule 'keeps-all' kept token 9, which the constraint does not allow"):
        run.take(seq)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"constraint": "{}"}, r"constraint = '\{\}'"),
        ({"constraint": ToyConstraint(), "ignore_eos": True}, "ignore_eos and a constraint"),
        ({"constraint": BrokenConstraint(how="start")}, "failed at its start: RuntimeError: not today"),
    ],
    ids=["text", "ignore-eos", "start"],
)
def test_a_constraint_that_cannot_start_is_refused(fields, message):
    with pytest.raises(UsageError, match=message):
        Run(ToyTarget()).submit(PROMPT, **fields)
