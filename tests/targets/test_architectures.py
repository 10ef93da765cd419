"""Descriptions of architectures: the tensors that they read, and what is refused."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from types import SimpleNamespace

import attrs
import pytest
from spec_kernels.model.source import ShapeRecorder
from spec_targets import architectures
from spec_targets.architectures import GROUP, OURS, Family
from spec_targets.architectures.by_name import find_divisions
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.decoder import decoder
from spec_targets.runtime.weights import check_tensors, has_block, trunk_shapes
from spec_targets.tokenizer.patterns import division

from spec_core import UsageError, load
from tests.support.golden import golden

FOLDERS = {
    "gemma4": ("gemma4-e", "gemma4-k", "gemma4-moe"),
    "deepseek2": ("deepseek3", "glm4moelite"),
    "muse-glimmer": ("muse_glimmer",),
    "olmo-hybrid": (),
    "lfm3": (),
}
"""Golden models of a family, where they have other names or none has a file."""
FILES = [f"{name}/model-f32.gguf" for family in OURS for name in FOLDERS.get(family.name, (family.name,))]
UNUSED = ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight")
"""Tensors that files have of blocks that read the keys and values of others."""


def bare(name: str):
    folder, _, file = name.rpartition("/")
    return load(golden(folder) / file, weights=False)


@pytest.mark.parametrize("name", FILES)
def test_a_description_reads_every_tensor_of_a_file(name):
    target = bare(name)
    trunk = {f"blk.{i}." for i in range(target.config.layers)}
    stored = {n for n in target.weights.names() if not n.startswith("blk.") or n[: n.index(".", 4) + 1] in trunk}
    sharing = range(target.config.owners, target.config.layers)

    assert set(trunk_shapes(target.config, target.weights)) == stored - {
        f"blk.{i}.{n}" for i in sharing for n in UNUSED
    }


@pytest.mark.parametrize("name", FILES)
def test_sizes_that_a_file_does_not_have_are_refused_before_memory_is_taken(name):
    """Lists of rows of 8 million heads would take gigabytes."""
    target = bare(name)
    config = attrs.evolve(target.config, heads=1 << 23, kv_heads=1 << 23, head=1024, rotary_dim=1024, recurrent=())

    with pytest.raises(UsageError, match=r"has shape \[|is missing"):
        check_tensors(config, target.weights)


def test_a_recorder_has_values_of_the_shape_that_is_wanted():
    target = bare("qwen2/model-f32.gguf")
    recorder = ShapeRecorder(target.weights)
    decoder(target.config, recorder, target.weights.interleaved)

    assert recorder.wanted == {name: target.weights.shape(name) for name in recorder.wanted}
    assert tuple(recorder.load("blk.0.attn_q.bias").shape) == target.weights.shape("blk.0.attn_q.bias")


OTHER = attrs.evolve(OURS[0], name="other", classes=("OtherForCausalLM",), model_types=("other",))
AGAIN = attrs.evolve(OTHER, model_types=("another",))
DIVIDING = attrs.evolve(OTHER, divisions={"own": division("qwen2")})
DIVIDING_TOO = attrs.evolve(DIVIDING, name="dividing")


@pytest.fixture
def install_architectures(monkeypatch):
    """Registers architectures of other packages: {name of the entry point: object in this module, or a module}."""

    def register(**objects: str) -> None:
        points = [
            EntryPoint(name, f"{__name__}:{where}" if where[0].isupper() else where, GROUP)
            for name, where in objects.items()
        ]
        monkeypatch.setattr(architectures, "points", lambda: points)

    return register


def test_an_architecture_of_another_package_is_found_by_all_its_names(install_architectures):
    install_architectures(other="OTHER")

    assert architectures.find_family(architectures.BY_NAME, "other") is OTHER
    assert architectures.find_family(architectures.BY_CLASS, "OtherForCausalLM") is OTHER
    assert architectures.find_family(architectures.BY_MODEL_TYPE, "other") is OTHER
    assert architectures.family_of("other") is OTHER
    assert architectures.find_family(architectures.BY_NAME, "nobody") is None


@pytest.mark.parametrize("broken", ["no_such_module:X", "GROUP"])
def test_a_broken_package_is_named_and_harms_no_model_but_its_own(install_architectures, broken):
    install_architectures(other="OTHER", broken=broken)

    assert load("zoo:pico", weights=False).info.name
    assert architectures.find_family(architectures.BY_NAME, "other") is OTHER
    with pytest.raises(UsageError, match=r"architecture 'broken' of .* (cannot be imported|is of type str)"):
        architectures.find_family(architectures.BY_NAME, "nobody")
    assert "other" in architectures.list_names(architectures.BY_NAME)


def test_a_pretokenizer_of_another_package_is_found_by_its_name(install_architectures):
    """In files of any architecture, such as draft heads; a package is not imported for a known name."""
    install_architectures(other="DIVIDING")

    assert find_divisions({"tokenizer.ggml.pre": "own"}) == {"own": division("qwen2")}
    assert find_divisions({"tokenizer.ggml.pre": "unknown"}) == {}
    install_architectures(broken="no_such_module:X")
    assert [find_divisions({"tokenizer.ggml.pre": pre}) for pre in ("qwen2", ["own"], None)] == [{}] * 3


class Stored:
    """Shapes of a file in which some tensors are missing."""

    interleaved = False

    def __init__(self, weights, missing):
        self.weights, self.missing = weights, missing

    def shape(self, name):
        return None if self.missing in name else self.weights.shape(name)

    def names(self):
        return ()


@pytest.mark.parametrize(("missing", "answer"), [("attn_norm", True), ("blk.0.", False)])
def test_a_trunk_without_a_norm_before_attention_is_a_trunk(missing, answer):
    """Some architectures have norms after their layers alone."""
    assert has_block(0, Stored(load("zoo:pico", weights=False).weights, missing)) is answer


@pytest.mark.parametrize(("period", "windows"), [(None, (8, 8, 8, 0, 8)), (2, (8, 0, 8, 0, 8))])
def test_the_period_of_windows_is_that_of_the_config(period, windows):
    raw = {"num_hidden_layers": 5, "sliding_window": 8, "sliding_window_pattern": period}
    config = ConfigJson(raw, "other", "other", "config")

    assert config.windows(4) == windows


def test_a_period_that_is_no_number_is_refused():
    raw = {"num_hidden_layers": 5, "sliding_window": 8, "sliding_window_pattern": "LLG"}
    with pytest.raises(UsageError, match="sliding_window_pattern = 'LLG'"):
        ConfigJson(raw, "other", "other", "config").windows(4)


def test_an_architecture_that_is_registered_twice_is_refused(install_architectures):
    install_architectures(other="OTHER", again="AGAIN")
    with pytest.raises(UsageError, match="'other' is registered twice"):
        architectures.find_family(architectures.BY_NAME, "other")

    install_architectures(llama="OTHER")
    with pytest.raises(UsageError, match="'llama' is registered twice\n"):
        architectures.find_family(architectures.BY_CLASS, "LlamaForCausalLM")
    assert isinstance(architectures.find_family(architectures.BY_NAME, "qwen3"), Family)


def test_a_division_of_two_architectures_is_refused_by_their_names(install_architectures):
    install_architectures(first="DIVIDING", second="DIVIDING_TOO")

    with pytest.raises(UsageError, match="'own' is registered twice, by the architectures 'dividing' and 'other'"):
        find_divisions({"tokenizer.ggml.pre": "own"})


@pytest.mark.parametrize(("missing", "answer"), [("attn_norm", True), ("blk.", False)])
def test_a_block_without_a_norm_before_attention_is_a_block(missing, answer):
    assert has_block(3, Stored(SimpleNamespace(shape=lambda name: (1, 1)), missing)) is answer
