"""gpt-oss with experts of MXFP4, as released: directories with codes and scales, and GGUF files with blocks."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from spec_kernels import native
from torch import Tensor

from spec_core import UsageError, load
from tests.native.programs import FAR
from tests.targets.drive import fresh
from tests.targets.random_families import EXACT, FLOORS, lacking, rounding_floor
from tests.targets.tiny import logits, model, saved
from tests.targets.windowed import written

pytestmark = pytest.mark.skipif(lacking("gpt-oss"), reason="this transformers has no gpt-oss")
VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
EXPERTS, WIDTH, FF, LAYERS = 3, 64, 96, 2
TOKENS = [7 * i * i % 96 for i in range(30)]
TINY = 90
"""A scale that float16 does not have."""


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class Made:
    """A model with matrices of random codes, and the files of it."""

    def __init__(self, folder, tiny: bool = False) -> None:
        """tiny: one scale of each matrix is smaller than float16 can say."""
        sizes = {
            "hidden_size": WIDTH,
            "intermediate_size": FF,
            "num_hidden_layers": LAYERS,
            "num_local_experts": EXPERTS,
        }
        rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
        self.model = model("gpt-oss", 0, **sizes, **rope, num_experts_per_tok=2, head_dim=16, sliding_window=8)
        self.codes, self.blocks, numbers = {}, {}, torch.Generator().manual_seed(1)
        for i in range(LAYERS):
            for name, k, n in (("gate_up_proj", WIDTH, 2 * FF), ("down_proj", FF, WIDTH)):
                codes = torch.randint(0, 256, (EXPERTS, n, k // 32, 16), generator=numbers, dtype=torch.uint8)
                scales = torch.randint(119, 124, codes.shape[:3], generator=numbers, dtype=torch.uint8)
                codes[0, 0], scales[0, 0] = 0, 0
                if tiny:
                    scales[1, :2] = TINY
                self._put(i, name, codes, scales)
        self.directory = self._directory(folder / "hf")
        self.file = written(self.model, "gpt-oss", folder / "model.gguf", self.blocks)

    def _put(self, layer: int, name: str, codes: Tensor, scales: Tensor) -> None:
        stem = f"model.layers.{layer}.mlp.experts.{name}"
        self.codes |= {f"{stem}_blocks": codes, f"{stem}_scales": scales}
        elements = torch.stack([codes % 16, codes // 16], -1).flatten(3)
        floats = torch.ldexp(VALUES[elements.long()], scales.int()[..., None] - 127).flatten(2)
        dict(self.model.named_parameters())[stem].data.copy_(floats.transpose(1, 2))
        blocks = torch.cat([scales[..., None], elements[..., :16] + 16 * elements[..., 16:]], -1).flatten(2)
        names = {"gate_up_proj": ("gate", "up"), "down_proj": ("down",)}[name]
        for i, own in enumerate(names):
            self.blocks[f"blk.{layer}.ffn_{own}_exps.weight"] = blocks[:, i :: len(names)].contiguous()

    def _directory(self, folder):
        saved(self.model, folder)
        floats = load_file(folder / "model.safetensors")
        kept = {name: value for name, value in floats.items() if f"{name}_blocks" not in self.codes}
        save_file(kept | self.codes, folder / "model.safetensors", metadata={"format": "pt"})
        return quantised_by("mxfp4", folder)


def quantised_by(method: str, folder):
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("mxfp4"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("tiny"), tiny=True)


def test_the_formula_of_this_test_is_that_of_transformers(made):
    convert = pytest.importorskip("transformers.integrations.mxfp4").convert_moe_packed_tensors
    for name, floats in made.model.named_parameters():
        if f"{name}_blocks" in made.codes:
            parts = made.codes[f"{name}_blocks"], made.codes[f"{name}_scales"]
            assert torch.equal(convert(*parts, dtype=torch.float32), floats)


def far(made: Made, place, **options) -> float:
    """In units of the rounding floor."""
    expected = logits(made.model, TOKENS)
    got = fresh(load(place, **EXACT, **options), TOKENS).logits
    return (expected - got).abs().max().item() / rounding_floor(made.model, TOKENS, expected)


@pytest.mark.parametrize("form", ["directory", "file"])
def test_the_reference_has_the_values_of_transformers(made, form):
    assert far(made, getattr(made, form), kernels="reference") <= FLOORS


@pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
class TestNative:
    @pytest.mark.parametrize("form", ["directory", "file"])
    def test_blocks_stay_blocks(self, made, form):
        """Activations are rounded, so logits are near those of floats, not equal to them."""
        target = load(getattr(made, form), kernels="native", activations="int15", cache_dtype="float32")
        expected, got = logits(made.model, TOKENS), fresh(target, TOKENS).logits

        assert f"{2 * LAYERS} of MXFP4 as Q5_0" in target.info.extras["kernels"]
        assert (expected - got).square().mean().sqrt() <= FAR * (expected.max() - expected.min())

    def test_a_directory_and_a_file_give_the_same_bits(self, made):
        first, second = (fresh(load(of, kernels="native"), TOKENS).logits for of in (made.directory, made.file))

        assert torch.equal(first, second)

    @pytest.mark.parametrize("form", ["directory", "file"])
    def test_scales_that_float16_lacks_make_them_floats(self, tiny, form):
        target = load(getattr(tiny, form), kernels="native")

        assert f"{2 * LAYERS} of MXFP4 as F32" in target.info.extras["kernels"]
        assert far(tiny, getattr(tiny, form), kernels="native") <= FLOORS

    def test_planned_memory_is_that_of_the_blocks(self, made):
        planned = load(made.directory, kernels="native").info.extras["weight_bytes"]
        numbers = LAYERS * EXPERTS * 3 * WIDTH * FF

        assert numbers // 32 * 22 < planned < 4 * numbers
        assert load(made.file, kernels="native").info.extras["weight_bytes"] == planned


def changed(folder, to, **tensors: Tensor):
    """A copy of the directory with other codes or scales in the first layer."""
    (to / "config.json").write_text((folder / "config.json").read_text())
    found = load_file(folder / "model.safetensors")
    found |= {f"model.layers.0.mlp.experts.{name}": value for name, value in tensors.items()}
    save_file(found, to / "model.safetensors", metadata={"format": "pt"})
    return to


@pytest.mark.parametrize(
    "scales",
    [
        torch.zeros(EXPERTS, 2 * FF, 1, dtype=torch.uint8),
        torch.zeros(EXPERTS, 2 * FF, dtype=torch.uint8),
        torch.zeros(EXPERTS, 2 * FF, WIDTH // 32, dtype=torch.int8),
    ],
    ids=["too few", "of another rank", "of another type"],
)
def test_scales_that_do_not_fit_are_refused(made, scales, tmp_path):
    with pytest.raises(UsageError, match=r"gate_up_proj_blocks' is U8 \[3, 192, 2, 16\], its scales are"):
        load(changed(made.directory, tmp_path, gate_up_proj_scales=scales))


def test_codes_of_another_width_are_refused(made, tmp_path):
    codes = torch.zeros(EXPERTS, 2 * FF, 3, 16, dtype=torch.uint8)
    with pytest.raises(UsageError, match=r"shape \[3, 96, 96\], \[3, 96, 64\] was needed"):
        load(changed(made.directory, tmp_path, gate_up_proj_blocks=codes, gate_up_proj_scales=codes[..., 0].clone()))


def test_other_quantisations_are_refused(made, tmp_path):
    folder = quantised_by("bitsandbytes", changed(made.directory, tmp_path))
    with pytest.raises(UsageError, match=r"quantization_config = .*bitsandbytes.* is not supported"):
        load(folder)
