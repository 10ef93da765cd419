"""Conformance of a target's optional parts: each is checked where it exists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from spec_core.contract.batch import Part
from spec_core.contract.probes import Probes, create_piece
from spec_core.contract.sequence import Sequence
from spec_core.contract.splice import explicit_parents
from spec_core.contract.target_parts import (
    cache_reader,
    follow_problem,
    layer_executor,
    next_token_layers,
    partial_forward,
    partial_problem,
    probe_problem,
    training_texts,
)
from spec_core.contract.values import Draft, Needs
from spec_core.testing.conformance.base import expect
from spec_core.testing.conformance.drive import Row, expect_close, feed_tokens, forward, host, keep_paths
from spec_core.testing.conformance.exact_rows import RowChecks
from spec_core.testing.conformance.promise import Found, promise
from spec_core.toolkit.drive import forward as drive
from spec_core.toolkit.drive import open_sequence

TEXT = [5, 3, 1, 4, 2, 6, 3]
"""A text whose keys and values are read."""
TREE, DRAFTED = [-1, -1, 0, 0, 1, 3], [9, 8, 7, 6, 9, 5]
"""Parents and tokens of a draft that is evaluated in several forwards."""
PROMPTS = 3
"""Prompts that are requested of a model's training texts."""


class TargetPartChecks(RowChecks):
    """Part of the class of targets."""

    @promise("next_token_layer, if there is one, names tensors that its source has, and describes its operations.")
    def test_the_next_token_layer_is_readable(self) -> None:
        layers = next_token_layers(self.model)
        if not layers:
            pytest.skip("the target has no layer that predicts one token further")
        for layer in layers:
            if layer.problem is not None:
                expect(isinstance(layer.problem, str) and bool(layer.problem), f"problem is {layer.problem!r}")
                continue
            expect(bool(layer.names), "it names no tensor")
            missing = sorted(name for name in layer.names if layer.source.shape(name) is None)
            expect(not missing, f"its source has no {', '.join(missing)}")
            operations = [type(operation).__name__ for operation in layer.operations(layer.source)]
            expect("Input" in operations and "Tap" in operations, f"its operations are {operations}")

    @promise("The rotation of a next_token_layer covers the rotated dimensions of its heads: float32 [pairs].")
    def test_the_next_token_layer_rotates_its_heads(self) -> None:
        layers = [layer for layer in next_token_layers(self.model) if layer.problem is None]
        if not layers:
            pytest.skip("the target has no layer that predicts one token further, or none that can be used")
        for layer in layers:
            width, rotated = layer.heads
            angles, factor = layer.rotation()
            expect(0 <= rotated <= width, f"{rotated} of {width} dimensions rotate")
            expect(angles.dtype == torch.float32, f"angles are {angles.dtype}")
            expect(2 * angles.numel() >= rotated, f"{angles.numel()} pairs for {rotated} rotated dimensions")
            expect(isinstance(factor, float) and factor > 0, f"the factor is {factor!r}")

    @promise("layer_executor, if there is one, reads the tensors of the target that heads may use.")
    def test_the_layer_executor_has_the_weights_of_the_target(self) -> None:
        executor = layer_executor(self.model)
        if executor is None:
            pytest.skip("the target runs no further layers")
        name = "token_embd.weight"
        shape, own = executor.source.shape(name), tuple(self.model.tensor(name).shape)
        expect(shape is not None and tuple(shape) == own, f"{name} is {shape} there, {own} in the target")
        expect(callable(getattr(executor, "with_layers", None)), "it has no with_layers")

    @promise("cache_reader, if there is one, shows keys and values [K, n, D], however their rows were evaluated.")
    def test_the_cache_reader_shows_the_rows_of_the_text(self) -> None:
        reader = cache_reader(self.model)
        if reader is None:
            pytest.skip("the target shows none of its cache")
        blocks = {i: heads for i in range(self.model.info.layers) if (heads := reader.heads(i)) is not None}
        expect(bool(blocks), "no block has heads")
        whole, pieces = open_sequence(self.model), open_sequence(self.model)
        feed_tokens(self.model, whole, TEXT)
        step, _ = forward(self.model, [Row(pieces, TEXT[:4], Draft([9, 8, 7]))])
        keep_paths(self.model, step, [()])
        feed_tokens(self.model, pieces, TEXT[4:])
        for block, heads in blocks.items():
            for name, one, other in zip(
                ("keys", "values"),
                reader.rows(whole, len(TEXT)).read(block),
                reader.rows(pieces, len(TEXT)).read(block),
                strict=True,
            ):
                size = (heads.kv_heads, len(TEXT), heads.dim)
                expect(tuple(one.shape) == size, f"{name} of block {block} are {list(one.shape)}, not {list(size)}")
                expect_close(host(other), host(one), self.rounding, f"{name} of block {block} after a rejected draft")
            rows = reader.rows(whole, len(TEXT))
            for name, one, other in zip(("keys", "values"), rows.read(block, 3), rows.read(block), strict=True):
                expect(torch.equal(one, other[:, 3:]), f"{name} of block {block} from row 3 on are others")

    @promise("partial_forward, if there is one, changes neither evaluated rows nor the target's next forward.")
    def test_a_part_of_the_blocks_changes_nothing(self) -> None:
        """All blocks give the logits of the target; a start before the evaluated rows is refused."""
        if (problem := partial_problem(self.model)) is not None:
            pytest.skip(problem)
        part, at = partial_forward(self.model, range(self.model.info.layers)), len(TEXT) - 3
        drafted, alone = open_sequence(self.model), open_sequence(self.model)
        for seq in (drafted, alone):
            feed_tokens(self.model, seq, TEXT[:at])
        guess = host(part.forward([(drafted, at, TEXT[at:])])).copy()
        part.forward([(drafted, at + 1, [9, 8, 7])])
        one, two = (host(feed_tokens(self.model, seq, TEXT[at:]).logits) for seq in (drafted, alone))
        expect(np.array_equal(one, two), "the forward after it has other logits")
        expect_close(guess, two, self.rounding, "a row of logits of all blocks")
        try:
            part.forward([(drafted, at - 1, [1])])
        except ValueError:
            return
        raise Found("rows before the evaluated ones are written without an error")

    @promise("forward_rows of a part gives the logits of each token from number first on, the last ones as forward.")
    def test_rows_of_a_part_are_those_from_the_first_on(self) -> None:
        if (problem := partial_problem(self.model)) is not None:
            pytest.skip(problem)
        part, seq = partial_forward(self.model, range(self.model.info.layers)), open_sequence(self.model)
        feed_tokens(self.model, seq, TEXT[:-3])
        rows = [(seq, len(TEXT) - 3, TEXT[-3:])]
        last = host(part.forward(rows)).copy()
        for first in (0, 2):
            logits = part.forward_rows(rows, first)
            counts = [len(one) for one in logits]
            expect(counts == [3 - first], f"rows from number {first} of 3 on: {counts} rows in place of {[3 - first]}")
            expect_close(host(logits[0][-1:]), last, self.rounding, "the last row of forward_rows")

    @promise("Drafts that follow draft rows of the last forward have the logits of one forward over all of them.")
    def test_drafts_that_follow_drafts_are_as_in_one_forward(self) -> None:
        if (problem := follow_problem(self.model)) is not None:
            pytest.skip(problem)
        for parents in (TREE, list(range(-1, len(TREE) - 1))):
            draft, whole = Draft(DRAFTED, parents=parents), open_sequence(self.model)
            step, output = forward(self.model, [Row(whole, TEXT, draft)])
            rows = self._grow(draft)
            for j, row in enumerate(rows):
                expected = host(output.logits[step.parts[0].logits_row + 1 + j])
                expect_close(row, expected, self.rounding, f"the row after draft {j}, parents {parents}")

    def _grow(self, draft: Draft) -> list[np.ndarray]:
        """Rows of logits after the tokens of a draft that is evaluated in several forwards."""
        seq, rows = open_sequence(self.model), []
        step, _ = forward(self.model, [Row(seq, TEXT)])
        for count in (2, 3, len(draft)):
            part = Part(seq, len(TEXT), [], True, draft=beginning(draft, count))
            step = drive(self.model, [part], Needs(trees=True), follows=step)
            assert step.output is not None
            rows += [host(step.output.logits[part.logits_row + 1 + j]).copy() for j in range(part.held, count)]
        return rows

    @promise("Draft rows that a forward may follow are void after another forward of the sequence, and in a copy.")
    def test_draft_rows_are_void_after_another_forward(self) -> None:
        if (problem := follow_problem(self.model)) is not None:
            pytest.skip(problem)
        draft, more = Draft(DRAFTED[:2]), Draft(DRAFTED[:3])
        for change in (self._evaluate_again, self._open_again):
            seq = open_sequence(self.model)
            step, _ = forward(self.model, [Row(seq, TEXT, draft)])
            change(seq)
            try:
                drive(self.model, [Part(seq, len(TEXT), [], True, draft=more)], follows=step)
            except ValueError:
                continue
            raise Found("drafts follow rows that were written since, without an error")

    def _evaluate_again(self, seq: Sequence) -> None:
        forward(self.model, [Row(seq, [8], Draft([7]))])

    def _open_again(self, seq: Sequence) -> None:
        self.model.open(seq, len(TEXT))

    @promise("Probe rows have the outputs of the same rows as drafts, and change neither drafts nor the next forward.")
    def test_probe_rows_are_evaluated_and_not_kept(self) -> None:
        if (problem := probe_problem(self.model)) is not None:
            pytest.skip(problem)
        trees, cut = Needs(trees=True), 2
        whole, probed, plain = (open_sequence(self.model) for _ in range(3))
        _, output = forward(self.model, [Row(whole, TEXT, Draft(DRAFTED, parents=TREE))])
        expected = host(output.logits).copy()
        draft = Draft(DRAFTED[:cut], parents=TREE[:cut])
        piece = create_piece(
            "subject",
            Probes(DRAFTED[cut:], TREE[cut:]),
            cut,
            0,
            len(TREE),
            self.model.info.vocab,
            self.model.info.width,
        )
        part = Part(probed, 0, list(TEXT), True, draft=draft, probes=[piece])
        probed_output = drive(self.model, [part], trees).output
        assert probed_output is not None
        rows = probed_output.logits
        expect(len(rows) == len(expected), f"{len(rows)} rows of logits in place of {len(expected)}")
        for row, other in enumerate(expected):
            expect_close(host(rows[row]), other, self.rounding, f"row {row}, {len(TREE) - cut} of them are probes")
        feed_tokens(self.model, plain, TEXT)
        list.extend(probed.tokens, TEXT)
        probed.evaluated = len(TEXT)
        one, two = (host(feed_tokens(self.model, seq, [7]).logits).copy() for seq in (probed, plain))
        expect_close(one, two, self.rounding, "the next forward after probe rows")

    @promise(
        "training_texts, if there are some, are texts that the tokenizer reads, and at most the prompts requested."
    )
    def test_training_texts_are_texts(self) -> None:
        provided = training_texts(self.model)
        if provided is None:
            pytest.skip("no texts belong to the target")
        texts, prompts = provided.texts(), provided.prompts(PROMPTS)
        expect(bool(texts) and all(isinstance(text, str) and text for text in texts), "a text is empty, or none")
        expect(len(prompts) <= PROMPTS, f"{len(prompts)} prompts in place of {PROMPTS}")
        expect(all(isinstance(prompt, (str, list)) for prompt in prompts), _kinds(prompts))
        if self.model.tokenizer is not None:
            expect(bool(self.model.tokenizer.encode(texts[0])), "the tokenizer reads nothing of a text")


def beginning(draft: Draft, count: int) -> Draft:
    """The first tokens of a draft."""
    return Draft(draft.ids[:count], parents=explicit_parents(draft)[:count])


def _kinds(prompts: Any) -> str:
    return f"prompts are {sorted({type(prompt).__name__ for prompt in prompts})}"
