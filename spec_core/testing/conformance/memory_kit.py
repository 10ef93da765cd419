"""Checks of a drafter's memory: committed text only, per sequence and instance, bounded."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch

from spec_core.contract.batch import Batch, TargetOutput
from spec_core.contract.fields import field_of
from spec_core.contract.request import Request
from spec_core.contract.rows import Rows
from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Compat, Draft
from spec_core.hookspecs import hookimpl
from spec_core.loop.run import Run
from spec_core.testing.conformance.base import check_forgotten, describe_request, expect, expect_same, run_together
from spec_core.testing.conformance.drafts import DraftChecks, shape
from spec_core.testing.conformance.held import weight
from spec_core.testing.conformance.probes import (
    SUBJECT,
    Cut,
    Drafts,
    Judge,
    Limiter,
    Rests,
    Watched,
    record_drafts,
    views,
)
from spec_core.testing.conformance.promise import Found, promise

KIB = 1024
MANY = 1000
"""Steps in which the method is not called for a sequence."""
EARLIER, LATER = 550, 1050
"""Steps between which the memory of a sequence is compared."""
ROWS_APART = 1e-3
"""Max difference of probs by rounding."""
LONG_BEGINNING = 80
"""Rows from which a prefix is copied instead of evaluated again."""
LONG = 48
"""Tokens after which a text has repeated itself."""
LEARNING = '\nif earlier verdicts shall change later drafts, declare it: Compat(learns="length") or "tokens"'
SHARING = "\nif one text shall change the drafts of others, declare it: Compat(shares_learning=True)"
FORMER = "\nif tokens of a slot's earlier text shall help, and are compared before use: Compat(keeps_former_text=True)"


class MemoryChecks(DraftChecks):
    """Part of DrafterConformance. What a method learns is declared in its ``Compat``."""

    declarable: str = ""
    """Declaration that allows the finding of the present check, if it is meant."""

    def agree(self, one: Draft | None, two: Draft | None) -> bool:
        """Whether these drafts, after the same text with different histories, are as equal as declared."""
        if self.compat_answer.learns != "length":
            return shape(one) == shape(two) and is_near(one, two)
        if one is None or two is None:
            return True
        n = min(len(one), len(two))
        first, second = ((d.parents or range(-1, len(d) - 1))[:n] for d in (one, two))
        return one.ids[:n] == two.ids[:n] and list(first) == list(second) and is_near(one, two)

    def same_drafts(self, drafts: Drafts, expected_drafts: Drafts, requests: list[Request], keys: Any = None) -> None:
        """Compare the drafts of two runs at the given places, or at all of both."""
        for key in sorted({*drafts, *expected_drafts} if keys is None else keys):
            one, two = drafts.get(key), expected_drafts.get(key)
            if not self.agree(one, two):
                shown = [None if d is None else list(d.ids) for d in (one, two)]
                rows = " of other probs" if shown[0] == shown[1] else ""
                request = next(r for r in requests if r.name == key[0])
                where = f"after {key[1]} tokens of {describe_request(request)}"
                raise Found(f"drafts {shown[0]}{rows}, expected {shown[1]}, {where}{self.declarable}")

    def _needs_fixed_tokens(self) -> None:
        if self.compat_answer.learns == "tokens":
            pytest.skip("declared: earlier verdicts may change what is drafted")
        self.declarable += "" if self.compat_answer.learns == "length" else LEARNING

    def _may_not_share(self) -> None:
        if self.compat_answer.shares_learning:
            pytest.skip("declared: one text may change the drafts of another")
        self.declarable += SHARING

    def long_requests(self) -> list[Request]:
        """Requests with texts long enough to repeat themselves."""
        longest = max(map(len, self.prompts()))
        return self.requests(n=min(LONG, self.long_model.info.context - longest))

    def drafts_of(self, requests: list[Request], methods: Any = (), **settings: Any) -> Drafts:
        """The drafts in a run of these requests on the quick target."""
        run = self.run([Judge("shared"), *methods, self.mine()], **{"target": self.long_model, **settings})
        drafts = record_drafts(run)
        run_together(run, requests)
        return drafts

    def _as_of_fresh_instances(self, drafts: Drafts, requests: list[Request]) -> None:
        """Compare some of these drafts with the drafts of new instances that get the same text as a prompt."""
        by_name = {r.name: r for r in requests}
        for name, m in sorted(drafts)[:: 1 + len(drafts) // 12]:
            again = continuing_request(by_name[name], self.text_of(by_name[name], self.long_model), m)
            self.same_drafts(drafts, self.drafts_of([again]), [again], [(name, m)])

    @promise("Drafts equal a new instance's that gets the same text as a prompt.")
    def test_drafts_equal_those_of_a_fresh_instance(self) -> None:
        self._needs_fixed_tokens()
        self._may_not_share()
        requests = self.long_requests()
        self._as_of_fresh_instances(self.drafts_of(requests, rule=Cut(1)), requests)

    @promise("A text changes no draft of a request with another cache salt, also if texts are declared to be shared.")
    def test_a_cache_salt_separates_texts(self) -> None:
        self.declarable = ""
        requests = [attrs.evolve(r, cache_salt="b") for r in self.long_requests()]
        run = self.run([Judge("shared"), self.mine()], target=self.long_model, rule=Cut(1))
        drafts = record_drafts(run)
        for salt in ("", "a"):
            run_together(run, [attrs.evolve(r, name=f"{salt} {r.name}", cache_salt=salt) for r in requests])
        run_together(run, requests)
        of_requests = {key: draft for key, draft in drafts.items() if key[0] in {r.name for r in requests}}
        self.same_drafts(of_requests, self.drafts_of(requests, rule=Cut(1)), requests)

    @promise("After the same text and the same verdicts a method drafts the same, whatever its slot held before.")
    def test_equal_verdicts_give_equal_drafts(self) -> None:
        self._may_not_share()
        requests = self.long_requests()
        one_slot = self.drafts_of(requests, rule=Cut(1), max_sequences=1, reuse=False)
        for request in requests:
            alone = self.drafts_of([request], rule=Cut(1), reuse=False)
            self.same_drafts({k: d for k, d in one_slot.items() if k[0] == request.name}, alone, requests)

    @promise("A rejected draft has no effect on later drafts, which depend on committed text only.")
    def test_rejected_drafts_leave_no_trace(self) -> None:
        self._needs_fixed_tokens()
        requests = self.long_requests()
        often = self.drafts_of(requests, rule=Cut(0))
        now_and_then = self.drafts_of(
            requests, [Limiter({SUBJECT: lambda seq: seq.output_position % 3 == 0})], rule=Cut(0)
        )
        self.same_drafts(now_and_then, often, requests, now_and_then)
        for late in (4, LONG // 2, LONG - 4):
            held_back = Limiter({SUBJECT: from_output(late)})
            first = {(r.name, len(r.prompt) + late) for r in requests}
            self.same_drafts(often, self.drafts_of(requests, [held_back], rule=Cut(0)), requests, first)

    @promise("A method that catches up drafts after steps in which it was not called as if it had been.")
    def test_it_catches_up(self) -> None:
        if not self.compat_answer.catches_up:
            pytest.skip("declared: it is called in every step")
        self._needs_fixed_tokens()
        self._may_not_share()
        requests = self.long_requests()
        rested = self.drafts_of(requests, [Rests()], rule=Cut(0))
        self.same_drafts(rested, self.drafts_of(requests, rule=Cut(0)), requests, rested)
        self._as_of_fresh_instances(rested, requests)

    @promise("The draft of a sequence depends on that sequence alone, not on others in the batch.")
    def test_drafts_do_not_depend_on_the_batch(self) -> None:
        self._may_not_share()
        requests = self.long_requests()
        together = self.drafts_of(requests, rule=Cut(1))
        for request in requests:
            alone = self.drafts_of([request], rule=Cut(1))
            self.same_drafts({k: d for k, d in together.items() if k[0] == request.name}, alone, requests)

    @promise("Two instances of one class can be used in one run: each has its own memory.")
    def test_two_instances_share_nothing(self) -> None:
        self._needs_fixed_tokens()
        requests = self.long_requests()
        alone = self.drafts_of(requests, rule=Cut(0))
        turns = {"one": lambda seq: len(seq.tokens) % 2 == 1, "two": lambda seq: len(seq.tokens) % 2 == 0}
        methods = [("turns", Limiter(turns)), ("one", self.make()), ("two", self.make())]
        run = self.run([Judge("shared"), *methods], target=self.long_model, rule=Cut(0))
        ones, twos = record_drafts(run, "one"), record_drafts(run, "two")
        run_together(run, requests)
        self.same_drafts({**ones, **twos}, alone, requests)

    @promise("Rows from span.start on are new: on a reused slot nothing of the earlier text is left.")
    def test_a_slot_that_is_used_again_holds_no_old_text(self) -> None:
        run = self.run(
            [Judge("shared"), Checkpoints(), self.mine()], target=self.long_model, max_sequences=1, rule=Cut(1)
        )
        drafts = record_drafts(run)
        requests, reused = self._conversation(), 0
        for request in requests:
            seq = run.submit(request)
            run_together(run, [])
            reused += seq.reused
            expect_same(run.take(seq).tokens, self.plain(request, self.long_model), describe_request(request))
        if not reused:
            pytest.skip("this target does not reuse prefixes")
        self._needs_fixed_tokens()
        self._may_not_share()
        if self.compat_answer.keeps_former_text:
            pytest.skip("declared: keeps tokens of an earlier text, and compares them")
        self.declarable += FORMER
        for request in requests:
            fresh = self.drafts_of([request], reuse=False, rule=Cut(1))
            self.same_drafts({k: d for k, d in drafts.items() if k[0] == request.name}, fresh, requests)

    def _conversation(self) -> list[Request]:
        """A text; another text that differs from it near the end, where every target can continue; the first again."""
        first = self.long_requests()[0]
        text = self.text_of(first, self.long_model)
        at = len(text) - 6
        leaves = [*text[:at], *([(text[at] + 1) % self.model.info.vocab] * 3), *first.prompt[:4]]
        prompts = [first.prompt, leaves, [9, 8, 9, 8, 9], first.prompt, leaves[:-2]]
        return [attrs.evolve(first, prompt=prompt, name=f"turn-{i}") for i, prompt in enumerate(prompts)]

    @promise(
        "A, B with the same beginning, A again: rows are copied or lost, and each has the drafts of a new instance."
    )
    def test_a_conversation_goes_on_after_another_with_the_same_beginning(self) -> None:
        """One after another B evicts a part of A; while A runs, B begins with copies of A's rows."""
        if not hasattr(self.model, "copy"):
            pytest.skip("the target does not copy rows")
        requests = self._two_conversations()
        for at_once in (False, True):
            self._as_if_new(requests, at_once)

    def _two_conversations(self) -> list[Request]:
        """A, B and A again with its answer, with a beginning that is long enough to be copied."""
        length = min(24, self.model.info.context - LONG_BEGINNING - 12)
        if length < 2:
            pytest.skip(f"needs a target with a context of {LONG_BEGINNING + 14}")
        first = self.requests(n=length, temperatures=(0.0,))[0]
        first = attrs.evolve(first, prompt=(self.prompts()[0] * LONG_BEGINNING)[:LONG_BEGINNING], name="A")
        other = attrs.evolve(first, prompt=[*first.prompt[:-2], 3, 1, 2], name="B")
        return [first, other, attrs.evolve(first, prompt=self.text_of(first)[:-1], name="A again", max_tokens=4)]

    def _as_if_new(self, requests: list[Request], at_once: bool) -> None:
        """Texts are plain, and drafts a new instance's where these are fixed. at_once: B begins while A runs."""
        run = self.run(
            [Judge("shared"), Checkpoints(), self.mine()], rule=Cut(1), max_sequences=1 + at_once, prefill_chunk=11
        )
        drafts = record_drafts(run)
        seqs = []
        for request in requests:
            seqs.append(run.submit(request))
            while run.busy and not (at_once and len(seqs) == 1 and seqs[0].verdict_count >= 2):
                run.step()
        for seq, request in zip(seqs, requests, strict=True):
            expect_same(run.take(seq).tokens, self.plain(request), describe_request(request))
        answer = self.compat_answer
        if answer.learns == "tokens" or answer.shares_learning or answer.keeps_former_text:
            return
        self.declarable = SHARING + FORMER
        for request in requests:
            fresh = self.drafts_of([request], [Checkpoints()], target=self.model, reuse=False, rule=Cut(1))
            self.same_drafts({k: d for k, d in drafts.items() if k[0] == request.name}, fresh, requests)

    @promise("TargetOutput and Rows are views, valid until process returns: a plugin copies data that it keeps.")
    def test_views_are_not_kept(self) -> None:
        shown: list[torch.Tensor] = []

        def keep(batch: Batch, output: TargetOutput) -> None:
            shown[:] = views(output)

        requests = self.requests()
        run = self.run([Judge("shared"), self.mine()], target=Watched(self.model, keep), rule=Cut(1))
        run.observe(lambda step: overwrite_views(shown))
        drafts = record_drafts(run)
        run_together(run, requests)
        expected = self.drafts_of(requests, target=self.model, rule=Cut(1))
        for key in sorted({*drafts, *expected}):
            one, two = drafts.get(key), expected.get(key)
            expect(shape(one) == shape(two), f"after the views were overwritten, drafts at {key} are {one}, not {two}")

    @promise("A method whose draft hook was not called for 1,000 steps then drafts as if it had always been called.")
    def test_asked_after_a_thousand_steps(self) -> None:
        self._needs_fixed_tokens()
        target = self.long_model
        request = self.requests(temperatures=(0.0,))[0]
        steps = min(MANY, target.info.context - len(request.prompt) - 24)
        request = attrs.evolve(request, max_tokens=steps + 20)
        last = len(request.prompt) + steps
        late = Limiter({SUBJECT: lambda seq: len(seq.tokens) >= last})
        drafts = self.drafts_of([request], [late], rule=Cut(0))
        again = continuing_request(request, self.text_of(request, target), last)
        fresh, key = self.drafts_of([again], rule=Cut(0)), (request.name, last)
        expect(key in drafts or key not in fresh, f"drafts nothing after {steps} steps, but a new instance does")
        self.same_drafts(drafts, fresh, [again], [key])

    @promise("Work deferred while the draft hook is not called is bounded: at the bound it is done.")
    def test_the_backlog_of_an_idle_method_is_bounded(self) -> None:
        asked, idle = self._growth(from_output(0)), self._growth(from_output(LATER + 1))
        expect(
            idle <= 1.5 * asked + 16 * KIB,
            f"{idle} bytes more in {LATER - EARLIER} idle steps, {asked} when called",
        )

    def _growth(self, may: Callable[[Sequence], bool]) -> int:
        """Bytes by which the memory of one sequence grows between two steps, after a backlog has reached its bound."""
        sizes = self._sizes([EARLIER, LATER], Limiter({SUBJECT: may}))
        return sizes[1] - sizes[0]

    def _sizes(self, at: list[int], *methods: Any) -> list[int]:
        """Bytes that the plugin keeps, for itself and one sequence, after these numbers of output tokens."""
        target = self.long_model
        request = attrs.evolve(self.requests(temperatures=(0.0,))[0], max_tokens=at[-1] + 1)
        if target.info.context < len(request.prompt) + request.max_tokens:
            pytest.skip(f"needs a target with a context of {len(request.prompt) + request.max_tokens}")
        plugin = self.make()
        run = self.run([*methods, (SUBJECT, plugin)], target=target, rule=Cut(0))
        seq = run.submit(request)
        sizes: list[int] = []
        while run.busy:
            run.step()
            if len(sizes) < len(at) and seq.output_position >= at[len(sizes)]:
                sizes.append(weight([plugin, seq.stash], outside=[run, target, seq]))
        return sizes

    @promise("Memory of a sequence grows max linearly with its text.")
    def test_memory_grows_at_most_with_the_text(self) -> None:
        short, long = self._sizes([MANY // 4, MANY])
        expect(long <= 8 * short + 64 * KIB, f"{short} bytes after {MANY // 4} tokens, {long} after {MANY}")

    @promise("The instance keeps no data of a finished sequence.")
    def test_finished_sequences_are_forgotten(self) -> None:
        plugin = self.make()
        run = self.run([(SUBJECT, plugin)], max_sequences=2, reuse=False)
        sizes, seen = [], []
        for _ in range(3):
            seen += self._pass_through(run)
            sizes.append(weight(plugin, outside=[run, self.model]))
        check_forgotten(seen, max_sequences=2)
        if not self.compat_answer.shares_learning:
            expect(sizes[2] <= sizes[1] + 2 * KIB, f"the instance grew from {sizes[1]} to {sizes[2]} bytes{SHARING}")

    def _pass_through(self, run: Run) -> list[weakref.ref[Sequence]]:
        """Weak references to sequences that ran and ended."""
        seqs = [run.submit(attrs.evolve(r, max_tokens=6)) for r in self.requests()]
        run_together(run, [])
        for seq in seqs:
            run.take(seq)
        return [weakref.ref(seq) for seq in seqs]


def is_near(one: Draft | None, two: Draft | None) -> bool:
    """Whether two drafts agree. Rows of probs show stale memory before a token changes."""
    if one is None or two is None or one.probs is None or two.probs is None:
        return True
    n = min(len(one), len(two))
    return torch.allclose(one.probs[:n].double(), two.probs[:n].double(), rtol=0, atol=ROWS_APART)


def from_output(t: int) -> Callable[[Sequence], bool]:
    """True for sequences with at least t output tokens."""
    return lambda seq: seq.output_position >= t


def overwrite_views(views: list[torch.Tensor]) -> None:
    for view in views:
        view.fill_(torch.nan)


def continuing_request(request: Request, text: list[int], m: int) -> Request:
    """Copy of a request with the text before its m-th token as the prompt, so that its next token is that one."""
    count = m - 1 - len(request.prompt)
    return attrs.evolve(request, prompt=text[: m - 1], max_tokens=request.max_tokens - count, offset=count)


@attrs.define(eq=False)
class Checkpoints:
    """Keeps the recurrent state after every step, so that any prefix can be reused."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=(), shares=True)

    @hookimpl
    def process(self, rows: Rows) -> None:
        for seq, _ in rows.by_sequence():
            state = rows.step.target.checkpoint(seq)
            if state is not None:
                field_of(seq.slot, "checkpoints")[seq.evaluated] = state
