"""Every method on every engine: it is accepted, or refused with a reason before a weight is read."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from spec_engines.llamacpp import check_installed
from spec_engines.vllm.model import SERVES, describe
from spec_zoo import path

from spec_core import Refused, UsageError, load
from spec_core.commands import check
from spec_core.host import EngineModel, Host, Serves
from spec_core.host import check as check_engine
from spec_core.testing import ToyTarget
from tests.support.hugging_face import directory
from tests.support.small_heads import directory as head_directory

FILES = {"draft-model": "zoo:pico-draft", "eagle3": "zoo:pico-eagle3", "dflash": "zoo:pico-dflash"}
METHODS = ("ngram", "suffix", "recycling", "draft-model", "eagle3", "dflash", "mtp")
REFUSED = {
    ("pico", "mtp"): "pico has no NextN layer",
    ("pico-hybrid", "eagle3"): None,
    ("pico-hybrid", "dflash"): None,
}
"""What cannot work: {(model, method): the reason}. None: heads of pico fit pico-hybrid, which has the same sizes."""


def location(engine: str, model: str) -> str:
    if engine == "llamacpp":
        try:
            check_installed()
        except UsageError as missing:
            pytest.skip(missing.reason)
        return f"llamacpp:{path(model)}"
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    return f"transformers:{directory(f'zoo:{model}')}"


def settings(method: str) -> tuple[str, dict[str, str]]:
    return method, {"file": FILES[method]} if method in FILES else {}


@pytest.mark.parametrize("engine", ["transformers", "llamacpp"])
@pytest.mark.parametrize("model", ["pico", "pico-hybrid"])
@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_accepted_or_refused_by_metadata(engine, model, method):
    target = load(location(engine, model), weights=False, device="cpu")
    why = REFUSED.get((model, method))
    if why is None:
        assert check(target, [settings(method)], None, None, {})
    else:
        with pytest.raises(Refused, match=why):
            check(target, [settings(method)], None, None, {})


@pytest.mark.parametrize("model", ["pico", "pico-hybrid"])
@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_accepted_or_refused_for_vllm_without_vllm(model, method):
    described = describe(location("transformers", model).partition(":")[2])
    why = REFUSED.get((model, method))
    if why is None:
        assert check_engine(described, [settings(method)], SERVES)
    else:
        with pytest.raises(Refused, match=why):
            check_engine(described, [settings(method)], SERVES)


@pytest.mark.parametrize("engine", ["transformers", "llamacpp"])
@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_head_of_another_model_is_refused_by_metadata(engine, kind, tmp_path):
    target = load(location(engine, "pico"), weights=False, device="cpu")
    head: Path = head_directory(tmp_path / "head", kind, "speculators")
    with pytest.raises(Refused, match=r"reads hidden states of width|was made for"):
        check(target, [(kind, {"file": str(head)})], None, None, {})


NEEDS = {"recycling": "logits", "eagle3": "hidden", "dflash": "hidden", "mtp": "final"}


@pytest.mark.parametrize("method", METHODS)
def test_an_engine_that_tells_tokens_only_refuses_what_reads_more(method):
    """Tokens are enough for lookup and draft models."""
    model = "pico-hybrid" if method == "mtp" else "pico"
    described = load(f"zoo:{model}", weights=False)
    engine = EngineModel(described.info, described.tokenizer)
    if method in NEEDS:
        with pytest.raises(Refused, match=f"{method}: it needs .*; this engine does not serve them"):
            Host(engine, [settings(method)], Serves())
    else:
        assert Host(engine, [settings(method)], Serves()).plugins


def test_methods_that_can_branch_draft_chains_where_an_engine_takes_no_trees():
    model = EngineModel(ToyTarget().info)
    chains, trees = (
        Host(model, [("recycling", {"width": 3})], Serves(logits=True, trees=may)) for may in (False, True)
    )

    assert (chains.needs.trees, trees.needs.trees) == (False, True)
