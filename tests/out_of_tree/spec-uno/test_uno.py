"""Tests of spec-uno: the kit's promises with random weights, and vectors of the published forward."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from spec_uno import Uno

from spec_core import Draft, Part, Refused, Run, load
from spec_core.errors import UsageError
from spec_core.testing import DrafterConformance
from spec_core.toolkit import forward, open_sequence

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden"
NAMES = {"attn_q": "self_attn.q_proj", "attn_output": "self_attn.o_proj", "ffn_up": "mlp.up_proj"}
CONFIG = {"peft_type": "LORA", "r": 4, "lora_alpha": 2, "bias": "none"}


def write_adapter(folder, change=None, **config):
    """A random adapter of pico, in PEFT's form."""
    target, draws = load("zoo:pico", threads=1), torch.Generator().manual_seed(1)
    tensors = {}
    for i in range(target.info.layers):
        for own, name in NAMES.items():
            n, k = target.tensor(f"blk.{i}.{own}.weight").shape
            for half, shape in {"A": (4, k), "B": (n, 4)}.items():
                tensor = 0.05 * torch.randn(shape, generator=draws)
                tensors[f"base_model.model.model.layers.{i}.{name}.lora_{half}.weight"] = tensor
    if change is not None:
        change(tensors)
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | config))
    return str(folder)


@pytest.fixture(scope="session")
def adapter(tmp_path_factory):
    return write_adapter(tmp_path_factory.mktemp("uno"))


class TestUno(DrafterConformance):
    @pytest.fixture(autouse=True)
    def folder(self, adapter):
        self.adapter = adapter

    def make(self):
        return Uno(self.adapter, block=4, p_min=0.0)

    def target(self):
        return load("zoo:pico", threads=1)


class TestUnoTree(TestUno):
    def make(self):
        return Uno(self.adapter, block=4, width=3, p_min=0.0)


@pytest.mark.repeats(2)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("width", [1, 3])
def test_texts_are_plain_alone_and_in_a_batch(texts, adapter, temperature, kernels, width):
    """The first token of every draft is the target's own: nearly half of all tokens are accepted at least."""
    plain, _ = texts([], temperature, kernels=kernels)
    for at_once in (1, 8):
        uno = Uno(adapter, block=4, width=width, p_min=0.0)
        drafted, counts = texts([uno], temperature, at_once, kernels=kernels)
        assert drafted == plain
        assert counts["accepted"] >= 8 * 24 * 0.4


BROKEN = {
    "of the pair for 'blk.0.attn_q.weight' it has B alone": lambda t: t.pop(first("A")),
    "'blk.0.attn_q.weight'.*different ranks": lambda t: t.update({first("A"): torch.zeros(3, t[first("A")].shape[1])}),
    "is of type int64": lambda t: t.update({first("A"): t[first("A")].long()}),
    "is not half of a pair": lambda t: t.update({"base_model.model.lm_head.lora_A.weight": torch.zeros(4, 4)}),
    "has no 'blk.99.attn_q.weight'": lambda t: t.update(
        {first(half).replace("layers.0", "layers.99"): t[first(half)].clone() for half in "AB"}
    ),
    "'blk.0.attn_q.weight' has shape": lambda t: t.update({first("B"): torch.zeros(8, 4)}),
}


def first(half):
    return f"base_model.model.model.layers.0.self_attn.q_proj.lora_{half}.weight"


@pytest.mark.parametrize("words", BROKEN)
def test_an_adapter_that_does_not_fit_is_refused_by_name(tmp_path, words):
    with pytest.raises((Refused, UsageError), match=words):
        Run("zoo:pico", [Uno(write_adapter(tmp_path / "adapter", BROKEN[words]))])


@pytest.mark.parametrize("config", [{"use_dora": True}, {"r": 0}, {"peft_type": "IA3"}, {"rank_pattern": {"q": 2}}])
def test_an_adapter_of_another_kind_is_refused(tmp_path, config):
    with pytest.raises(UsageError, match=next(iter(config))):
        Run("zoo:pico", [Uno(write_adapter(tmp_path / "adapter", **config))])


def test_a_folder_without_an_adapter_is_refused(tmp_path):
    for folder in ("", str(tmp_path)):
        with pytest.raises((Refused, UsageError), match="folder"):
            Run("zoo:pico", [Uno(folder)])


def folders():
    """Every folder of vectors that is there."""
    paths = sorted(GOLDEN.glob("self-*/*/golden.json"))
    return [path.parent for path in paths if json.loads(path.read_text())["kind"] == "uno"]


def contexts(vectors):
    return sorted({name.split(".")[0] for name in vectors if name.endswith(".id_last") and "next" not in name})


def feed(target, seq, text):
    """Evaluate a text but its last token."""
    forward(target, [Part(seq, seq.evaluated, text[seq.evaluated : -1], decides=True)])
    list.extend(seq.tokens, text[len(seq.tokens) :])
    seq.evaluated = len(text) - 1


@pytest.fixture(params=["reference", "native"])
def kernels(request):
    more = {} if request.param == "reference" else {"cache_dtype": "float32"}
    return {"kernels": request.param, **more}


@pytest.mark.parametrize("folder", folders(), ids=lambda path: path.name)
def test_drafts_are_those_of_the_published_forward(folder, kernels):
    vectors, target = load_file(folder / "golden.safetensors"), load(str(folder.parents[1] / "qwen3" / "hf"), **kernels)
    method = Uno(str(folder / "hf"))
    assert method.misfit(target) is None
    method.load(target)
    for at in contexts(vectors):
        text, seq = [*vectors[f"{at}.tokens"].tolist(), *vectors[f"{at}.id_last"].tolist()], open_sequence(target)
        for round_ in ("", "next."):
            if round_:
                text += vectors[f"{at}.committed"].tolist()
                assert text[-1] == int(vectors[f"{at}.next.id_last"])
            feed(target, seq, text)
            block = vectors[f"{at}.{round_}block_tokens"].tolist()
            logits = method.rows.rows.forward_rows([(seq, len(text) - 1, block)])[0]
            assert torch.allclose(logits, vectors[f"{at}.{round_}draft_logits"], atol=1e-4)
            assert logits.argmax(1).tolist() == vectors[f"{at}.{round_}draft_tokens"].tolist()


@pytest.mark.parametrize("folder", folders(), ids=lambda path: path.name)
def test_the_tree_is_verified_as_in_the_published_forward(folder, kernels):
    """The tree's root is the draft's first token here."""
    vectors, target = load_file(folder / "golden.safetensors"), load(str(folder.parents[1] / "qwen3" / "hf"), **kernels)
    for at in contexts(vectors):
        text, seq = [*vectors[f"{at}.tokens"].tolist(), *vectors[f"{at}.id_last"].tolist()], open_sequence(target)
        feed(target, seq, text)
        tree = Draft(vectors[f"{at}.tree.token_ids"].tolist(), parents=vectors[f"{at}.tree.parents"].tolist())
        part = Part(seq, seq.evaluated, text[-1:], decides=True, draft=tree)
        logits = forward(target, [part]).output.logits
        assert torch.allclose(logits[1:], vectors[f"{at}.tree.verify_logits"], atol=1e-4)
        assert int(logits[0].argmax()) == tree.ids[0]


class Replayed(Uno):
    """Reads the noise of the vectors where there is some, and keeps its trees."""

    blocks = None

    def grow(self, *arguments):
        self.trees = [*getattr(self, "trees", []), super().grow(*arguments)]
        return self.trees[-1]

    def block_tokens(self, seq):
        return self.blocks.get(len(seq.tokens)) or super().block_tokens(seq)


@pytest.mark.parametrize("folder", folders(), ids=lambda path: path.name)
def test_the_greedy_loop_is_that_of_the_published_forward(folder, kernels):
    """Its text, and the drafts accepted in the rounds whose noise is known: one more here, the root."""
    vectors, target = load_file(folder / "golden.safetensors"), load(str(folder.parents[1] / "qwen3" / "hf"), **kernels)
    for at in contexts(vectors):
        prompt, expected = vectors[f"{at}.tokens"].tolist(), vectors[f"{at}.rounds.generated"].tolist()
        method = Replayed(str(folder / "hf"), p_min=0.0)
        starts = {"": len(prompt) + 1, "next.": len(prompt) + 1 + len(vectors[f"{at}.committed"])}
        method.blocks = {n: vectors[f"{at}.{which}block_tokens"].tolist() for which, n in starts.items()}
        run, accepted = Run(target, [method]), []
        run.observe(lambda step, seen=accepted: seen.extend(len(v.path) for v in step.verdicts.values()))
        result = run.generate(prompt, max_tokens=len(expected) + 20).result

        assert result.tokens[: len(expected)] == expected
        assert accepted[1:3] == [n + 1 for n in vectors[f"{at}.rounds.accepted"].tolist()[:2]]


@pytest.mark.parametrize("folder", folders(), ids=lambda path: path.name)
def test_the_tree_is_that_of_the_published_forward(folder, kernels):
    """Of the first draft after the prompt: its nodes in their order, and the kept path."""
    vectors, target = load_file(folder / "golden.safetensors"), load(str(folder.parents[1] / "qwen3" / "hf"), **kernels)
    for at in contexts(vectors):
        text = [*vectors[f"{at}.tokens"].tolist(), *vectors[f"{at}.id_last"].tolist()]
        method = Replayed(str(folder / "hf"), width=4, nodes_max=12, p_min=0.0)
        method.blocks = {len(text): vectors[f"{at}.block_tokens"].tolist()}
        run, paths = Run(target, [method]), []
        run.observe(lambda step, seen=paths: seen.extend(list(verdict.path) for verdict in step.verdicts.values()))
        _ = run.generate(text[:-1], max_tokens=12).result

        tree, path = method.trees[0], paths[1]
        assert [node.token for node in tree] == vectors[f"{at}.tree.token_ids"].tolist()
        assert [node.parent for node in tree] == vectors[f"{at}.tree.parents"].tolist()
        assert path == vectors[f"{at}.tree.accepted_nodes"].tolist()
