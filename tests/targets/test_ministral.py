"""Ministral 3 as GGUF and as a directory: queries that grow with their position, and configs that do not make sense."""

from __future__ import annotations

import json

import attrs
import pytest
import torch

from spec_core import UsageError, load
from tests.support.small_models import tokenizer_json
from tests.targets import ministral
from tests.targets.drive import fresh
from tests.targets.tiny import classes, model, save

TOKENS = [3, 17, 40, 5, 99, 180, 7, 7, 250, 31] * 6
pytestmark = pytest.mark.skipif(None in classes("ministral3"), reason="transformers is too old")


@pytest.fixture(scope="module")
def network():
    return model("ministral3", 0, vocab_size=300)


def write_gguf(network, path, **changed):
    return ministral.write_gguf(network, "ministral3", path, tokenizer_json(), **changed)


def logits(network):
    with torch.no_grad():
        return network(torch.tensor([TOKENS])).logits[0]


@pytest.mark.parametrize("kernels", ["reference", "native"])
def test_a_gguf_file_has_the_logits_of_transformers(network, kernels, tmp_path):
    more = {"cache_dtype": "float32"} if kernels == "native" else {}
    target = load(write_gguf(network, tmp_path / "m.gguf"), kernels=kernels, dtype="float32", threads=1, **more)
    assert torch.allclose(fresh(target, TOKENS).logits, logits(network), atol=2e-4)


def test_the_growth_matters(network, tmp_path):
    """After the first period; before it there is none."""
    grows = load(write_gguf(network, tmp_path / "a.gguf"), kernels="reference", dtype="float32")
    stays = load(write_gguf(network, tmp_path / "b.gguf", **{"attention.temperature_scale": None}), kernels="reference")
    one, two = (fresh(target, TOKENS).logits for target in (grows, stays))
    assert torch.equal(one[:16], two[:16]) and (one[40:] - two[40:]).abs().max() > 0.01


def test_a_model_with_pictures_is_read_without_them(network, tmp_path):
    """Its config is nested, and names of its text part begin with ``model.language_model.``."""
    save(network, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    whole = {"architectures": ["Mistral3ForConditionalGeneration"], "text_config": config, "vision_config": {}}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    target = load(tmp_path, kernels="reference", dtype="float32")
    assert target.info.family == "mistral3"
    assert torch.allclose(fresh(target, TOKENS).logits, logits(network), atol=2e-4)


@pytest.mark.parametrize("value", [-0.1, "much", True, [0.1]])
def test_a_growth_that_cannot_be_is_refused(network, value, tmp_path):
    save(network, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["rope_parameters"]["llama_4_scaling_beta"] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="llama_4_scaling_beta"):
        load(tmp_path, weights=False)


@pytest.mark.parametrize("value", [-0.5, float("nan"), float("inf")])
def test_a_file_with_such_a_growth_is_refused(network, value, tmp_path):
    with pytest.raises(UsageError, match=r"rope scaling|temperature_scale"):
        load(write_gguf(network, tmp_path / "m.gguf", **{"attention.temperature_scale": value}), weights=False)


def test_logits_are_equal_in_every_number_of_rows(network, tmp_path):
    """One row and prompts of several lengths: the table of a position does not depend on how many there are."""
    target = load(write_gguf(network, tmp_path / "m.gguf"), kernels="native", threads=1)
    assert attrs.asdict(target.info)["exact"] == "rows"
    whole = fresh(target, TOKENS).logits
    for count in (1, 17, 33, 59):
        assert torch.equal(fresh(target, TOKENS[:count]).logits, whole[:count])
