"""Checks of a drafter's proposals: budget, kind of proposal, probs, forwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np
import pytest
import torch

from spec_core.assembly.hooks import ask_compat
from spec_core.contract.batch import Batch, TargetOutput
from spec_core.contract.kinds import is_declared
from spec_core.contract.request import Request
from spec_core.contract.step import Step
from spec_core.contract.values import Compat, Draft
from spec_core.errors import PluginError
from spec_core.sampling.parameters import Sampling
from spec_core.testing.conformance.base import Conformance, describe_request, expect, run_together
from spec_core.testing.conformance.held import tensors
from spec_core.testing.conformance.probes import SUBJECT, Cut, Drafts, Judge, Watched, record_drafts, views
from spec_core.testing.conformance.promise import Found, promise
from spec_core.testing.conformance.proposals import Offer, proposals
from spec_core.testing.drafters import Oracle

CUT = Sampling(temperature=0.7, top_k=8)
FAR = 6.0
"""Max standard deviations between a mean and its expectation; the seeds are fixed, so results do not vary."""


class DraftChecks(Conformance):
    """Part of DrafterConformance."""

    def all_offered(self, bad: Callable[[Offer], bool], first: Any = (), **settings: Any) -> list[Offer]:
        """All drafts of a run; raises Found for the first bad one."""
        failure = None
        with proposals() as offers:
            try:
                run_together(self.run([*first, self.mine()], **settings), self.requests())
            except PluginError as error:  # refused by the core, but recorded in the offers
                failure = error
        for offer in offers:
            if bad(offer):
                raise Found(f"{offer}; proposal {offer.draft.proposal!r}")
        if failure is not None:
            raise failure
        return offers

    @promise("The method drafts after the kit's prompts.")
    def test_it_drafts_after_the_kits_prompts(self) -> None:
        offers = self.all_offered(lambda offer: False)
        expect(bool(offers), "no draft; override prompts() with texts after which the method drafts")

    @promise("A path has max budget tokens, a tree max step.nodes(seq).")
    def test_drafts_keep_the_budget(self) -> None:
        for settings in (
            {"draft_max": 1},
            {"draft_max": 2, "nodes_max": 3},
            {"draft_max": 5, "max_batched_tokens": 12},
            {},
        ):
            self.all_offered(exceeds_limit, **settings)

    @promise("A method that drafts nothing proposes nothing: no draft is empty.")
    def test_no_draft_is_empty(self) -> None:
        self.all_offered(lambda offer: len(offer.draft) == 0)

    @promise("Drafted tokens are ids of the target's vocabulary.")
    def test_drafted_tokens_are_in_the_vocabulary(self) -> None:
        vocab = self.model.info.vocab
        self.all_offered(lambda offer: not all(0 <= token < vocab for token in offer.draft.ids))

    @promise("Only sequences of step.undrafted are drafted, none that already has a draft.")
    def test_only_offered_sequences_are_drafted(self) -> None:
        known = {r.name: self.text_of(r) for r in self.requests()[::2]}
        served = Oracle({**dict.fromkeys(map(str, range(99)), []), **known}, vocab=self.model.info.vocab)
        self.all_offered(lambda offer: not offer.free, first=[served], prefill_chunk=3)

    @promise("compat declared the kind of proposal of every draft.")
    def test_declared_proposals_are_kept(self) -> None:
        for rule in (None, Judge()):
            declared = self.run([self.mine()], rule=rule).proposals[SUBJECT]
            self.all_offered(_is_undeclared(declared), rule=rule)

    @promise("A deterministic draft is a function of the text; it does not depend on the seed or on random numbers.")
    def test_deterministic_drafts_are_the_same_twice(self) -> None:
        greedy = self.requests(temperatures=(0.0,))
        reseeded = [attrs.evolve(r, seed=r.seed + 1000) for r in greedy]
        for key, (one, two) in self._twice(greedy, reseeded):
            if one is not None and one.proposal == "deterministic":
                expect(two is not None and shape(one) == shape(two), f"{_both(one, two)} {_where(greedy, key)}")

    @promise("Random numbers come from step.noise: the same request gets the same drafts again.")
    def test_the_same_request_gets_the_same_drafts(self) -> None:
        requests = self.requests()
        for key, (one, two) in self._twice(requests, requests):
            expect(shape(one) == shape(two), f"{_both(one, two)} {_where(requests, key)}")

    def _twice(self, first: list[Request], second: list[Request]) -> Iterator[tuple[Any, Any]]:
        """(key, (draft, draft)) of two runs with different states of the global random generators."""
        drafts = []
        for seed, requests in enumerate((first, second)):
            run = self.run([self.mine()], rule=Cut(1))
            drafts.append(record_drafts(run))
            with seed_generators(seed):
                run_together(run, requests)
        for key in sorted({*drafts[0], *drafts[1]}):
            yield key, (drafts[0].get(key), drafts[1].get(key))

    @promise("Probs are rows [K, V] of distributions: finite, min 0, sum 1, positive for the drafted tokens.")
    def test_rows_are_distributions(self) -> None:
        vocab = self.model.info.vocab
        for noise in ("shared", "private"):
            offers = self.all_offered(lambda offer: not _distributions(offer.draft, vocab), rule=Judge(noise))
        if all(offer.draft.proposal != "sampled" for offer in offers):
            pytest.skip("drafts without probs")

    @promise("Probs cost memory: they are computed only if the selected rule reads them.")
    def test_rows_only_where_they_are_wanted(self) -> None:
        self.all_offered(lambda offer: offer.draft.probs is not None)

    @promise("Tokens of proposal 'sampled' are drawn from their rows of probs.")
    def test_drafts_are_drawn_from_their_rows(self) -> None:
        drawn = self._drawn_tokens()
        if not drawn:
            pytest.skip("drafts without probs")
        tokens, q = torch.tensor([t for t, _ in drawn]), torch.stack([row for _, row in drawn]).double()
        off = sharpness(tokens, q)
        expect(abs(off) < FAR, f"the mean probability of {len(tokens)} drawn tokens is {off:.1f} sigma off")
        worst, off = frequency(tokens, q)
        expect(abs(off) < FAR, f"the count of {worst} in {len(tokens)} drawn tokens is {off:.1f} sigma off")

    def _drawn_tokens(self) -> list[tuple[int, torch.Tensor]]:
        """(token, its row) of every sampled draft, over many seeds, of whole and of truncated distributions."""
        rows = [draft for draft in self._sampled_drafts(Judge("private")).values() if draft.proposal == "sampled"]
        return [(token, row) for draft in rows for token, row in zip(draft.ids, _rows(draft), strict=True)]

    def _sampled_drafts(self, *rules: Any) -> Drafts:
        hot = self.requests(temperatures=(1.0,) * 12)
        cut = [attrs.evolve(r, sampling=CUT) if i % 2 else r for i, r in enumerate(hot)]
        run = self.run([*rules[1:], self.mine()], target=self.long_model, rule=rules[0])
        drafts = record_drafts(run)
        run_together(run, cut)
        return drafts

    @promise("Under private noise a rejected position is drawn again with new numbers.")
    def test_positions_are_drawn_again_from_new_numbers(self) -> None:
        drafts = self._sampled_drafts(Cut(0), Judge("private"))
        again = [(one.ids[1], two) for one, two in _consecutive_drafts(drafts)]
        if not again:
            pytest.skip("drafts without probs, or never two tokens")
        same = sum(token == two.ids[0] for token, two in again)
        p = torch.stack([_rows(two)[0, token] for token, two in again]).double()
        off = float((same - p.sum()) / (p * (1 - p)).sum().clamp_min(1e-9).sqrt())
        expect(off < FAR, f"{same} of {len(again)} tokens are the same when drawn again, {off:.1f} sigma too many")

    @promise("A step costs max Compat.forwards(K) forwards of the method's own, K being the longest drafted path.")
    def test_forwards_are_as_promised(self) -> None:
        run = self.run([self.mine()])
        promised = next(c.compat.forwards for c in run.plugins if c.name == SUBJECT)
        run.observe(lambda step: kept_to(step, promised))
        run_together(run, self.requests())

    @promise("compat uses only target.info and metadata: no forward, no weight, no memory of a sequence.")
    def test_compat_reads_metadata_only(self) -> None:
        plugin = self.make()
        before = tensors(plugin)
        answer = ask_compat(plugin, SUBJECT, MetadataOnly(self.model))
        expect(answer is None or isinstance(answer, Compat), f"compat returned {answer!r}")
        more = tensors(plugin) - before
        expect(more == 0, f"after compat the plugin holds {more} more numbers; read weights in Compat.load")

    @promise("A plugin does not modify its arguments: logits, hidden states, noise.")
    def test_nothing_shown_is_changed(self) -> None:
        kept: list[tuple[torch.Tensor, torch.Tensor]] = []

        def keep(batch: Batch, output: TargetOutput) -> None:
            kept[:] = [(view, view.clone()) for view in views(output)]

        def on_step(step: Step) -> None:
            for now, then in kept:
                expect(torch.equal(now, then), f"the plugin wrote to a tensor {list(now.shape)} of the forward")

        run = self.run([self.mine()], target=Watched(self.model, keep))
        run.observe(on_step)
        self.is_plain(run, self.requests())


def _consecutive_drafts(drafts: Drafts) -> Iterator[tuple[Draft, Draft]]:
    """Drafts of two consecutive steps: the second token of one and the first of the other are for the same position."""
    for (name, m), one in sorted(drafts.items()):
        two = drafts.get((name, m + 1))
        if two is not None and one.proposal == two.proposal == "sampled" and len(one) > 1:
            yield one, two


def sharpness(tokens: torch.Tensor, q: torch.Tensor) -> float:
    """Sigmas between the mean of q(drawn token) and its expectation; positive if likely tokens are preferred."""
    probabilities, square = q.gather(1, tokens[:, None])[:, 0], (q * q).sum(-1)
    variance = ((q**3).sum(-1) - square**2).sum()
    return float((probabilities - square).sum() / variance.clamp_min(1e-9).sqrt())


def frequency(tokens: torch.Tensor, q: torch.Tensor) -> tuple[int, float]:
    """The token whose count is furthest from its expectation, and the distance in sigmas. tokens: [n], q: [n, V]."""
    variance = (q * (1 - q)).sum(0)
    off = (torch.nn.functional.one_hot(tokens, q.shape[1]) - q).sum(0) / variance.clamp_min(1e-9).sqrt()
    off[variance < 5] = 0  # too few for a normal distribution
    worst = int(off.abs().argmax())
    return worst, float(off[worst])


METADATA = frozenset(
    {"info", "tokenizer", "config", "next_token_layer", "cache_reader", "image_encoder", "partial_problem"}
    | {"overlay_problem", "follow_problem", "probe_problem"}
)
"""Attributes of a target that are known without its weights."""


@attrs.define(eq=False)
class MetadataOnly:
    """A target whose metadata are all that can be read."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        if name in METADATA:
            return getattr(self.inner, name)
        raise Found(f"compat read target.{name}")


def exceeds_limit(offer: Offer) -> bool:
    draft = offer.draft
    return draft.depth > offer.budget or len(draft) > (offer.budget if draft.parents is None else offer.nodes)


def shape(draft: Draft | None) -> Any:
    """The parts of a draft to compare: tokens and tree, without rounded numbers."""
    return None if draft is None else (draft.ids, draft.parents)


def _distributions(draft: Draft, vocab: int) -> bool:
    if draft.proposal != "sampled":
        return draft.probs is None
    q = draft.probs
    if q is None or q.shape != (len(draft), vocab) or not q.dtype.is_floating_point:
        return False
    drawn = q.gather(1, draft.tokens.to(q.device)[:, None])
    good = q.isfinite().all() and (q >= 0).all() and (drawn > 0).all()
    return bool(good and ((q.double().sum(-1) - 1).abs() < 1e-4).all())


def _is_undeclared(kinds: frozenset[str]) -> Callable[[Offer], bool]:
    return lambda offer: not is_declared(offer.draft.proposal, kinds, offer.seq.sampling.temperature)


def _both(one: Draft | None, two: Draft | None) -> str:
    return " and then ".join("nothing" if d is None else str(list(d.ids)) for d in (one, two))


def _where(requests: list[Request], key: tuple[str, int]) -> str:
    name, committed = key
    return f"after {committed} tokens of {describe_request(next(r for r in requests if r.name == name))}"


@contextmanager
def seed_generators(seed: int) -> Iterator[None]:
    """Set the global random generators to ``seed``, and restore them afterwards."""
    before = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


def _rows(draft: Draft) -> torch.Tensor:
    """The rows of probs of a sampled draft."""
    assert draft.probs is not None
    return draft.probs


def kept_to(step: Step, promised: Callable[[int], int] | None) -> None:
    """Raise Found unless the step took no more forwards of the plugin than it promises in ``Compat.forwards``."""
    spent = step.forwards.get(SUBJECT, 0)
    longest = max((p.draft.depth for p in step.parts if p.draft and SUBJECT in p.sources), default=0)
    if spent and promised is None:
        raise Found(f"{spent} forwards in a step; declare them: Compat(forwards=lambda k: ...)")
    if promised is not None and spent > promised(longest):
        raise Found(f"{spent} forwards in a step that drafted {longest}; compat declares {promised(longest)}")
