"""Some blocks of a model, in its cache: which operations they are, and what cannot be left out."""

from __future__ import annotations

import pytest
import torch

from spec_core import Draft, Part, load
from spec_core.toolkit import forward, open_sequence, partial_forward, partial_problem
from tests.support.assistants import tiny_gemma4
from tests.support.small_models import tiny_gguf, tiny_hybrid

TEXT = [1, 2, 3, 4, 5, 6, 7, 8]


def feed(target, seq, tokens):
    logits = forward(target, [Part(seq, seq.evaluated, tokens, decides=True)]).output.logits.clone()
    list.extend(seq.tokens, tokens)
    seq.evaluated += len(tokens)
    return logits


@pytest.fixture(params=["native", "reference"])
def target(request):
    return load("zoo:pico", threads=1, kernels=request.param)


def test_all_blocks_are_the_model_and_fewer_are_not(target):
    seq, alone = open_sequence(target), open_sequence(target)
    for one in (seq, alone):
        feed(target, one, TEXT[:5])
    layers = target.info.layers
    whole, first = (partial_forward(target, range(n)).forward([(seq, 5, TEXT[5:])]).clone() for n in (layers, 3))

    expected = feed(target, alone, TEXT[5:])
    assert torch.allclose(whole, expected, atol=1e-4) and not torch.allclose(first, expected, atol=1e-2)
    assert torch.equal(feed(target, seq, TEXT[5:]), expected)


def test_evaluated_rows_keep_their_bits_where_the_cache_grows(target):
    seq = open_sequence(target)
    feed(target, seq, TEXT)
    before = [tuple(part.clone() for part in target.cache_reader.rows(seq, len(TEXT)).read(i)) for i in (0, 2)]
    partial_forward(target, [0, 2]).forward([(seq, len(TEXT), [9] * 300)])
    after = [target.cache_reader.rows(seq, len(TEXT)).read(i) for i in (0, 2)]

    assert all(torch.equal(a, b) for one, two in zip(before, after, strict=True) for a, b in zip(one, two, strict=True))


def test_several_sequences_at_once_are_as_each_alone(target):
    seqs = [open_sequence(target) for _ in range(3)]
    for i, seq in enumerate(seqs):
        feed(target, seq, TEXT[: 4 + i])
    part = partial_forward(target, range(4))
    rows = [(seq, seq.evaluated, [i + 1, 7]) for i, seq in enumerate(seqs)]
    together = part.forward(rows).clone()

    assert all(torch.equal(part.forward([row])[0], expected) for row, expected in zip(rows, together, strict=True))


def test_a_window_hides_rows_before_it(target):
    one, other = open_sequence(target), open_sequence(target)
    feed(target, one, TEXT)
    feed(target, other, [8, 7, *TEXT[2:]])
    narrow, wide = (partial_forward(target, [0], window=n) for n in (4, 0))
    last = len(TEXT)

    assert torch.equal(narrow.forward([(one, last, [1])]).clone(), narrow.forward([(other, last, [1])]))
    assert not torch.equal(wide.forward([(one, last, [1])]).clone(), wide.forward([(other, last, [1])]))


def test_drafts_after_a_part_are_judged_as_without_it(target):
    seq, alone = open_sequence(target), open_sequence(target)
    for one in (seq, alone):
        feed(target, one, TEXT)
    partial_forward(target, range(5)).forward([(seq, len(TEXT), [3, 1, 2, 9, 9, 9])])
    tree = Draft([1, 2, 3, 4], parents=[-1, 0, 0, -1])
    rows = [
        forward(target, [Part(s, len(TEXT), [5], decides=True, draft=tree)]).output.logits.clone() for s in (seq, alone)
    ]

    assert torch.equal(*rows)


def test_what_cannot_run_is_refused_by_name():
    with pytest.raises(ValueError, match=r"blocks \[10\] are not there: the model has 0 to 9"):
        partial_forward(load("zoo:pico"), [0, 10])
    with pytest.raises(ValueError, match="its recurrent blocks keep a state"):
        partial_forward(load(tiny_hybrid(context=64)), [0])
    assert partial_problem(load(tiny_hybrid(context=64), weights=False)) == "its recurrent blocks keep a state"
    assert partial_problem(load(str(tiny_gguf(0)), weights=False)) is None
    with pytest.raises(ValueError, match="8 rows are evaluated"):
        target = load("zoo:pico")
        feed(target, seq := open_sequence(target), TEXT)
        partial_forward(target, [0]).forward([(seq, 7, [1])])


def test_blocks_that_share_keys_need_the_block_that_stores_them():
    """Blocks 3 and 4 of this model read the keys of blocks 2 and 1."""
    target = load(tiny_gemma4(), device="cpu", context=64)
    seq, alone = open_sequence(target), open_sequence(target)
    for one in (seq, alone):
        feed(target, one, TEXT)
    layers = range(target.info.layers)

    whole = partial_forward(target, layers).forward([(seq, len(TEXT), [5])]).clone()
    assert torch.allclose(whole, feed(target, alone, [5]), atol=1e-5)
    for left_out, is_source in enumerate([False, True, True, False, False]):
        rest = [i for i in layers if i != left_out]
        if is_source:
            with pytest.raises(ValueError, match=rf"values of layers \[{left_out}\], whose blocks are left out"):
                partial_forward(target, rest)
        else:
            partial_forward(target, rest).forward([(seq, len(TEXT), [5])])


def test_sinks_are_rows_before_the_window(target):
    """A change of a row between them is hidden, a change of a sink is seen."""
    texts = TEXT, [1, 2, 9, 9, 5, 6, 7, 8], [9, 2, 3, 4, 5, 6, 7, 8]
    part, rows = partial_forward(target, [0], window=4, sinks=2), []
    for text in texts:
        seq = open_sequence(target)
        feed(target, seq, text)
        rows.append(part.forward([(seq, len(text), [1])]).clone())

    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])


@pytest.mark.parametrize("wrong", [{"sinks": 2}, {"window": -1}, {"window": 4, "sinks": -1}])
def test_sinks_without_a_window_are_refused(target, wrong):
    with pytest.raises(ValueError, match="sinks need a window"):
        partial_forward(target, [0], **wrong)
