"""gpt-oss with experts of MXFP4, as released: directories with codes and scales, and GGUF files with blocks."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file
from spec_kernels import native
from torch import Tensor

from spec_core import UsageError, load
from tests.native.programs import FAR
from tests.targets.drive import fresh
from tests.targets.mxfp4 import EXPERTS, FF, LAYERS, WIDTH, Made, quantised_by
from tests.targets.random_families import EXACT, FLOORS, lacking, rounding_floor
from tests.targets.tiny import logits

pytestmark = pytest.mark.skipif(lacking("gpt-oss"), reason="this transformers has no gpt-oss")
TOKENS = [7 * i * i % 96 for i in range(30)]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def mxfp4_model(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("mxfp4"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("tiny"), tiny=True)


def test_the_formula_of_this_test_is_that_of_transformers(mxfp4_model):
    convert = pytest.importorskip("transformers.integrations.mxfp4").convert_moe_packed_tensors
    for name, floats in mxfp4_model.model.named_parameters():
        if f"{name}_blocks" in mxfp4_model.codes:
            parts = mxfp4_model.codes[f"{name}_blocks"], mxfp4_model.codes[f"{name}_scales"]
            assert torch.equal(convert(*parts, dtype=torch.float32), floats)


def test_transformers_reads_the_directory_of_this_test(mxfp4_model):
    classes = pytest.importorskip("transformers")
    how = classes.Mxfp4Config(dequantize=True)
    options = {"quantization_config": how, "dtype": torch.float32, "attn_implementation": "eager"}
    try:
        theirs = classes.GptOssForCausalLM.from_pretrained(mxfp4_model.directory, **options).eval()
    except ImportError as error:  # some releases need accelerate
        pytest.skip(str(error))
    theirs.config._experts_implementation = "eager"

    assert torch.equal(logits(theirs, TOKENS), logits(mxfp4_model.model, TOKENS))


def far(mxfp4_model: Made, place, **options) -> float:
    """Distance in units of the rounding floor."""
    expected = logits(mxfp4_model.model, TOKENS)
    got = fresh(load(place, **EXACT, **options), TOKENS).logits
    return (expected - got).abs().max().item() / rounding_floor(mxfp4_model.model, TOKENS, expected)


@pytest.mark.parametrize("form", ["directory", "file"])
def test_the_reference_has_the_values_of_transformers(mxfp4_model, form):
    assert far(mxfp4_model, getattr(mxfp4_model, form), kernels="reference") <= FLOORS


@pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
class TestNative:
    @pytest.mark.parametrize("form", ["directory", "file"])
    def test_blocks_stay_blocks(self, mxfp4_model, form):
        """Activations are rounded, so logits are near those of floats, not equal to them."""
        target = load(getattr(mxfp4_model, form), kernels="native", activations="int15", cache_dtype="float32")
        expected, got = logits(mxfp4_model.model, TOKENS), fresh(target, TOKENS).logits

        assert f"{2 * LAYERS} of MXFP4 as Q5_0" in target.info.kernels
        assert (expected - got).square().mean().sqrt() <= FAR * (expected.max() - expected.min())

    def test_a_directory_and_a_file_give_the_same_bits(self, mxfp4_model):
        first, second = (
            fresh(load(of, kernels="native"), TOKENS).logits for of in (mxfp4_model.directory, mxfp4_model.file)
        )

        assert torch.equal(first, second)

    @pytest.mark.parametrize("form", ["directory", "file"])
    def test_scales_that_float16_lacks_make_them_floats(self, tiny, form):
        target = load(getattr(tiny, form), kernels="native")

        assert f"{2 * LAYERS} of MXFP4 as F32" in target.info.kernels
        assert far(tiny, getattr(tiny, form), kernels="native") <= FLOORS

    def test_planned_memory_is_that_of_the_blocks(self, mxfp4_model):
        planned = load(mxfp4_model.directory, kernels="native").info.weight_bytes
        numbers = LAYERS * EXPERTS * 3 * WIDTH * FF

        assert numbers // 32 * 22 < planned < 4 * numbers
        assert load(mxfp4_model.file, kernels="native").info.weight_bytes == planned


def change_files(folder, to, **tensors: Tensor):
    """A copy of the directory with other codes or scales in the first layer."""
    (to / "config.json").write_text((folder / "config.json").read_text())
    stored = load_file(folder / "model.safetensors")
    stored |= {f"model.layers.0.mlp.experts.{name}": value for name, value in tensors.items()}
    save_file(stored, to / "model.safetensors", metadata={"format": "pt"})
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
def test_scales_that_do_not_fit_are_refused(mxfp4_model, scales, tmp_path):
    with pytest.raises(UsageError, match=r"gate_up_proj_blocks' is U8 \[3, 192, 2, 16\], its scales are"):
        load(change_files(mxfp4_model.directory, tmp_path, gate_up_proj_scales=scales))


def test_codes_of_another_width_are_refused(mxfp4_model, tmp_path):
    codes = torch.zeros(EXPERTS, 2 * FF, 3, 16, dtype=torch.uint8)
    with pytest.raises(UsageError, match=r"shape \[3, 96, 96\], \[3, 96, 64\] was needed"):
        load(
            change_files(
                mxfp4_model.directory, tmp_path, gate_up_proj_blocks=codes, gate_up_proj_scales=codes[..., 0].clone()
            )
        )


def test_other_quantisations_are_refused(mxfp4_model, tmp_path):
    folder = quantised_by("bitsandbytes", change_files(mxfp4_model.directory, tmp_path))
    with pytest.raises(UsageError, match=r"quantization_config = .*bitsandbytes.* is not supported"):
        load(folder)
