"""Conformance of an acceptance rule: ``make`` returns a new rule."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import attrs
import pytest

from spec_core.assembly.hooks import ask_compat
from spec_core.contract.kinds import GREEDY, KINDS
from spec_core.contract.request import Request
from spec_core.contract.target import Target
from spec_core.contract.values import Compat, Verdict
from spec_core.contract.verified_step import AcceptStep
from spec_core.hookspecs import hookimpl
from spec_core.loop.run import Run
from spec_core.sampling.parameters import Sampling
from spec_core.testing.conformance import distribution
from spec_core.testing.conformance.base import check_forgotten, describe_request, expect, expect_same, run_together
from spec_core.testing.conformance.drafts import MetadataOnly, seed_generators
from spec_core.testing.conformance.memory_kit import Checkpoints
from spec_core.testing.conformance.probes import first_right
from spec_core.testing.conformance.promise import promise
from spec_core.testing.conformance.settings_kit import SettingsChecks
from spec_core.testing.conformance.values_kit import ValueChecks
from spec_core.testing.drafters import Oracle, RandomTrees

WARPERS = (
    Sampling(temperature=0.8, top_k=5),
    Sampling(temperature=0.8, top_p=0.8, repetition_penalty=1.4),
    Sampling(temperature=0.8, min_p=0.1, logit_bias={1: 2.5, 2: float("-inf")}),
    Sampling(temperature=0.0, frequency_penalty=2.0, presence_penalty=1.0),
)


class RuleConformance(ValueChecks, SettingsChecks):
    """Inherit, and let ``make`` return a new rule. samples: seeds per test of a distribution and drafter."""

    samples: ClassVar[int] = 600

    def run(self, methods: Iterable[Any], target: Target | None = None, owner: Any = None, **settings: Any) -> Run:
        return super().run(methods, target, owner, rule=("rule", self.make()), **settings)

    def reading_run(self, **settings: Any) -> tuple[str, Run]:
        return "rule", self.run([], **settings)

    def one_request(self) -> None:
        target = distribution.small_target()
        _, drafters = next(self.near(target), ("", []))
        run_together(self.run(drafters, target=target), distribution.requests(3))

    @property
    def says(self) -> Compat:
        """The rule's answer to compat."""
        return ask_compat(self.make(), "rule", self.model) or Compat()

    def plain(self, request: Request, target: Target | None = None) -> list[int]:
        """Output without drafts: under the rule, if it steers."""
        if self.says.steers is None:
            return super().plain(request, target)
        bare = attrs.evolve(request, name="", methods=None, draft_max=None)
        return self.run([], target=target, reuse=False).generate(bare).result.tokens

    def needs_lossless(self) -> None:
        if self.says.lossy is not None:
            pytest.skip(f"declared lossy: {self.says.lossy}")

    def needs_the_targets_text(self) -> None:
        self.needs_lossless()
        if self.says.steers is not None:
            pytest.skip(f"declared: it steers: {self.says.steers}")

    def drafters(self, requests: list[Request]) -> Iterator[Any]:
        """Deterministic chains and trees with right and wrong tokens, if the rule judges them."""
        drafts = self._deterministic_kind(requests)
        known = {r.name: self.text_of(r) for r in requests}
        vocab = self.model.info.vocab
        for kept in (1, 9):
            yield Oracle(known, first_right(kept), vocab=vocab, drafts=drafts)
        for trees in (False, True):
            yield RandomTrees(known, vocab=vocab, trees=trees, drafts=drafts)

    def _deterministic_kind(self, requests: list[Request]) -> set[str]:
        """What drafters declare whose drafts are deterministic for these requests."""
        judged = KINDS if self.says.judges is None else self.says.judges
        if "deterministic" in judged:
            return {"deterministic"}
        if GREEDY not in judged or any(r.sampling.temperature > 0 for r in requests):
            pytest.skip("does not judge deterministic drafts")
        return {GREEDY}

    def near(self, target: Any) -> Iterator[tuple[str, list[Any]]]:
        """Drafters of every kind of proposal that the rule judges; for mixed drafts two, and the second extends."""
        judged = KINDS if self.says.judges is None else self.says.judges
        for kind in sorted(judged - {"mixed", GREEDY}):  # a faulty rule may name an unknown kind
            yield f"{kind} chains", [distribution.Near(target, kind)]  # type: ignore[arg-type]
        if "deterministic" in judged:
            yield "deterministic trees", [distribution.Near(target, "deterministic", tree=True)]
        if "mixed" in judged:
            for kinds in (("sampled", "deterministic"), ("deterministic", "sampled")):
                yield f"chains that are {kinds[0]}, then {kinds[1]}", distribution.extending_pair(target, *kinds)

    @promise("A verdict is a path of the draft, from the root on, and the token after it.")
    def test_verdicts_are_paths_of_the_draft(self) -> None:
        requests = self.requests()
        for drafter in self.drafters(requests):
            run_together(self.run([drafter]), requests)

    @promise("Every kind of proposal that compat declares is judged, and probs are read only if declared.")
    def test_declared_proposals_are_judged(self) -> None:
        target = distribution.small_target()
        for _, drafters in self.near(target):
            run_together(self.run(drafters, target=target), distribution.requests(20))

    @promise(
        "At temperature 0 the text equals that of plain decoding, of the rule alone if it steers, unless it is lossy."
    )
    def test_greedy_text_equals_plain_decoding(self) -> None:
        self.needs_lossless()
        requests = self.requests(temperatures=(0.0,))
        for drafter in self.drafters(requests):
            self.is_plain(self.run([drafter]), requests)

    @promise("A lossless rule with shared noise gives the text of plain decoding at every temperature.")
    def test_shared_noise_gives_the_text_of_plain_decoding(self) -> None:
        self.needs_lossless()
        if self.says.noise != "shared":
            pytest.skip("declared: private noise")
        requests = self.requests(temperatures=(0.3, 0.8, 1.5))
        for drafter in self.drafters(requests):
            self.is_plain(self.run([drafter]), requests)

    @promise("The text has the target's distribution, unless the rule is declared lossy.")
    def test_the_distribution_of_the_text_is_the_targets(self) -> None:
        self.needs_the_targets_text()
        target = distribution.small_target()
        for what, drafters in self.near(target):
            texts = run_together(
                self.run(drafters, target=target, max_sequences=64, nodes_max=4), distribution.requests(self.samples)
            )
            distribution.check_distribution(texts, target, what)

    @promise("A rule that declares private noise uses its own, not the noise of plain decoding and drafters.")
    def test_private_noise_is_not_the_shared_one(self) -> None:
        if self.says.noise != "private":
            pytest.skip("declared: shared noise")
        target, requests = distribution.small_target(), distribution.requests(40)
        plain = [self.plain(r, target) for r in requests]
        for what, drafters in self.near(target):
            texts = run_together(self.run(drafters, target=target), requests)
            expect(texts != plain, f"{what}: {len(texts)} sampled texts, each the one that shared noise gives")

    @promise("Sampling parameters apply to accepted tokens too: banned or truncated tokens are never emitted.")
    def test_banned_tokens_are_never_said(self) -> None:
        self.needs_lossless()
        banned = {0: float("-inf"), 3: float("-inf")}
        sampling = Sampling(temperature=1.0, logit_bias=banned)
        self._never(sampling, lambda tokens: set(tokens) & set(banned), "banned")

    @promise("Penalties of a row count its drafted prefix: with a prohibitive one no token is emitted twice.")
    def test_penalties_count_the_drafted_prefix(self) -> None:
        self.needs_lossless()
        sampling = Sampling(temperature=1.0, presence_penalty=60.0)
        self._never(sampling, lambda tokens: {t for t in tokens if tokens.count(t) > 1}, "emitted twice")

    def _never(self, sampling: Sampling, wrong: Any, word: str) -> None:
        target = distribution.small_target()
        asked = [attrs.evolve(r, sampling=sampling) for r in distribution.requests(40)]
        for what, drafters in self.near(target):
            for request, tokens in zip(asked, run_together(self.run(drafters, target=target), asked), strict=True):
                expect(
                    not wrong(tokens),
                    f"{what}: {sorted(wrong(tokens))} {word} in {tokens}; {describe_request(request)}",
                )

    @promise("Rows are adjusted as in plain decoding: with every parameter the greedy or coupled text is the same.")
    def test_warpers_are_those_of_plain_decoding(self) -> None:
        self.needs_lossless()
        shared = self.says.noise == "shared"
        asked = self.requests(n=10, temperatures=(0.0,) * len(WARPERS))
        requests = [attrs.evolve(r, sampling=WARPERS[i % len(WARPERS)]) for i, r in enumerate(asked)]
        requests = [r for r in requests if shared or r.sampling.temperature == 0]
        for drafter in self.drafters(requests):
            self.is_plain(self.run([drafter], max_sequences=16), requests)

    @promise("The same seed gives the same text: random numbers come from the seed, not from the rule's own generator.")
    def test_the_same_seed_gives_the_same_text(self) -> None:
        target, requests = distribution.small_target(), distribution.requests(40)
        for what, drafters in self.near(target):
            texts = []
            for seed in (1, 2):
                with seed_generators(seed):
                    texts.append(run_together(self.run(drafters, target=target), requests))
            for request, one, two in zip(requests, *texts, strict=True):
                expect_same(one, two, f"the second time; {what}; {describe_request(request)}")

    @promise("The verdict of a sequence does not depend on the others in the batch.")
    def test_sequences_are_decided_each_by_itself(self) -> None:
        target, requests = distribution.small_target(), distribution.requests(12)
        for what, drafters in self.near(target):
            batched = run_together(self.run(drafters, target=target), requests)
            one_by_one = run_together(self.run(drafters, target=target, max_sequences=1, reuse=False), requests)
            for request, tokens, alone in zip(requests, batched, one_by_one, strict=True):
                expect_same(tokens, alone, f"alone; {what}; {describe_request(request)}")

    @promise("Under private noise two requests of a run share none: the text of one may be the draft of the other.")
    def test_private_noise_is_new_for_every_request(self) -> None:
        self.needs_the_targets_text()
        if self.says.noise != "private":
            pytest.skip("declared: shared noise")
        if self.says.judges is not None and "deterministic" not in self.says.judges:
            pytest.skip("does not judge deterministic drafts")
        target, requests = distribution.small_target(), distribution.requests(self.samples)
        run = self.run([distribution.Replays()], target=target, max_sequences=64)
        first, second = run_together(run, requests), run_together(run, requests)
        expect(first != second, f"{len(first)} pairs of equal requests, each pair with one text")
        distribution.check_distribution(
            second, target, "the second of two equal requests, drafted by the first one's text"
        )

    @promise("Only sequences of step.undecided are decided: no prompt in chunks, none that has a verdict.")
    def test_only_undecided_sequences_are_decided(self) -> None:
        requests = self.requests()
        first = attrs.evolve(requests[0], prompt=self.prompts()[0] * 4)
        for drafter in self.drafters([first, *requests[1:]]):
            first_rule = First({r.name for r in requests[::2]})
            run_together(self.run([first_rule, drafter], prefill_chunk=1, draft_max=4), [first, *requests[1:]])

    @promise("compat declares from metadata what is judged, by which noise, and whether the rule is lossy.")
    def test_compat_says_what_it_is(self) -> None:
        answer = ask_compat(self.make(), "rule", MetadataOnly(self.model)) or Compat()
        expect(answer.noise in ("shared", "private"), f"noise is {answer.noise!r}")
        expect(
            answer.judges is None or bool(answer.judges <= KINDS | {GREEDY} and answer.judges),
            f"judges {answer.judges}",
        )
        expect(answer.lossy is None or bool(answer.lossy.strip()), "lossy without a reason")
        expect(answer.steers is None or bool(answer.steers.strip()), "steers without saying how")

    @promise("Values of a request change its own text alone: no other text of its batch, and no later one on its slot.")
    def test_values_of_a_request_change_its_own_text_alone(self) -> None:
        self.needs_values()
        plugin, run = self.reading_run()
        requests = [self.value_request(plugin, *pair) for pair in self.accepted_values(plugin, run)]
        requests.append(attrs.evolve(self.value_request(plugin, "", None), name="no values", plugin_values={}))
        alone = lambda request: run_together(self.reading_run(reuse=False)[1], [request])[0]
        batched = run_together(self.reading_run(max_sequences=len(requests))[1], requests)
        for request, tokens in zip(requests, batched, strict=True):
            expect_same(tokens, alone(request), f"{request.name}; with others of {len(requests)}")
        run, prompt = self.run([Checkpoints()], max_sequences=1), list(self.prompts()[0])
        for request in requests[-8:]:  # each continues the text of the one before, on its slot
            continued = attrs.evolve(request, prompt=list(prompt))
            tokens = run_together(run, [continued])[0]
            expect_same(tokens, alone(continued), f"{request.name}; on a slot that had another")
            prompt += tokens

    @promise("The instance keeps no data of a finished sequence.")
    def test_finished_sequences_are_forgotten(self) -> None:
        target = distribution.small_target()
        _, drafters = next(self.near(target), ("", []))
        run = self.run(drafters, target=target, max_sequences=1, reuse=False)
        seen = [weakref.ref(run.submit(r)) for r in distribution.requests(12)]
        run_together(run, [])
        run.results.clear()
        check_forgotten(seen, max_sequences=1)


@attrs.define(eq=False)
class First:
    """A rule that decides the sequences it knows, before the rule under test is called."""

    known: set[str]

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        for seq in list(step.undecided):
            if seq.name in self.known:
                step.decide(seq, Verdict((), int(step.logits(seq)[0].argmax())))
