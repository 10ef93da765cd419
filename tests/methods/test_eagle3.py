"""EAGLE-3 heads against the original implementations, and what they do in a run."""

from __future__ import annotations

import attrs
import pytest
import torch
from spec_kernels.model.source import bytes_of
from spec_methods.eagle3 import Eagle3
from spec_methods.eagle3.layer import Layer
from spec_train.eagle3 import Eagle3 as Trainable
from spec_train.weights import radians

from spec_core import Run, Sampling, load
from spec_core.errors import Refused
from spec_core.testing import DrafterConformance
from tests.methods.drafted import check_published
from tests.methods.heads import TARGETS, check_lossless, head_file, tiny
from tests.small_heads import trained
from tests.small_models import tiny_gguf, tiny_hybrid

HEADS = ("eagle3/llama-d2t", "eagle3/llama-full", "eagle3/qwen3-speculators")


class Described:
    """What the layer asks of a head's description, from the shape it was trained in."""

    d2t = None

    def __init__(self, shape):
        vars(self).update(attrs.asdict(shape))


@attrs.frozen
class Given:
    """Weights that are at hand as a source of them."""

    tensors: dict[str, torch.Tensor]

    def shape(self, name):
        return tuple(self.tensors[name].shape) if name in self.tensors else None

    def type(self, name):
        return "F32"

    def load(self, name):
        return self.tensors[name]

    def blocks(self, name):
        return bytes_of(self.tensors[name])


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("context", ["ctx20", "ctx33"])
@pytest.mark.parametrize("file", ["model-f32.gguf", "hf"])
@pytest.mark.parametrize("name", HEADS)
def test_a_published_head_drafts_what_its_original_drafts(name, file, context, kernels, tmp_path):
    check_published(name, file, context, kernels, tmp_path / "draft.safetensors")


VARIANTS = {
    "plain": {},
    "norm_before_residual": {"norm_before_residual": True},
    "norm_before_fc": {"norm_before_fc": True},
    "fc_norm": {"fc_norm": True},
    "norm_output": {"norm_output": True},
    "qk_norm": {"qk_norm": True},
}


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_the_one_that_was_trained(name, kernels):
    """Two steps of the differentiable head, the second on the output of the first."""
    torch.manual_seed(0)
    target = load(tiny_gguf(0, layers=4), dtype="float32", device="cpu", kernels=kernels)
    given = trained("eagle3", target, **VARIANTS[name])
    norms = {"input_norm.weight": 96} if name == "norm_before_fc" else {}
    norms |= {f"input_norm.{i}.weight": 32 for i in range(3)} if name == "fc_norm" else {}
    weights = {**given.weights, **{n: torch.rand(size) + 0.5 for n, size in norms.items()}}
    weights["output_norm.weight"] = torch.rand(32) + 0.5
    oracle, states = Trainable(given.shape, weights, radians(given.shape)), torch.randn(3, 6, 32)
    tokens = [5, 9, 2, 7, 3, 1]
    table = target.tensor("token_embd.weight").float()
    with torch.no_grad():
        fused = oracle.fused(states.transpose(0, 1).flatten(1))
        embedded, more = table[torch.tensor([*tokens, 40])], fused.new_zeros(1, 32)
        outputs = oracle.unroll(embedded, torch.cat([fused, more]), 2)
        wanted = [oracle.hidden(y[-1]) @ weights["output.weight"].T for y in outputs]

    turning = radians(given.shape), 1.0
    facts = {"head": Described(given.shape), "source": Given(weights), "turning": lambda: turning}
    layer = Layer(facts, (2, 1, 1), 4, target.info.extras["executor"]())
    memory = layer.memory()
    memory.take(0, tokens, layer.features(list(states)), {})
    y, first = layer.forward([memory.pairs()])
    _, second = layer.forward([memory.own(1, 40, y)])

    for found, row in ((first, wanted[0]), (second, wanted[1])):
        assert (found[0] - row).abs().max() <= 5e-5 * (row.max() - row.min())


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
    """A random head gives every token a small chance: the first is paid for, no other is offered."""
    run = Run(tiny("dense"), [("eagle3", {"file": str(head_file("eagle3", "dense")), "p_min": 0.8})])
    seq, lengths = run.submit([1, 2, 3, 4], max_tokens=12), []
    run.observe(lambda step: lengths.append(step.part(seq).drafted))
    while run.busy:
        run.step()
    assert max(lengths) == 1


class TestEagle3(DrafterConformance):
    learns_from_verdicts = "length"

    def make(self):
        return Eagle3(file=str(head_file("eagle3", "hybrid", 120)), p_min=0.0, depth=2)

    def target(self):
        return load(tiny_hybrid(context=2048), dtype="float32", device="cpu")

    def prompts(self):
        return [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2], [7]]
