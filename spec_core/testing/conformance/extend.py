"""Checks of a method that extends the drafts of others; skipped for one that does not declare it."""

from __future__ import annotations

import pytest

from spec_core.assembly.hooks import ask_compat
from spec_core.contract.request import Request
from spec_core.contract.step import Step
from spec_core.contract.values import Compat
from spec_core.loop.run import Run
from spec_core.testing.conformance.base import Conformance, expect, run_together
from spec_core.testing.conformance.drafts import kept_to
from spec_core.testing.conformance.probes import SUBJECT, first_right
from spec_core.testing.conformance.promise import promise
from spec_core.testing.drafters import Oracle

BEFORE = 2
"""Tokens that the other method drafts."""
Drafted = dict[tuple[int, ...], int]
"""{all tokens before it, drafted ones included: the first token that was proposed}."""


class ExtendChecks(Conformance):
    """Part of DrafterConformance."""

    def answer(self) -> Compat:
        """The method's answer in compat, if it extends."""
        answer = ask_compat(self.make(), SUBJECT, self.model)
        if answer is None or not answer.extends:
            pytest.skip("does not extend the drafts of others")
        return answer

    def extending_run(self, requests: list[Request], right: int) -> Run:
        """A run in which another method drafts first, ``right`` of its tokens as the target will choose them."""
        self.answer()
        known = {r.name: self.text_of(r) for r in requests}
        begins = Oracle(known, first_right(right), length=BEFORE, vocab=self.model.info.vocab)
        return self.run([("begins", begins), self.mine()])

    @promise("Extending another's draft changes no text, whether that draft is right, partly right or wrong.")
    def test_text_with_extensions_equals_plain_decoding(self) -> None:
        requests = self.requests()
        for right in range(BEFORE + 1):
            self.is_plain(self.extending_run(requests, right), requests)

    @promise("A step with extensions costs max Compat.forwards(K) forwards too, K with the tokens of other methods.")
    def test_forwards_of_extensions_are_as_promised(self) -> None:
        requests = self.requests()
        run, promised = self.extending_run(requests, BEFORE), self.answer().forwards
        run.observe(lambda step: kept_to(step, promised))
        run_together(run, requests)

    @promise("An extension follows the drafted tokens: it is what the method drafts when they are committed text.")
    def test_extensions_follow_the_drafted_tokens(self) -> None:
        if reads_states(self.answer()):
            pytest.skip("reads hidden states, which drafted tokens do not have")
        requests = self.requests()
        extending, alone = self.extending_run(requests, BEFORE), self.run([self.mine()], draft_max=1)
        extensions, drafts = record_first_tokens(extending), record_first_tokens(alone)
        run_together(extending, requests)
        run_together(alone, requests)
        expect(bool(extensions), "nothing was extended; override prompts() with texts after which it has more to say")
        both = extensions.keys() & drafts.keys()
        same = sum(extensions[text] == drafts[text] for text in both)
        expect(
            2 * same >= len(both), f"{same} of {len(both)} extensions begin as the draft after the same committed text"
        )

    @promise("A method that reads hidden states, which drafted tokens do not have, says something else after others.")
    def test_extensions_depend_on_the_drafted_tokens(self) -> None:
        if not reads_states(self.answer()):
            pytest.skip("reads no hidden states: what it says after committed tokens is held against it")
        requests = self.requests()
        one, other = self.after(requests, BEFORE), self.after(requests, BEFORE - 1)
        both = [(one[text], other[text]) for text in one.keys() & other.keys()]
        expect(bool(both), "nothing was extended; override prompts() with texts after which it has more to say")
        same = sum(a == b for a, b in both)
        expect(2 * same <= len(both), f"{same} of {len(both)} extensions are the same after another drafted token")

    def after(self, requests: list[Request], right: int) -> Drafted:
        """{committed text: what was appended first} where ``right`` tokens before it were right."""
        run = self.extending_run(requests, right)
        extensions = record_first_tokens(run)
        run_together(run, requests)
        return {text[:-BEFORE]: token for text, token in extensions.items()}


def reads_states(compat: Compat) -> bool:
    """Whether its drafts depend on hidden states of the target."""
    return compat.needs.final or bool(compat.needs.hidden)


def record_first_tokens(run: Run) -> Drafted:
    """Record, while the run steps, the first token of every proposal of the method."""
    firsts: Drafted = {}

    def on_step(step: Step) -> None:
        for part in step.parts:
            committed = part.seq.tokens[: len(part.seq.tokens) - len(part.emitted)]
            for piece in part.pieces:
                if piece.source == SUBJECT and part.draft is not None:
                    path = [part.draft.ids[i] for i in part.draft.ancestry(piece.leaf)] if piece.leaf >= 0 else []
                    firsts[(*committed, *path)] = piece.draft.ids[0]

    run.observe(on_step)
    return firsts
