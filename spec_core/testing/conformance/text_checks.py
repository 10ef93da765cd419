"""Checks of the text: whatever a drafter proposes, the text is the target's own."""

from __future__ import annotations

from typing import Any

import attrs
import torch

from spec_core.contract.request import Request
from spec_core.sampling.parameters import Sampling
from spec_core.testing.conformance.base import Conformance
from spec_core.testing.conformance.probes import Cut, Limiter, Rewinds
from spec_core.testing.conformance.promise import promise
from spec_core.testing.constraint import ToyConstraint
from spec_core.testing.drafters import Oracle
from spec_core.testing.rollback import ToyRollback
from spec_core.testing.toy import ToyTarget


class TextChecks(Conformance):
    """Part of DrafterConformance."""

    @promise("The text of a seed equals that of plain decoding, with every draft length and temperature.")
    def test_text_equals_plain_decoding(self) -> None:
        for draft_max in (1, 3, 16):
            for request in self.requests():
                self.is_plain(self.run([self.mine()], draft_max=draft_max), [request])

    @promise("Sequences in a batch give the same texts as each one alone.")
    def test_text_does_not_depend_on_the_batch(self) -> None:
        requests = self.requests()
        ways: list[dict[str, Any]] = [{}, {"prefill_chunk": 2, "max_batched_tokens": 9}, {"max_sequences": 2}]
        for settings in ways:
            self.is_plain(self.run([self.mine()], **settings), requests)

    @promise("The text is the same for every acceptance rate.")
    def test_text_does_not_depend_on_what_is_accepted(self) -> None:
        for longest in (0, 1, 2):
            run = self.run([self.mine()], rule=Cut(longest))
            self.is_plain(run, self.requests())

    @promise("The order of the methods does not change the text; a method still works when another one drafts.")
    def test_order_of_registration_changes_no_text(self) -> None:
        requests = self.requests()
        for swap in (False, True):
            methods = [self._partner(requests), self.mine()]
            run = self.run([self._now_and_then(), *(reversed(methods) if swap else methods)])
            self.is_plain(run, requests)

    def _partner(self, requests: list[Request]) -> tuple[str, Oracle]:
        """Drafts two right tokens and a wrong one."""
        known = {r.name: self.text_of(r) for r in requests}
        return "partner", Oracle(known, lambda i, seq: i < 2, length=3, vocab=self.model.info.vocab)

    def _now_and_then(self) -> Limiter:
        return Limiter({"partner": lambda seq: len(seq.tokens) % 2 == 1})

    @promise("The text stays the same and the method continues, also if kept drafts are evaluated again.")
    def test_text_does_not_depend_on_how_state_is_put_back(self) -> None:
        requests = self.requests()
        for owner in self._owners():
            target = Rewinds(self.model) if owner is None else self.model
            others = [self._now_and_then(), self._partner(requests)]
            self.is_plain(self.run([*others, self.mine()], target=target, owner=owner), requests)

    def _owners(self) -> list[Any]:
        """Owners of recurrent state, by strategy; None if any step may be rewound."""
        if "recurrent" not in self.model.info.states:
            return [None]
        return [ToyRollback("replay"), ToyRollback("checkpoint")] if isinstance(self.model, ToyTarget) else []

    @promise("A text ends where plain decoding ends it: at a stop token inside a draft, and at the limit.")
    def test_text_ends_where_plain_decoding_ends(self) -> None:
        for request in self.requests():
            stop = self.plain(request)[5]
            stopping = attrs.evolve(request, stop_tokens={stop})
            self.is_plain(self.run([self.mine()]), [stopping])
            for n in (1, 2, 3):
                self.is_plain(self.run([self.mine()]), [attrs.evolve(request, max_tokens=n)])

    @promise("Under a constraint on the text, the text of a seed equals that of plain decoding under it.")
    def test_text_under_a_constraint_is_plain(self) -> None:
        for share in (0.1, 0.8):
            requests = self.requests(constraint=ToyConstraint(share=share))
            self.is_plain(self.run([self.mine()]), [attrs.evolve(r, ignore_eos=False) for r in requests])

    @promise("Sequences that join, leave or are cancelled do not affect others.")
    def test_sequences_come_and_go(self) -> None:
        requests = self.requests()
        run = self.run([self.mine()], max_sequences=3)
        gone = run.submit(attrs.evolve(requests[0], name="gone"))
        for _ in range(4):
            run.step()
        run.cancel(gone)
        self.is_plain(run, requests)

    @promise("A request that excludes the method is neither drafted nor changed.")
    def test_a_request_without_it_is_left_alone(self) -> None:
        requests = self.requests()
        choices = None, (), ("silent",)
        without = [attrs.evolve(r, methods=choices[i % 3]) for i, r in enumerate(requests)]
        silent = Oracle({r.name: [] for r in requests})
        self.is_plain(self.run([self.mine(), ("silent", silent)]), without)

    @promise("A prompt position may be given as an embedding; its token is -1.")
    def test_embedded_prompts_are_survived(self) -> None:
        random = torch.Generator().manual_seed(0)
        info = self.model.info
        kind = {"dtype": getattr(torch, info.dtype), "device": info.device}
        says_two = Sampling(logit_bias={2: 1e4})
        for request in self.requests(temperatures=(0.0,)):
            prompt = [*request.prompt, -1, 1, 2, -1, 1, 2, -1, 1]
            at = [i for i, token in enumerate(prompt) if token < 0]
            embeds = {i: torch.randn(info.width, generator=random).to(**kind) for i in at}
            for sampling in (request.sampling, says_two):  # then the text continues as after an embedding
                embedded = attrs.evolve(request, prompt=prompt, embeds=embeds, sampling=sampling)
                self.is_plain(self.run([self.mine()]), [embedded])

    @promise("At the end of the context the text ends, with or without a draft.")
    def test_the_end_of_the_context_is_kept(self) -> None:
        context = self.model.info.context
        prompt = (self.prompts()[0] * context)[: context - 9]
        request = Request(prompt, max_tokens=20, name="long", ignore_eos=True)
        self.is_plain(self.run([self.mine()], prefill_chunk=64), [request])
