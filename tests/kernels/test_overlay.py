"""Other weights for rows of a partial forward: which rows take them, and what is refused by name."""

from __future__ import annotations

import pytest
import torch

from spec_core import load
from spec_core.toolkit import LowRank, Overlay, open_sequence, overlay_problem, partial_forward
from tests.kernels.test_part import TEXT, feed
from tests.support.small_models import tiny_hybrid

TOKENS = [5, 6, 7, 8]


@pytest.fixture(params=["native", "reference"])
def target(request):
    return load("zoo:pico", threads=1, kernels=request.param)


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) * 0.2


def own(target, name):
    return target.tensor(name).float()


def logits_of(target, overlay, seq):
    return partial_forward(target, range(target.info.layers), overlay=overlay).forward_rows([(seq, 8, TOKENS)])[0]


def low_rank(target, name, rank=6):
    n, k = own(target, name).shape
    return LowRank(noise(rank, k), noise(n, rank), scale=0.5)


NAMES = [f"blk.1.{stem}.weight" for stem in ("attn_q", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")]


@pytest.fixture
def seq(target):
    one = open_sequence(target)
    feed(target, one, TEXT)
    return one


def test_a_pair_of_matrices_is_added(target, seq):
    """W + scale · up down in its place gives the same rows, within rounding."""
    pairs = {name: low_rank(target, name) for name in NAMES}
    sums = {name: own(target, name) + one.scale * one.up @ one.down for name, one in pairs.items()}
    added, whole, plain = (logits_of(target, Overlay(t), seq).clone() for t in (pairs, sums, {}))

    assert torch.allclose(added, whole, atol=2e-3 * float(whole.abs().max()))
    assert not torch.allclose(added, plain, atol=0.1)


def test_plain_rows_are_the_targets_own(target, seq):
    tensors = {name: low_rank(target, name) for name in NAMES}
    tensors["blk.2.attn_k.weight"] = own(target, "blk.2.attn_k.weight") + noise(1, 1)
    mixed = logits_of(target, Overlay(tensors, plain_rows=2), seq).clone()
    plain, other = (logits_of(target, Overlay(t), seq).clone() for t in ({}, tensors))

    assert torch.allclose(mixed[:2], plain[:2], atol=1e-4)
    assert not torch.allclose(mixed[2:], plain[2:], atol=0.1) and not torch.allclose(mixed[2:], other[2:], atol=0.1)


def test_rows_see_each_other_both_ways(target, seq):
    part = partial_forward(target, range(3), overlay=Overlay({}, both_ways=True))
    causal = partial_forward(target, range(3))
    first = [one.forward_rows([(seq, 8, [5, 6, last])])[0][0].clone() for one in (part, causal) for last in (7, 9)]

    assert not torch.equal(first[0], first[1]) and torch.equal(first[2], first[3])


def test_rows_are_as_alone_and_the_targets_stay(target, seq):
    seqs = [seq, *(open_sequence(target) for _ in range(2))]
    for i, one in enumerate(seqs[1:]):
        feed(target, one, TEXT[: 5 + i])
    overlay = Overlay({NAMES[0]: low_rank(target, NAMES[0])}, plain_rows=1, both_ways=True)
    part = partial_forward(target, range(target.info.layers), overlay=overlay)
    rows = [(one, one.evaluated, TOKENS[: 2 + i]) for i, one in enumerate(seqs)]
    before = [part.clone() for part in target.cache_reader.rows(seq, 8).read(1)]
    together = [one.clone() for one in part.forward_rows(rows, first=1)]

    assert [len(one) for one in together] == [1, 2, 3]
    for row, expected in zip(rows, together, strict=True):
        assert torch.equal(part.forward_rows([row], first=1)[0], expected)
        assert torch.equal(part.forward([row])[0], expected[-1])
    assert all(torch.equal(a, b) for a, b in zip(before, target.cache_reader.rows(seq, 8).read(1), strict=True))


def test_what_does_not_fit_is_refused_by_name(target):
    wrong = {
        "has no 'blk.99.attn_q.weight'": {"blk.99.attn_q.weight": noise(4, 4)},
        "has no 'ffn'": {"ffn": noise(4)},
        r"'blk.1.attn_q.weight' has shape \[4, 4\], the target's has": {NAMES[0]: noise(4, 4)},
        r"'blk.1.ffn_down.weight' has shape \[4, 4\]": {NAMES[-1]: LowRank(noise(2, 4), noise(4, 2))},
        "'blk.1.attn_q.weight' has 3 dimensions": {NAMES[0]: noise(2, 2, 2)},
    }
    for words, tensors in wrong.items():
        with pytest.raises(ValueError, match=words):
            partial_forward(target, [0], overlay=Overlay(tensors))
        meta = {n: t if isinstance(t, LowRank) else t.to("meta") for n, t in tensors.items()}
        with pytest.raises(ValueError, match=words):
            raise ValueError(overlay_problem(target, Overlay(meta)))
    with pytest.raises(ValueError, match="for all rows only"):
        head = {"output.weight": own(target, "output.weight")}
        partial_forward(target, [0], overlay=Overlay(head, plain_rows=1))


def test_numbers_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"'blk.0.attn_q.weight' is of type int64"):
        Overlay({"blk.0.attn_q.weight": torch.zeros(2, 2, dtype=torch.int64)})
    with pytest.raises(ValueError, match="different ranks"):
        LowRank(noise(2, 4), noise(4, 3))
    hybrid = load(tiny_hybrid(context=64), weights=False)
    assert overlay_problem(hybrid, Overlay({})) == "its recurrent blocks keep a state"
    assert overlay_problem(load("zoo:pico", weights=False), Overlay({})) is None
