"""DFlash heads against the original implementation, and what they do in a run."""

from __future__ import annotations

import attrs
import pytest
import torch
from spec_methods.dflash import DFlash
from spec_methods.dflash.layer import Head, Known
from spec_train.dflash import DFlash as Trainable
from spec_train.shape import Shape
from spec_train.weights import radians
from spec_train.write import Trained, write

from spec_core import Run, Sampling, load
from spec_core.errors import Refused
from spec_core.testing import DrafterConformance
from tests.golden import golden
from tests.methods.drafted import check_published, drafted
from tests.methods.heads import TARGETS, check_lossless, head_file, tiny
from tests.small_heads import trained
from tests.small_models import tiny_gguf, tiny_hybrid


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("context", ["ctx20", "ctx33"])
@pytest.mark.parametrize("file", ["model-f32.gguf", "hf"])
@pytest.mark.parametrize("name", ["dflash/qwen3", "dflash/qwen35"])
def test_a_published_head_drafts_what_its_original_drafts(name, file, context, kernels, tmp_path):
    check_published(name, file, context, kernels, tmp_path / "draft.safetensors")


def test_the_speculators_form_of_a_published_head_drafts_the_same(tmp_path):
    file, target = load(golden("dflash/qwen3") / "hf", weights=False), golden("qwen3") / "model-f32.gguf"
    head, weights = file.info.extras["head"], {n: file.tensor(n) for n in file.info.extras["tensors"]}
    described = load(target, weights=False)
    shape = Shape.of(head, head.sources(described.info.layers))
    write(Trained(shape, weights, None, head.name), described, tmp_path / "other", "speculators", "f32")
    tokens, out = [5, 9, 2, 77, 31, 8], tmp_path / "draft.safetensors"

    one, other = (
        drafted(target, f"dflash={path}", tokens, 7, "auto", out)
        for path in (golden("dflash/qwen3") / "hf", tmp_path / "other")
    )

    assert load(tmp_path / "other", weights=False).info.extras["head"].producer == "speculators"
    assert len(one["tokens"]) == 7
    assert torch.equal(one["tokens"], other["tokens"])
    assert torch.equal(one["logits"], other["logits"])


@pytest.mark.parametrize("rows", [None, 120], ids=["whole", "reduced"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("slots", [1, 5])
@pytest.mark.parametrize("of", TARGETS)
def test_text_is_plain_and_forwards_are_counted(of, slots, temperature, rows):
    """One for each step, all sequences together."""
    for step in check_lossless("dflash", of, rows, temperature, slots):
        longest = max((p.drafted for p in step.parts), default=0)
        assert step.forwards.get("dflash", 0) == (longest > 0)


@pytest.mark.parametrize("strategy", ["snapshot", "replay", "checkpoint"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_text_is_plain_with_every_way_to_roll_back(strategy, temperature):
    check_lossless("dflash", "hybrid", None, temperature, 5, rollback=("gdn-rollback", {"strategy": strategy}))


@pytest.mark.parametrize("temperature", [0.3, 0.8])
@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_sampled_drafts_show_what_they_were_drawn_from(rule, temperature):
    """Rows of probabilities over the target's vocabulary: nothing where the head has no word, and sums of one."""
    sampling = Sampling(temperature=temperature)
    method = ("dflash", {"file": str(head_file("dflash", "dense", 120)), "p_min": 0.0})
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
    with pytest.raises(Refused, match="a head of kind eagle3"):
        Run(other, [("dflash", {"file": str(head_file("eagle3", "dense"))})])


def test_no_head_is_refused_with_a_way_out():
    with pytest.raises(Refused, match="no head is given"):
        Run(tiny("dense"), ["dflash"])


def test_p_min_cuts_a_draft():
    """A random head gives every token a small chance: the first is paid for, no other is offered."""
    run = Run(tiny("dense"), [("dflash", {"file": str(head_file("dflash", "dense")), "p_min": 0.8})])
    seq, lengths = run.submit([1, 2, 3, 4], max_tokens=12), []
    run.observe(lambda step: lengths.append(step.part(seq).drafted))
    while run.busy:
        run.step()
    assert max(lengths) == 1


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("causal", [(False, False), (True, True), (False, True)])
def test_windows_and_causal_layers_are_those_that_were_trained(causal, kernels, tmp_path):
    """The differentiable head's logits, where a window ends inside the context and inside the block."""
    torch.manual_seed(0)
    target = load(tiny_gguf(0, layers=4), dtype="float32", device="cpu", kernels=kernels)
    given = trained("dflash", target, windows=(3, 6), causal=causal)
    tokens, states = [5, 9, 2, 77, 31, 8, 4, 1, 60, 12, 3], torch.randn(10, 2, 32)
    features = states.flatten(1)
    oracle = Trainable(given.shape, given.weights, radians(given.shape))
    table = target.tensor("token_embd.weight").float()
    block = table[torch.tensor([tokens[-1], 299, 299, 299])]
    with torch.no_grad():
        hidden = oracle.blocks(block[None], oracle.fused(features), torch.tensor([10]))[0, 1:]

    write(given, target, tmp_path / "head.gguf", "gguf", "f32")
    facts = load(tmp_path / "head.gguf", weights=False).info.extras
    facts = {**facts, "head": attrs.evolve(facts["head"], windows=(3, 6), causal=causal)}
    head = Head(facts, target.info.extras["executor"]())
    context = head.context()
    head.learn([Known(context, 0, list(states.unbind(1)))])
    context.token = tokens[-1]
    (rows,) = head.blocks([context], [3])

    wanted = hidden @ table.T
    assert (rows - wanted).abs().max() <= 5e-5 * (wanted.max() - wanted.min())


class TestDFlash(DrafterConformance):
    learns_from_verdicts = "length"

    def make(self):
        return DFlash(file=str(head_file("dflash", "hybrid", 120)), p_min=0.0, draft_max=2)

    def target(self):
        return load(tiny_hybrid(context=2048), dtype="float32", device="cpu")

    def prompts(self):
        return [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2], [7]]
