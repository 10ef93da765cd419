"""Checks of a target's rows: whether they depend on the rows computed with them."""

from __future__ import annotations

from typing import ClassVar

import pytest

from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Draft, Needs
from spec_core.testing.conformance.drive import Row, evaluate_along, expect_close, feed_tokens, forward, host
from spec_core.testing.conformance.promise import promise
from spec_core.testing.conformance.state_check import Gated
from spec_core.toolkit.drive import open_sequence

LENGTH, SHORTEST = 64, 9
"""Tokens of a text: some kernels change the order of a sum only after some tens of rows."""
WIDTHS = (1, 2, 4, 7, 15, 24)
"""Lengths of the drafts after a row: few rows and many may run in different kernels."""
TREE = Draft([1, 2, 3, 1, 4, 5], parents=[-1, -1, 0, 2, 1, 2])


class RowChecks(Gated):
    """Part of TargetConformance.

    batch_tolerance: share of the largest value by which rows computed alone and in a batch may differ; 0 means equal
    bits, as kernels should have.
    """

    batch_tolerance: ClassVar[float] = 0.0

    @property
    def texts(self) -> list[list[int]]:
        """Three texts or more of 64 tokens, fewer in a short context: a prompt, and tokens that do not repeat."""
        prompts, info = self.prompts(), self.model.info
        length = max(SHORTEST, min(LENGTH, info.context - max(WIDTHS) - 8))
        varied = [(7 * i * i + 31 * i + 5) % (1 + info.vocab // 2) for i in range(length)]
        return [[*p, *varied][:length] for p in (prompts * 3)[: max(3, len(prompts))]]

    @promise("A row's result does not depend on the rows computed with it: neither on their number nor their sequence.")
    def test_rows_do_not_depend_on_the_rows_beside_them(self) -> None:
        alone = [host(feed_tokens(self.model, open_sequence(self.model), text).logits[0]) for text in self.texts]
        _, output = forward(self.model, [Row(open_sequence(self.model), text) for text in self.texts])
        for i, (one, text) in enumerate(zip(alone, self.texts, strict=True)):
            expect_close(host(output.logits[i]), one, self.batch_tolerance, f"the last row of {text}, in a batch,")
        token_by_token = evaluate_along(self.model, self.texts[0])
        _, output = forward(self.model, [Row(open_sequence(self.model), self.texts[0])], Needs(all_logits=True))
        for i, one in enumerate(token_by_token.logits[1:]):
            expect_close(
                host(output.logits[i]), one, self.batch_tolerance, f"row {i} of {self.texts[0]} in one forward"
            )

    @promise("A row's result does not depend on the draft after it, nor a drafted row's on the rest of its draft.")
    def test_rows_do_not_depend_on_the_draft_behind_them(self) -> None:
        self._chains_are_equal(self.batch_tolerance)

    @promise("Rows have equal bits as info.exact says: of text and chains with chains, of trees too with rows.")
    def test_rows_are_as_exact_as_declared(self) -> None:
        info = self.model.info
        if info.exact not in ("rows", "chains"):
            pytest.skip(f"this target declares no exact rows: {info.exactness or 'exact is empty'}")
        self._chains_are_equal(0.0)
        if info.exact == "rows" and info.trees:
            self._trees_are_equal()

    def _chains_are_equal(self, tolerance: float) -> None:
        """Rows of text and drafts against plain decoding, where each row is alone."""
        text = self.texts[1]
        before, more = text[:-1], [(11 * i + 3) % self.model.info.vocab for i in range(max(WIDTHS))]
        plain = evaluate_along(self.model, [*text, *more]).logits[len(text) :]
        for width in WIDTHS:
            seq = self._sequence_behind(before)
            _, output = forward(self.model, [Row(seq, text[-1:], Draft(more[:width]))])
            for i in range(1 + width):
                expect_close(host(output.logits[i]), plain[i], tolerance, f"row {i} of a draft of {width} after {text}")

    def _sequence_behind(self, tokens: list[int]) -> Sequence:
        """A sequence that has read these tokens one by one: a prompt in one forward may round otherwise."""
        seq = open_sequence(self.model)
        for token in tokens:
            feed_tokens(self.model, seq, [token])
        return seq

    def _trees_are_equal(self) -> None:
        for text in self.texts:
            seq = self._sequence_behind(text[:-1])
            _, output = forward(self.model, [Row(seq, text[-1:], TREE)], Needs(trees=True))
            for j in range(len(TREE)):
                chain = [TREE.ids[i] for i in TREE.ancestry(j)]
                expected = evaluate_along(self.model, [*text, *chain]).logits[-1]
                expect_close(host(output.logits[1 + j]), expected, 0.0, f"draft {j} of a tree after {text}")
