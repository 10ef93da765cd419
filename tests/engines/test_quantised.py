"""Quantised checkpoints on the target of transformers: torchao's, and what is refused."""

from __future__ import annotations

import json
import shutil
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
from spec_engines.transformers import ENGINE as ENGINE  # whose skipped checks conftest.py reads
from torch import nn

from spec_core import Run, UsageError, load
from spec_core.testing import TargetConformance
from tests.engines.models import directory
from tests.support.hugging_face import directory as written

transformers = pytest.importorskip("transformers", "5.20")
from spec_engines.transformers.quantised import matrix  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@cache
def quantise(source: Path) -> Path:
    """A copy whose linear layers torchao quantised, the output matrix too: 8 bits, one scale of each row."""
    torchao = pytest.importorskip("torchao.quantization", reason="torchao is not installed: pip install torchao")
    how = transformers.TorchAoConfig(torchao.Int8WeightOnlyConfig(), include_input_output_embeddings=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, quantization_config=how)
    path = Path(mkdtemp()) / f"{source.name}-int8"
    model.save_pretrained(path)
    for file in source.glob("tokenizer*"):
        shutil.copy(file, path)
    return path


def int8(source: Path, dtype: str = "float32"):
    return load(f"transformers:{quantise(source)}", dtype=dtype, device="cpu")


@pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed: pip install torchao")
class TestInt8(TargetConformance):
    """In float64, as the plain Llama: torchao multiplies by whole numbers of the target's type, then by the scale."""

    batch_tolerance = 1e-12

    def make(self):
        return int8(directory("llama"), "float64")


def test_the_matrices_of_a_quantised_model_are_dequantised():
    quantised, plain = int8(directory("llama")), load(f"transformers:{directory('llama')}", device="cpu")
    for name in ("token_embd.weight", "output.weight"):
        actual, expected = quantised.tensor(name), plain.tensor(name)

        assert (type(actual), actual.dtype, actual.shape) == (torch.Tensor, torch.float32, expected.shape)
        assert (actual - expected).abs().max() <= expected.abs().max() / 254
    assert type(quantised.model.lm_head.weight) is not nn.Parameter
    assert not torch.equal(actual, expected)


PROMPTS = ["def add(a, b):\n    return", "one two three one two three one two three one"]


@pytest.mark.repeats(2)
@pytest.mark.parametrize("kind", ["ngram", "recycling", "eagle3", "dflash"])
def test_methods_draft_for_a_quantised_model_and_change_no_text(kind):
    quantised = int8(written("zoo:pico"))
    settings = {"file": f"zoo:pico-{kind}"} if kind in ("eagle3", "dflash") else {}
    run, plain = Run(quantised, [(kind, settings)]), Run(quantised)
    for prompt in PROMPTS:
        expected = plain.generate(prompt, max_tokens=24, ignore_eos=True).result.tokens
        assert run.generate(prompt, max_tokens=24, ignore_eos=True).result.tokens == expected
    assert run.stats.report()["accepted"] > 0


# refusals


def declare_quantised(tmp_path: Path, how: object) -> Path:
    """A copy of the Llama whose config says that it is quantised."""
    path = Path(shutil.copytree(directory("llama"), tmp_path / "llama"))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"quantization_config": how}))
    return path


@pytest.mark.parametrize("weights", [True, False])
def test_without_the_library_the_error_names_it(tmp_path, monkeypatch, weights):
    """Before weights are read, so that ``spec compat`` says it too."""
    monkeypatch.setitem(sys.modules, "torchao", None)
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    how = {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig", "_data": {}}}}
    with pytest.raises(UsageError, match=r"quantised with 'torchao', .* cannot read them here") as caught:
        load(f"transformers:{declare_quantised(tmp_path, how)}", device="cpu", weights=weights)

    assert "torchao" in caught.value.reason.partition("here: ")[2]
    assert caught.value.hint.startswith("install the library for 'torchao'")


@pytest.mark.parametrize("how", [{"quant_method": "no-such-method"}, {"quant_method": None}, {"bits": 4}, [4], "int8"])
def test_an_unknown_way_of_quantising_is_refused(tmp_path, how):
    """transformers itself warns and fills the model with random numbers."""
    with pytest.raises(UsageError, match=r"its weights are quantised with|transformers cannot load it"):
        load(f"transformers:{declare_quantised(tmp_path, how)}", device="cpu")


def test_a_checkpoint_that_lacks_a_tensor_is_refused(tmp_path):
    """transformers itself warns and fills the tensor with random numbers."""
    from safetensors.torch import load_file, save_file

    path = Path(shutil.copytree(directory("llama"), tmp_path / "llama"))
    held = load_file(path / "model.safetensors")
    del held["model.layers.1.mlp.up_proj.weight"]
    save_file(held, path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UsageError, match=r"lack 1 tensors of the model, the first is model\.layers\.1\.mlp\.up_proj"):
        load(f"transformers:{path}", device="cpu")


class Packed(nn.Module):
    """A matrix as libraries of other kinds keep it: whole numbers beside scales."""

    def __init__(self, **tensors: torch.Tensor) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)


@pytest.mark.parametrize(
    "module, message",
    [
        (Packed(qweight=torch.zeros(4, 64, dtype=torch.int32)), "a Packed with a weight of NoneType"),
        (Packed(weight=torch.zeros(1024, 1, dtype=torch.uint8)), r"a weight of torch\.uint8 \[1024, 1\]"),
        (Packed(weight=torch.zeros(64, 32).to(torch.float8_e4m3fn)), r"a weight of torch\.float8_e4m3fn \[64, 32\]"),
    ],
    ids=["without a weight", "packed", "8-bit floats"],
)
def test_a_matrix_that_cannot_be_dequantised_is_refused_by_name(module, message):
    with pytest.raises(UsageError, match=message) as caught:
        matrix(module, "output.weight", 32, torch.float32)

    assert caught.value.reason.startswith("output.weight is quantised in a form that draft heads cannot read")
    assert "ngram" in caught.value.hint
