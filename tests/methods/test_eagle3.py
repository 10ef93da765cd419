"""EAGLE-3 heads against the original implementations, and what they do in a run."""

from __future__ import annotations

from types import SimpleNamespace

import attrs
import pytest
import torch
from spec_kernels.model.source import bytes_of
from spec_methods.eagle3 import Eagle3
from spec_methods.eagle3.layer import Layer
from spec_train.heads.eagle3 import Eagle3 as Trainable
from spec_train.heads.module import rope_frequencies

from spec_core import Sampling, load
from spec_core.testing import DrafterConformance
from spec_core.toolkit import TokenDrafter, TreeLimits
from spec_core.toolkit.pair_tree import PairTree
from tests.methods.heads import head_file
from tests.support.small_heads import train
from tests.support.small_models import tiny_gguf, tiny_hybrid

HEADS = ("eagle3/llama-d2t", "eagle3/llama-full", "eagle3/qwen3-speculators")


class Described:
    """The fields of a head's description that the layer reads, from the trained shape."""

    d2t, scale, rotary, tied, sinks, projected, norm_twice = None, 0.0, 0, False, False, True, False
    act = "silu"

    def __init__(self, shape):
        vars(self).update(attrs.asdict(shape))

    def heads_of(self, layer):
        return self.heads

    def gates_of(self, layer):
        return 0


@attrs.frozen
class Given:
    """A weight source of given tensors."""

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
    trained_head = train("eagle3", target, **VARIANTS[name])
    norms = {"input_norm.weight": 96} if name == "norm_before_fc" else {}
    norms |= {f"input_norm.{i}.weight": 32 for i in range(3)} if name == "fc_norm" else {}
    weights = {**trained_head.weights, **{n: torch.rand(size) + 0.5 for n, size in norms.items()}}
    weights["output_norm.weight"] = torch.rand(32) + 0.5
    oracle, states = Trainable(trained_head.shape, weights, rope_frequencies(trained_head.shape)), torch.randn(3, 6, 32)
    tokens = [5, 9, 2, 7, 3, 1]
    table = target.tensor("token_embd.weight").float()
    with torch.no_grad():
        fused = oracle.fuse(states.transpose(0, 1).flatten(1))
        embedded, more = table[torch.tensor([*tokens, 40])], fused.new_zeros(1, 32)
        outputs = oracle.unroll(embedded, torch.cat([fused, more]), 2)
        expected = [oracle.hidden_rows(y[-1]) @ weights["output.weight"].T for y in outputs]

    turning = rope_frequencies(trained_head.shape), 1.0
    file = SimpleNamespace(head=Described(trained_head.shape), source=Given(weights), rotation=lambda: turning)
    layer = Layer(file, target.executor)
    memory = layer.memory()
    memory.take(0, tokens, layer.features(list(states)), {})
    y, first = layer.forward([memory.pairs()])
    _, second = layer.forward([memory.own(1, 40, y)])

    for logits, row in ((first, expected[0]), (second, expected[1])):
        assert (logits[0] - row).abs().max() <= 5e-5 * (row.max() - row.min())


def chain(layer, tokens, features, path):
    """The row after a path, as a chain drafts it."""
    memory = layer.memory()
    memory.take(0, tokens, features, {})
    y, rows = layer.forward([memory.pairs()])
    for i, token in enumerate(path, 1):
        y, rows = layer.forward([memory.own(i, token, y)])
    return rows[0]


def likeliest_paths(row_of, limits, trust):
    """EAGLE-2 as published: the best nodes of each level are expanded, the best of all levels are drafted."""
    level, every = {(): 1.0}, {}
    for _ in range(limits.depth):
        new = {}
        for path, chance in level.items():
            best, ids = row_of(path).softmax(-1).topk(limits.width)
            new |= {(*path, t): chance * p * trust for t, p in zip(ids.tolist(), best.tolist(), strict=True)}
        every |= new
        level = dict(sorted(new.items(), key=lambda item: -item[1])[: limits.width])
    return dict(sorted(every.items(), key=lambda item: -item[1])[: limits.nodes])


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize(("depth", "width", "nodes"), [(4, 3, 100), (4, 3, 8), (3, 5, 12), (6, 2, 9), (5, 1, 5)])
def test_a_tree_has_the_likeliest_paths(depth, width, nodes, kernels):
    """A node's probability is that of its path drafted as a chain; no forward for nodes that cannot be drafted."""
    torch.manual_seed(1)
    target = load(tiny_gguf(0, layers=4), dtype="float32", device="cpu", kernels=kernels)
    trained_head = train("eagle3", target)
    weights = {**trained_head.weights, "output.weight": torch.randn(300, 32) / 2}
    turning = rope_frequencies(trained_head.shape), 1.0
    file = SimpleNamespace(head=Described(trained_head.shape), source=Given(weights), rotation=lambda: turning)
    layer = Layer(file, target.executor)
    tokens, features = [5, 9, 2, 7, 3, 1], layer.features([torch.randn(6, 32) for _ in range(3)])
    limits, memory = TreeLimits(depth, nodes, width, 0.0), layer.memory()
    memory.take(0, tokens, features, {})
    seq, step = SimpleNamespace(sampling=Sampling(), matcher=None), SimpleNamespace(private=False)
    tree, forwards = PairTree(seq, memory, TokenDrafter(0.0), limits, "deterministic", 0.9), 0
    while tree.open:
        tree.take(step, *layer.forward([tree.pairs()]))
        forwards += 1

    expected = likeliest_paths(lambda path: chain(layer, tokens, features, path), limits, 0.9)
    draft = tree.finish()
    actual = {}
    for i, own in enumerate(draft.confidence):
        path = tuple(draft.ids[j] for j in draft.ancestry(i))
        actual[path] = actual.get(path[:-1], 1.0) * own * 0.9
    assert actual == pytest.approx(expected, rel=1e-4)
    assert forwards <= depth


def test_a_head_without_numbers_drafts_no_tree():
    chooser = TokenDrafter(0.0)
    seq, step = SimpleNamespace(sampling=Sampling(), matcher=None), SimpleNamespace(private=False)

    assert chooser.candidates(step, seq, [], torch.full((9,), torch.nan), 3) == []


class TestEagle3(DrafterConformance):
    def make(self):
        return Eagle3(file=str(head_file("eagle3", "hybrid", 120)), p_min=0.0, draft_max=2)

    def target(self):
        return load(tiny_hybrid(context=2048), dtype="float32", device="cpu")

    def prompts(self):
        return [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2], [7]]


class TestEagle3Trees(TestEagle3):
    def make(self):
        return Eagle3(file=str(head_file("eagle3", "hybrid", 120)), p_min=0.0, draft_max=2, width=3, nodes_max=7)


def test_a_head_with_gelu_is_the_one_that_was_trained(monkeypatch):
    torch.manual_seed(0)
    target = load(tiny_gguf(0, layers=4), dtype="float32", device="cpu", kernels="native")
    head = train("eagle3", target)
    weights = {**head.weights, "output_norm.weight": torch.rand(32) + 0.5}
    oracle, states = Trainable(head.shape, weights, rope_frequencies(head.shape)), torch.randn(3, 6, 32)
    tokens = [5, 9, 2, 7, 3, 1]

    def expected_row() -> torch.Tensor:
        with torch.no_grad():
            fused = oracle.fuse(states.transpose(0, 1).flatten(1))
            embedded = target.tensor("token_embd.weight").float()[torch.tensor([*tokens, 40])]
            y, _ = oracle.unroll(embedded, torch.cat([fused, fused.new_zeros(1, 32)]), 2)
            return oracle.hidden_rows(y[-1]) @ weights["output.weight"].T

    silu = expected_row()
    monkeypatch.setattr("torch.nn.functional.silu", lambda x: torch.nn.functional.gelu(x, approximate="tanh"))
    expected = expected_row()
    turning, described = (rope_frequencies(head.shape), 1.0), Described(head.shape)
    described.act = "gelu"
    file = SimpleNamespace(head=described, source=Given(weights), rotation=lambda: turning)
    layer = Layer(file, target.executor)
    memory = layer.memory()
    memory.take(0, tokens, layer.features(list(states)), {})
    _, logits = layer.forward([memory.pairs()])

    limit = 5e-5 * (expected.max() - expected.min())
    assert (logits[0] - expected).abs().max() <= limit < (silu - expected).abs().max()
