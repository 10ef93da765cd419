"""Tests of spec-orthrus: the kit's promises with random weights, and vectors of the published module."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from spec_orthrus import Orthrus

from spec_core import Part, Refused, Run, load
from spec_core.errors import UsageError
from spec_core.testing import DrafterConformance
from spec_core.toolkit import forward, open_sequence

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden"
HF = {"attn_q": "q_proj_diff", "attn_k": "k_proj_diff", "attn_v": "v_proj_diff", "attn_output": "o_proj_diff"}
HF |= {"attn_q_norm": "q_norm_diff", "attn_k_norm": "k_norm_diff"}


def write_weights(folder, model="zoo:pico", near=0.02):
    """The target's own attention with a little noise, under the published names."""
    target, draws = load(model, threads=1), torch.Generator().manual_seed(1)
    tensors = {}
    for i in range(target.info.layers):
        for own, name in HF.items():
            tensor = target.tensor(f"blk.{i}.{own}.weight").float()
            tensor = tensor + near * torch.randn(tensor.shape, generator=draws)
            tensors[f"model.layers.{i}.self_attn.{name}.weight"] = tensor.contiguous()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"block_size": 5, "mask_token_id": 0}))
    return str(folder)


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    return write_weights(tmp_path_factory.mktemp("orthrus"))


class TestOrthrus(DrafterConformance):
    @pytest.fixture(autouse=True)
    def folder(self, weights):
        self.weights = weights

    def make(self):
        return Orthrus(self.weights, p_min=0.0)

    def target(self):
        return load("zoo:pico", threads=1)


@pytest.mark.repeats(1)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("options", [{}, {"kernels": "reference"}])
def test_texts_are_plain_alone_and_in_a_batch(check_plain, weights, temperature, options):
    assert check_plain(lambda: Orthrus(weights, p_min=0.0), temperature, **options)["accepted"] > 0


def test_what_does_not_fit_is_refused_by_name(weights, tmp_path):
    with pytest.raises(Refused, match="no folder is named"):
        Run("zoo:pico", [Orthrus()])
    with pytest.raises(Refused, match=r"'blk.0.attn_q.weight' has shape"):
        Run("zoo:pico-draft", [Orthrus(weights)])
    save_file(
        {"model.layers.0.self_attn.q_proj_diff.weight": torch.zeros(2, 2, dtype=torch.int64)},
        tmp_path / "a.safetensors",
    )
    (tmp_path / "config.json").write_text('{"block_size": 5, "mask_token_id": 0}')
    with pytest.raises(UsageError, match=r"q_proj_diff.* is of type int64"):
        Run("zoo:pico", [Orthrus(str(tmp_path))])
    (tmp_path / "config.json").write_text('{"block_size": 1e9, "mask_token_id": 0}')
    with pytest.raises(UsageError, match="block 1000000000"):
        Run("zoo:pico", [Orthrus(str(tmp_path))])


def folders():
    """Every folder of vectors that is there."""
    paths = sorted(GOLDEN.glob("self-*/*/golden.json"))
    return [path.parent for path in paths if json.loads(path.read_text())["kind"] == "orthrus"]


def contexts(vectors):
    return sorted({name.split(".")[0] for name in vectors if name.endswith(".id_last") and "next" not in name})


@pytest.fixture(params=["reference", "native"])
def kernels(request):
    return {"reference": {"kernels": "reference"}, "native": {"kernels": "native", "cache_dtype": "float32"}}[
        request.param
    ]


@pytest.mark.parametrize("folder", folders(), ids=lambda path: path.name)
def test_drafts_are_those_of_the_published_module(folder, kernels):
    vectors, target = load_file(folder / "golden.safetensors"), load(str(folder.parents[1] / "qwen3" / "hf"), **kernels)
    method = Orthrus(str(folder / "hf"))
    assert method.misfit(target) is None
    method.load(target)
    for at in contexts(vectors):
        text = [*vectors[f"{at}.tokens"].tolist(), *vectors[f"{at}.id_last"].tolist()]
        seq = open_sequence(target)
        for round_ in ("", "next."):
            if round_:
                kept = int(vectors[f"{at}.accepted"])
                text += [*vectors[f"{at}.draft_tokens"].tolist()[:kept], *vectors[f"{at}.next.id_last"].tolist()]
            forward(target, [Part(seq, seq.evaluated, text[seq.evaluated : -1], decides=True)])
            list.extend(seq.tokens, text[len(seq.tokens) :])
            seq.evaluated = len(text) - 1
            assert method.block_tokens(seq) == vectors[f"{at}.{round_}block_tokens"].tolist()
            logits = method.rows.rows.forward_rows([(seq, len(text) - 1, method.block_tokens(seq))])[0][:-1]
            assert torch.allclose(logits, vectors[f"{at}.{round_}draft_logits"], atol=1e-4)
            assert logits.argmax(1).tolist() == vectors[f"{at}.{round_}draft_tokens"].tolist()


@pytest.mark.parametrize("folder", folders(), ids=lambda path: path.name)
def test_the_greedy_loop_is_that_of_the_published_module(folder, kernels):
    vectors, target = load_file(folder / "golden.safetensors"), load(str(folder.parents[1] / "qwen3" / "hf"), **kernels)
    for at in contexts(vectors):
        run, accepted = Run(target, [Orthrus(str(folder / "hf"), p_min=0.0)]), []
        expected = vectors[f"{at}.rounds.generated"].tolist()
        run.observe(lambda step, seen=accepted: seen.extend(len(v.path) for v in step.verdicts.values()))
        result = run.generate(vectors[f"{at}.tokens"].tolist(), max_tokens=len(expected) + 20).result
        rounds = vectors[f"{at}.rounds.accepted"].tolist()

        assert result.tokens[: len(expected)] == expected
        assert accepted[1 : 1 + len(rounds)] == rounds
