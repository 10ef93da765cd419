"""Some blocks of a model of transformers, against the executor ``reference``."""

from __future__ import annotations

from functools import cache

import attrs
import pytest
import torch

from spec_core import Compat, Draft, DraftStep, Needs, Part, Refused, Run, Sampling, Target, hookimpl, load
from spec_core.toolkit import (
    LowRank,
    Overlay,
    PartialForward,
    forward,
    open_sequence,
    overlay_problem,
    partial_forward,
    partial_problem,
)
from tests.engines.models import directory
from tests.support.hugging_face import directory as written

pytest.importorskip("transformers", "5.20")
TEXTS = [list(range(5, 17)), [7, 7, 9, 8], list(range(40, 61))]


@cache
def target(name: str = "transformers") -> Target:
    if name == "transformers":
        return load(f"transformers:{written('zoo:pico')}", dtype="float64", device="cpu")
    return load("zoo:pico", threads=1, kernels="reference")


def open_texts(name: str, parts: list[int]) -> list:
    """Sequences of the texts, evaluated but for their last tokens. parts: how many tokens are left of each."""
    seqs = []
    for text, left in zip(TEXTS, parts, strict=True):
        seq = open_sequence(target(name))
        forward(target(name), [Part(seq, 0, text[:-left], decides=False)])
        list.extend(seq.tokens, text)
        seq.evaluated = len(text) - left
        seqs.append(seq)
    return seqs


@pytest.mark.repeats(6)
@pytest.mark.parametrize("blocks", [[0], [0, 1, 2], [1, 3], range(10)], ids=["one", "three", "some", "all"])
@pytest.mark.parametrize(("window", "sinks"), [(0, 0), (5, 0), (4, 2), (1, 0)])
def test_rows_are_those_of_the_reference(blocks, window, sinks):
    """Of several sequences in one call, and of rows after those of a part."""
    outputs = []
    for name in ("transformers", "reference"):
        part = partial_forward(target(name), blocks, window, sinks=sinks)
        seqs, left = open_texts(name, [3, 1, 2]), [3, 1, 2]
        rows = [(seq, seq.evaluated, text[-n:]) for seq, text, n in zip(seqs, TEXTS, left, strict=True)]
        more = [(seq, len(text), [3, 4]) for seq, text in zip(seqs, TEXTS, strict=True)]
        outputs.append([part.forward(rows), *part.forward_rows(more), *part.forward_rows(rows, first=1)])
    for own, expected in zip(*outputs, strict=True):
        assert own.shape == expected.shape
        assert torch.allclose(own, expected.to(own.dtype), atol=2e-4)


def test_a_part_is_void_after_the_next_forward():
    seqs = open_texts("transformers", [2, 2, 2])
    plain = open_texts("transformers", [2, 2, 2])
    partial_forward(target(), [0, 2]).forward([(seq, seq.evaluated, [1, 2, 3, 4]) for seq in seqs])
    for group in (seqs, plain):
        parts = [
            Part(s, s.evaluated, t[-2:], decides=True, draft=Draft([5, 6])) for s, t in zip(group, TEXTS, strict=True)
        ]
        group.append(forward(target(), parts).output.logits.clone())
    assert torch.equal(seqs[-1], plain[-1])


@pytest.mark.parametrize(
    ("rows", "words"),
    [((2, [1]), "rows are evaluated"), ((10, []), "of 0 tokens"), ((12, [1]), "block 0 has 10 rows")],
)
def test_rows_that_cannot_be_are_refused(rows, words):
    [seq, *_] = open_texts("transformers", [2, 2, 2])
    with pytest.raises(ValueError, match=words):
        partial_forward(target(), [0]).forward([(seq, *rows)])
    with pytest.raises(ValueError, match=r"blocks \[99\] are not there"):
        partial_forward(target(), [0, 99])


def test_the_model_is_whole_after_a_part_that_failed(monkeypatch):
    [seq, *_] = open_texts("transformers", [2, 2, 2])
    part = partial_forward(target(), [0])
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(target().model.model.norm, "forward", lambda stream: 1 / 0)
        part.forward([(seq, seq.evaluated, [1])])
    assert not [block for block in target().layout.blocks if "forward" in vars(block)]


@attrs.define(eq=False)
class FirstBlocks:
    """Draft one token with the first blocks."""

    count: int
    blocks: PartialForward = attrs.field(default=None, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        return Compat(needs=Needs(partial=True), load=self.load)

    def load(self, target: Target) -> None:
        self.blocks = partial_forward(target, range(self.count))

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            if budget and seq.evaluated == len(seq.tokens) - 1:
                logits = self.blocks.forward([(seq, seq.evaluated, seq.tokens[-1:])])
                step.propose(seq, Draft([int(logits[0].argmax())]))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("count", [3, 10])
def test_texts_are_plain(temperature, count):
    results = []
    for methods in ([], [FirstBlocks(count)]):
        run = Run(target(), methods, max_sequences=3)
        sampling = Sampling(temperature=temperature)
        seqs = [run.submit(text, max_tokens=20, sampling=sampling, seed=i) for i, text in enumerate(TEXTS)]
        while run.busy:
            run.step()
        results.append([run.take(seq) for seq in seqs])
    plain, drafted = results
    assert [one.tokens for one in drafted] == [one.tokens for one in plain]
    accepted, tokens = (sum(one.stats[name] for one in drafted) for name in ("accepted", "drafted"))
    assert 0 < accepted <= tokens
    assert count < 10 or temperature or accepted == tokens


@pytest.mark.parametrize("arch", ["gemma", "qwen3next"])
def test_a_model_that_runs_as_a_whole_is_refused_by_name(arch):
    whole = load(f"transformers:{directory(arch)}", device="cpu", weights=False)
    assert partial_problem(whole) is not None
    with pytest.raises(Refused, match=r"mask of the caller|recurrent blocks"):
        Run(whole, [FirstBlocks(1)])


def test_other_weights_are_refused_by_name():
    pair = LowRank(torch.zeros(2, 4), torch.zeros(4, 2))
    assert "weights of their own" in overlay_problem(target(), Overlay({"blk.0.attn_q.weight": pair}))
