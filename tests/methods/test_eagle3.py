"""EAGLE-3 heads against the original implementations, and what they do in a run."""

from __future__ import annotations

import pytest
import torch
from spec_methods.eagle3 import Eagle3

from spec_core import Run, Sampling, load
from spec_core.errors import Refused
from spec_core.testing import DrafterConformance
from tests.methods.drafted import check_published
from tests.methods.heads import TARGETS, check_lossless, head_file, tiny
from tests.small_models import tiny_gguf, tiny_hybrid

HEADS = ("eagle3/llama-d2t", "eagle3/llama-full", "eagle3/qwen3-speculators")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("context", ["ctx20", "ctx33"])
@pytest.mark.parametrize("file", ["model-f32.gguf", "hf"])
@pytest.mark.parametrize("name", HEADS)
def test_a_published_head_drafts_what_its_original_drafts(name, file, context, kernels, tmp_path):
    check_published(name, file, context, kernels, tmp_path / "draft.safetensors")


@pytest.mark.parametrize("rows", [None, 120], ids=["whole", "reduced"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("slots", [1, 5])
@pytest.mark.parametrize("of", TARGETS)
def test_text_is_plain_and_forwards_are_counted(of, slots, temperature, rows):
    """One for each depth, all sequences together."""
    for step in check_lossless("eagle3", of, rows, temperature, slots):
        longest = max((p.drafted for p in step.parts), default=0)
        assert step.forwards.get("eagle3", 0) == longest


@pytest.mark.parametrize("strategy", ["snapshot", "replay", "checkpoint"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_text_is_plain_with_every_way_to_roll_back(strategy, temperature):
    check_lossless("eagle3", "hybrid", None, temperature, 5, rollback=("gdn-rollback", {"strategy": strategy}))


@pytest.mark.parametrize("temperature", [0.3, 0.8])
@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_sampled_drafts_show_what_they_were_drawn_from(rule, temperature):
    """Rows of probabilities over the target's vocabulary: nothing where the head has no word, and sums of one."""
    sampling = Sampling(temperature=temperature)
    method = ("eagle3", {"file": str(head_file("eagle3", "dense", 120)), "p_min": 0.0})
    run, drafts = Run(tiny("dense"), [method], rule=rule), []
    seq = run.submit([1, 2, 3, 4], max_tokens=16, seed=3, sampling=sampling)
    run.observe(lambda step: drafts.append(step.part(seq).draft))
    while run.busy:
        run.step()
    seen = [d for d in drafts if d is not None and d.proposal == "sampled"]
    assert seen
    for d in seen:
        assert d.probs.shape == (len(d), 300)
        assert torch.allclose(d.probs.sum(-1), torch.ones(len(d), dtype=d.probs.dtype))
        assert all(row[token] > 0 for row, token in zip(d.probs, d.ids, strict=True))
        assert ((d.probs > 0).sum(-1) <= 120).all()


def test_another_kind_of_head_is_refused_before_a_weight_is_read():
    other = load(tiny_gguf(0, layers=4), weights=False)
    with pytest.raises(Refused, match="a head of kind dflash"):
        Run(other, [("eagle3", {"file": str(head_file("dflash", "dense"))})])


def test_no_head_is_refused_with_a_way_out():
    with pytest.raises(Refused, match="no head is given"):
        Run(tiny("dense"), ["eagle3"])


def test_p_min_cuts_a_draft():
    """A random head is sure of nothing: the first token is paid for, no other is offered."""
    run = Run(tiny("dense"), [("eagle3", {"file": str(head_file("eagle3", "dense")), "p_min": 0.8})])
    seq, lengths = run.submit([1, 2, 3, 4], max_tokens=12), []
    run.observe(lambda step: lengths.append(step.part(seq).drafted))
    while run.busy:
        run.step()
    assert max(lengths) == 1


class TestEagle3(DrafterConformance):
    learns_from_verdicts = "length"

    def make(self):
        return Eagle3(file=str(head_file("eagle3", "hybrid", 120)), p_min=0.0, draft_max=2)

    def target(self):
        return load(tiny_hybrid(context=128), dtype="float32", device="cpu")

    def prompts(self):
        return [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2], [7]]
