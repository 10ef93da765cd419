"""Conformance of an owner of target state: ``make`` returns a new owner."""

from __future__ import annotations

import weakref
from typing import Any

import attrs
import pytest

from spec_core.assembly.hooks import ask_compat
from spec_core.contract.request import Request
from spec_core.contract.values import Compat, TargetInfo
from spec_core.loop.run import Run
from spec_core.testing.conformance.base import check_forgotten, expect, run_together
from spec_core.testing.conformance.drafts import MetadataOnly
from spec_core.testing.conformance.drive import expect_close, leaves
from spec_core.testing.conformance.memory_kit import Checkpoints
from spec_core.testing.conformance.probes import Limiter, Watched
from spec_core.testing.conformance.promise import Found, promise
from spec_core.testing.conformance.settings_kit import SettingsChecks
from spec_core.testing.conformance.state_check import Gated
from spec_core.testing.drafters import Oracle, RandomTrees


class RollbackConformance(Gated, SettingsChecks):
    """Inherit, and let ``make`` return a new owner of the target's recurrent state.

    After every step the state must equal that of a new forward over the evaluated tokens, up to ``tolerance`` of its
    largest value. Drafters of the kit determine how much is kept.
    """

    def owner(self) -> Any:
        return self.make()

    @promise("After a step with no accepted token, the state is that of the committed tokens.")
    def test_state_after_nothing_was_accepted(self) -> None:
        requests = self.requests()
        self.run_and_compare(self.run([self.right(requests, lambda seq: 0)]), requests)

    @promise("After a step in which everything was accepted, the state is that of the committed tokens.")
    def test_state_after_everything_was_accepted(self) -> None:
        requests = self.requests()
        self.run_and_compare(self.run([self.right(requests, lambda seq: 9)]), requests)

    @promise("After a step in which part of a draft was accepted, the state is that of the committed tokens.")
    def test_state_after_part_of_a_draft_was_accepted(self) -> None:
        requests = self.requests()
        for kept in (1, 2, 3):
            self.run_and_compare(self.run([self.right(requests, lambda seq, kept=kept: kept)]), requests)

    @promise("After a step without a draft the state is that of the forward.")
    def test_state_in_steps_without_a_draft(self) -> None:
        requests = self.requests()
        pattern = [2, 0, 0, 4, 0, 1, 3]
        drafter = self.right(requests, lambda seq: pattern[seq.verdict_count % 7])
        sometimes = Limiter({"oracle": lambda seq: pattern[seq.verdict_count % 7] > 0})
        self.run_and_compare(self.run([sometimes, drafter]), requests)

    @promise("A prompt as long as a draft is handled as a prompt: of 1 token, of K, K + 1 and K + 2.")
    def test_state_of_prompts_as_long_as_a_draft(self) -> None:
        prompt = self.prompts()[0]
        lengths = (1, 2, 3, 4, 5, 6)
        requests = [Request((prompt * 2)[:n], max_tokens=9, name=str(n), ignore_eos=True) for n in lengths]
        for request in requests:
            self.run_and_compare(self.run([self.right([request], lambda seq: 2)], draft_max=4), [request])

    @promise("Sequences of one step may keep different numbers of drafts, next to prompts in chunks.")
    def test_state_in_a_mixed_batch(self) -> None:
        requests = self.requests(n=18)
        requests[0] = attrs.evolve(requests[0], methods=())
        drafter = self.right(requests, lambda seq: int(seq.name) % 5)
        run = self.run([drafter], prefill_chunk=3, draft_max=4, max_batched_tokens=24)
        self.run_and_compare(
            run, requests, each=lambda seqs: run.cancel(seqs[-1]) if seqs[-1].output_position > 5 else None
        )

    @promise("If a stop lies inside a draft, the state ends before the stop, which is never evaluated.")
    def test_state_when_a_stop_lies_inside_the_draft(self) -> None:
        first = self.requests(temperatures=(1.0,))[0]
        tokens = self.plain(first)
        for at in range(2, 9):
            stop = tokens[at]
            stopping = attrs.evolve(first, stop_tokens={stop}, name="stops")
            run = self.run([Oracle({"stops": self.text_of(first)}, vocab=self.model.info.vocab)])
            self.run_and_compare(run, [stopping])

    @promise("After a step with a tree, the state is that along the kept path.")
    def test_state_after_trees(self) -> None:
        requests = self.requests()
        if not self.model.info.trees:
            pytest.skip("this target accepts chains only")
        for seed in range(2):
            trees = RandomTrees({r.name: self.text_of(r) for r in requests}, seed, self.model.info.vocab)
            self.run_and_compare(self.run([trees]), requests)

    @promise("The text is that of plain decoding, for every kept part of a draft.")
    def test_text_equals_plain_decoding(self) -> None:
        requests = self.requests(n=24)
        for kept in (1, 3):
            self.is_plain(self.run([self.right(requests, lambda seq, kept=kept: kept)]), requests)

    @promise("Owners do not depend on the order of plugins, before or after the target.")
    def test_order_of_owners_changes_nothing(self) -> None:
        requests = self.requests()
        drafter = self.right(requests, lambda seq: 2)
        self.run_and_compare(Run(self.model, [("owner", self.make()), drafter]), requests)

    @promise("A reused slot begins with the state that the target opened it with.")
    def test_a_slot_that_is_used_again_begins_anew(self) -> None:
        requests = self.requests(n=8)
        run = self.run([self.right(requests, lambda seq: 2)], max_sequences=1, reuse=False)
        self.run_and_compare(run, requests)

    @promise("Checkpoints belong to the slot: an owner does not change them, and a text can continue from each.")
    def test_checkpoints_stay_as_they_were(self) -> None:
        first = self.requests(temperatures=(0.0,))[0]
        text = self.text_of(first)
        plain = self.along(text)
        run = self.run([Checkpoints(), self.right([first], lambda seq: 2)], max_sequences=1)
        seq = run.submit(first)
        run_together(run, [])
        for position, state in seq.slot.checkpoints.items():
            for one, two in zip(leaves(state), plain.states[position], strict=True):
                expect_close(one, two, self.rounding, f"the checkpoint at {position} of prompt {first.prompt}")
        again = attrs.evolve(first, prompt=[*text[:-3], 1, 2], max_tokens=6)
        self.is_plain(run, [again])

    @promise("A step has one forward of the target: an owner that cannot restore a state rewinds.")
    def test_a_step_is_one_forward(self) -> None:
        requests = self.requests()
        counts = [0]

        def count(batch: Any, output: Any) -> None:
            counts[-1] += 1

        run = self.run([self.right(requests, lambda seq: 2)], target=Watched(self.model, count))
        run.observe(lambda step: counts.append(0))
        run_together(run, requests)
        expect(max(counts) == 1, f"{max(counts)} forwards in one step")

    @promise("compat declares the owned state, of kinds that the target has, from metadata only.")
    def test_owned_state_is_declared(self) -> None:
        answer = ask_compat(self.make(), "owner", MetadataOnly(self.model)) or Compat()
        states = self.model.info.states - {"attention"}
        expect(bool(answer.owns) and answer.owns <= states, f"owns {sorted(answer.owns)}, target has {sorted(states)}")

    @promise("For an unknown target compat refuses or owns no state of it, and does not raise.")
    def test_other_targets_are_declined(self) -> None:
        answer = ask_compat(self.make(), "owner", Unknown(self.model.info.states)) or Compat()
        expect(bool(answer.refusals) or not answer.owns, f"owns {sorted(answer.owns)} of a target of an unknown family")

    @promise("The instance keeps no data of a finished sequence.")
    def test_finished_sequences_are_forgotten(self) -> None:
        requests = self.requests(n=6)
        run = self.run([self.right(requests, lambda seq: 2)], max_sequences=1, reuse=False)
        seen = [weakref.ref(run.submit(r)) for r in requests]
        while run.busy:
            run.step()
        run.results.clear()
        check_forgotten(seen, max_sequences=1)


class Unknown:
    """A target unknown to every owner, with the same kinds of state as a known one."""

    tokenizer = None

    def __init__(self, states: frozenset[str]) -> None:
        self.info = TargetInfo("unknown", 32, 8, 2, 64, states=states, family="unknown")

    def __getattr__(self, name: str) -> Any:
        raise Found(f"compat read target.{name}")
