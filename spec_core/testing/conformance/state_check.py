"""Compares state and logits with plain decoding after every step of a run."""

from __future__ import annotations

from typing import Any, ClassVar

from spec_core.contract.request import Request
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.target import Target
from spec_core.loop.run import Run
from spec_core.testing.conformance.base import Conformance, expect, expect_same, run_together
from spec_core.testing.conformance.drive import PlainDecoding, evaluate_along, expect_close, host, leaves
from spec_core.testing.drafters import Oracle

ROUNDING = {"float64": 1e-12, "float32": 1e-5}
"""Share of the largest value by which results may differ, by dtype; others 3e-2."""

_along: dict[tuple[Any, str, tuple[int, ...]], PlainDecoding] = {}


class Gated(Conformance):
    """Part of RollbackConformance and TargetConformance.

    tolerance: None selects it by the target's dtype.
    """

    tolerance: ClassVar[float | None] = None

    def one_request(self) -> None:
        requests = self.requests()[:1]
        run_together(self.run([self.right(requests, lambda seq: 2)]), requests)

    @property
    def rounding(self) -> float:
        return ROUNDING.get(self.model.info.dtype, 3e-2) if self.tolerance is None else self.tolerance

    def along(self, text: list[int]) -> PlainDecoding:
        """Plain states and logits along a text; cached."""
        key = (self.source, self.model.info.name, tuple(text))
        if key not in _along:
            _along[key] = evaluate_along(self.model, text)
        return _along[key]

    def right(self, requests: list[Request], kept: Any, length: int = 4) -> Oracle:
        """A drafter whose first ``kept(sequence)`` drafts are right."""
        known = {r.name: self.text_of(r) for r in requests}
        return Oracle(known, lambda i, seq: i < kept(seq), length, self.model.info.vocab)

    def run_and_compare(self, run: Run, requests: list[Request], each: Any = None) -> None:
        """Run to the end; after every step compare every sequence's state and tokens with plain decoding."""
        plain = {r.name: self.along(self.text_of(r)) for r in requests}
        run.observe(lambda step: _right_rows(step, plain, self.rounding))
        seqs = [run.submit(r) for r in requests]
        while run.busy:
            before = list(run.running)
            run.step()
            for seq in dict.fromkeys([*before, *run.running]):
                self._right_state(run.target, seq, plain[seq.name])
            if each is not None:
                each(seqs)
        for seq, request in zip(seqs, requests, strict=True):
            result = run.take(seq)
            if result.finish_reason != "cancelled":
                expect_same(result.tokens, self.plain(request), str(request.prompt))

    def _right_state(self, target: Target, seq: Sequence, plain: PlainDecoding) -> None:
        state, expected = leaves(target.checkpoint(seq)), plain.states[seq.evaluated]
        if not seq.evaluated:
            return
        shown = f"{seq.tokens[: seq.prompt_len]}, seed={seq.seed}, temperature={seq.sampling.temperature}"
        what = f"the state of prompt={shown} after {seq.evaluated} tokens"
        expect(len(state) == len(expected), f"{what} has {len(state)} tensors, expected {len(expected)}")
        for i, (one, two) in enumerate(zip(state, expected, strict=True)):
            expect_close(one, two, self.rounding, f"{what}, tensor {i},")


def _right_rows(step: Step, plain: dict[str, PlainDecoding], tolerance: float) -> None:
    """The logits after committed text, in a step with a draft, must equal plain decoding's."""
    for part in step.parts:
        if part.verdict is not None:
            expected = plain[part.seq.name].logits[part.end]
            what = f"the row after {part.end} tokens of prompt={part.seq.tokens[: part.seq.prompt_len]}"
            expect_close(host(step.logits(part.seq)[0]), expected, tolerance, f"{what}, seed={part.seq.seed},")
