"""Every method on every engine: it runs, or it is refused with reasons before a weight is read."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import pytest
from spec_engines import sglang, vllm
from spec_engines.hosted.model import describe_directory
from spec_engines.llamacpp import check_installed
from spec_kernels import native
from spec_zoo import path

from spec_core import Compat, Needs, Refused, Run, Target, UsageError, hookimpl, load
from spec_core.host import EngineModel, Host, Serves
from spec_core.testing import ToyConstraint, ToyTarget
from spec_core.toolkit import next_token_layer
from tests.support.fake_engine import FakeEngine
from tests.support.hugging_face import directory
from tests.support.small_heads import directory as head_directory
from tests.support.small_models import tiny_gguf
from tools.engines import ADAPTERS, CACHE_READERS, SETTINGS, cell, everything
from tools.engines import NEEDS as BORROWED
from tools.engines import method_names as names_of_methods

METHODS = [name for name in names_of_methods() if name not in (*BORROWED, *CACHE_READERS)]
"""Methods without the ones for whose head there is no model here."""
OWN = ("reference", "native")
"""Executors of this project: plain torch and native code."""
HOSTED = {adapter.ENGINE.scheme: Serves(**adapter.ENGINE.serves) for adapter in (vllm, sglang)}
"""Engines with a loop of their own, and their services."""
ENGINES = (*OWN, "transformers", "llamacpp", *HOSTED)
MODELS = ("pico", "pico-hybrid")
PROMPT, LENGTH = [5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7], 6
MISSING = {
    "forced": ("constraints of requests",),
    "prediction": ("predictions of requests",),
    "mtp": ("the hidden state after the final norm", "weights (output.weight, token_embd.weight)"),
    "eagle3": (
        *("hidden states between blocks (1, 6)", "the hidden state after the final norm"),
        "weights (token_embd.weight)",
    ),
    "dflash": (
        *("hidden states between blocks (1, 6)", "the hidden state after the final norm"),
        "weights (output.weight, token_embd.weight)",
    ),
}
"""What methods need that not every engine serves."""


def reason(engine: str, method: str) -> str:
    """The refusal of a method for everything that it needs and this engine does not serve."""
    return "\n".join(f"{method}: it needs {what}; this engine serves {HOSTED[engine]}" for what in MISSING[method])


REFUSED = {
    **{("vLLM", model, name): reason("vLLM", name) for model in MODELS for name in ("forced", "prediction")},
    **{("SGLang", model, name): reason("SGLang", name) for model in MODELS for name in MISSING},
    **{(engine, "pico", "mtp"): "mtp: pico has no NextN layer" for engine in ENGINES},
}
"""{(engine, model, method): the reason}"""
RUNS = [
    (engine, model, method)
    for engine in ENGINES
    for model in MODELS
    for method in METHODS
    if (engine, model, method) not in REFUSED
]


def location(engine: str, model: str) -> str:
    """Location of a model for an engine. Skips where the engine is not installed."""
    if engine in OWN:
        if engine == "native" and (problem := native.problem()):
            pytest.skip(problem)
        return f"zoo:{model}"
    if engine == "llamacpp":
        try:
            check_installed()
        except UsageError as missing:
            pytest.skip(missing.reason)
        return f"llamacpp:{path(model)}"
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    return f"transformers:{directory(f'zoo:{model}')}"


def options(engine: str) -> dict[str, Any]:
    return {"device": "cpu", "threads": 1} | ({"kernels": engine} if engine in OWN else {})


@cache
def target(engine: str, model: str) -> Target:
    return load(location(engine, model), **options(engine))


@cache
def plain(engine: str, model: str) -> list[int]:
    return Run(target(engine, model), max_sequences=1).generate(PROMPT, max_tokens=LENGTH).result.tokens


def request_fields(engine: str, model: str, method: str) -> dict[str, Any]:
    """Fields of requests besides a prompt, where a method drafts from them."""
    if method == "forced":
        return {"constraint": ToyConstraint(share=0.0)}
    return {"prediction": plain(engine, model)} if method == "prediction" else {}


def inside(engine: str, model: str, method: str, settings: dict[str, Any]) -> Host:
    """A host with what an engine serves. Weights of the model are read when a method asks for one."""
    bare = describe_directory(location(engine, model).partition(":")[2], "as in the engine")
    shared = attrs.evolve(bare, tensors=lambda name: target("transformers", model).tensor(name))
    return Host(shared, [(method, settings)], HOSTED[engine])


def begin(engine: str, model: str, method: str, settings: dict[str, Any]) -> Run | Host:
    """A run from a location, or a host: weights are read after everything was checked."""
    if engine in HOSTED:
        return inside(engine, model, method, settings)
    return Run(location(engine, model), [(method, settings)], **options(engine))


@pytest.fixture
def unread(monkeypatch):
    """Every reader of weights fails: those of the engines' models, and those of draft models and heads."""

    def was_read(*_: Any, **__: Any) -> None:
        pytest.fail("weights were read")

    monkeypatch.setattr("spec_targets.runtime.plan.load_executor", was_read)
    monkeypatch.setattr("spec_core.assembly.assemble._load", was_read)
    if find_spec("transformers") is not None:
        monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", was_read)
    if find_spec("llama_cpp") is not None:
        from spec_engines.llamacpp import loading

        model_class = loading.Model
        monkeypatch.setattr(
            loading, "Model", lambda p, allocate=True, **more: was_read() if allocate else model_class(p, False)
        )


# every method of this distribution


@pytest.mark.parametrize("engine, model, method", REFUSED)
def test_a_method_that_cannot_work_is_refused_before_weights_are_read(engine, model, method, unread):
    with pytest.raises(Refused) as caught:
        begin(engine, model, method, SETTINGS.get(method, {}))
    assert caught.value.reason == REFUSED[engine, model, method]
    assert caught.value.hint


@pytest.mark.repeats(17)
@pytest.mark.parametrize("engine, model, method", [run for run in RUNS if run[0] not in HOSTED])
def test_every_other_method_drafts_in_a_run(engine, model, method):
    served = target(engine, model)
    run = Run(served, [(method, SETTINGS.get(method, {}))], max_sequences=1)
    text = run.generate(PROMPT, max_tokens=LENGTH, **request_fields(engine, model, method)).result.tokens

    assert len(text) == LENGTH
    assert run.stats.report()["drafted"] > 0


@pytest.mark.parametrize("engine, model, method", [run for run in RUNS if run[0] in HOSTED])
def test_every_other_method_drafts_with_what_an_engine_serves(engine, model, method):
    """In a loop that is not this project's, on a model of transformers."""
    host = inside(engine, model, method, SETTINGS.get(method, {}))
    engine = FakeEngine(target("transformers", model), host)
    job = engine.add("a", PROMPT, LENGTH)
    engine.run()

    assert len(job.tokens) == LENGTH
    assert host.stats.report()["drafted"] > 0


@pytest.mark.parametrize("method", METHODS)
def test_the_table_of_the_documentation_says_what_happens(method):
    """Its cells follow from what adapters declare; the runs above are what they say."""
    for engine in (adapter.ENGINE for adapter in ADAPTERS):
        refused = (engine.scheme, "pico-hybrid", method) in REFUSED
        assert cell(method, Serves(**engine.serves)).startswith("no: it needs" if refused else ("trees", "chains"))
    assert cell(method, everything()) == ("trees" if "width" in SETTINGS.get(method, {}) else "chains")


@pytest.mark.parametrize("method", CACHE_READERS)
def test_a_method_that_reads_the_targets_cache_runs_in_this_projects_loop_alone(method):
    class Reader:
        @hookimpl
        def compat(self):
            return Compat(needs=CACHE_READERS[method])

    assert cell(method, everything(), shows=True) == "chains"
    for engine in (adapter.ENGINE for adapter in ADAPTERS):
        assert cell(method, Serves(**engine.serves)) == "no: it reads keys and values of the target"
    described = load("zoo:pico", weights=False)
    with pytest.raises(Refused, match="reads keys and values of the target, pico shows none of its cache"):
        Host(EngineModel(described.info, described.tokenizer), [Reader()], everything())


# settings and files that do not fit


WRONG = {
    "no draft model": ("draft-model", {}, "draft-model: no draft model is given, and pico has none"),
    "a hybrid drafts": ("draft-model", {"file": "zoo:pico-hybrid"}, "draft-model: pico-hybrid has recurrent state"),
    "other words": ("draft-model", {"file": "tiny"}, "draft-model: tiny-0 has a different vocabulary than pico"),
    "no head of eagle3": ("eagle3", {}, "eagle3: no head is given, and pico has none"),
    "no head of dflash": ("dflash", {}, "dflash: no head is given, and pico has none"),
    "another kind of head": ("eagle3", {"file": "zoo:pico-dflash"}, "eagle3: pico-dflash is a head of kind dflash"),
    "no layer in the file": ("mtp", {"file": "zoo:pico-draft"}, "mtp: pico-draft has no NextN layer"),
}
COMPANIONS = {"no draft model", "no head of eagle3", "no head of dflash"}
"""Refusals that do not occur with the zoo, whose models have these companions."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("wrong", WRONG)
def test_files_that_do_not_fit_are_refused_before_weights_are_read(engine, wrong, unread):
    if engine in OWN and wrong in COMPANIONS:
        engine = "transformers"
    method, settings, message = WRONG[wrong]
    if settings.get("file") == "tiny":
        settings = {"file": str(tiny_gguf())}
    with pytest.raises(Refused) as caught:
        begin(engine, "pico", method, settings)
    assert caught.value.reason.startswith(message)
    assert caught.value.hint


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_head_of_another_model_is_refused_before_weights_are_read(engine, kind, tmp_path, unread):
    head: Path = head_directory(tmp_path / "head", kind, "speculators")
    with pytest.raises(Refused, match=rf"{kind}: .*(reads hidden states of width|was made for)"):
        begin(engine, "pico", kind, {"file": str(head)})


def test_a_layer_that_only_transformers_knows_is_refused_by_name(monkeypatch, unread):
    place = location("transformers", "pico-hybrid")

    def refuse(*_: Any, **__: Any) -> None:
        raise UsageError("the moon is unknown", hint="")

    monkeypatch.setattr("spec_engines.transformers.transformers_loading.load", refuse)
    with pytest.raises(Refused, match=r"mtp: this project cannot read the NextN layer of .*: the moon is unknown"):
        Run(place, ["mtp"], device="cpu")


@pytest.mark.parametrize("method", ["eagle3", "dflash", "mtp"])
def test_a_file_that_only_llamacpp_knows_shares_no_weights(monkeypatch, method, unread):
    place = location("llamacpp", "pico-hybrid")
    monkeypatch.setattr("spec_engines.llamacpp.loading._describe", lambda path: None)
    expected = (
        "does not read the architecture of"
        if method == "mtp"
        else f"{method} reads the target's .*; .* gives no weights"
    )
    with pytest.raises(Refused, match=expected):
        Run(place, [(method, SETTINGS.get(method, {}))], device="cpu", threads=1)


class Reads:
    """A plugin that needs a weight."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(needs=Needs(weights={"output_norm.weight"}), drafts=())

    @hookimpl
    def process(self, rows: Any) -> None:
        """Nothing."""


def test_a_weight_that_transformers_does_not_give_is_refused_by_name(unread):
    message = "reads the target's output_norm.weight; pico gives output.weight, token_embd.weight"
    with pytest.raises(Refused, match=message):
        Run(location("transformers", "pico"), [Reads()], device="cpu")


# engines that serve less


NEEDS = {
    "recycling": "rows of logits",
    "eagle3": "hidden states between blocks",
    "dflash": "hidden states between blocks",
    "mtp": "the hidden state after the final norm",
    "forced": "constraints of requests",
    "prediction": "predictions of requests",
}


@pytest.mark.parametrize("method", METHODS)
def test_an_engine_that_tells_tokens_only_refuses_what_reads_more(method, unread):
    described = load("zoo:pico-hybrid", weights=False)
    model, named = (
        EngineModel(described.info, described.tokenizer, next_token_layer=next_token_layer(described)),
        [(method, SETTINGS.get(method, {}))],
    )
    if method not in NEEDS:
        with pytest.raises(pytest.fail.Exception, match="weights were read"):
            Host(model, named, Serves())
        return
    with pytest.raises(Refused) as caught:
        Host(model, named, Serves())
    assert caught.value.reason.startswith(f"{method}: it needs {NEEDS[method]}")
    assert "; this engine serves tokens" in caught.value.reason and "this project's own loop" in caught.value.hint


def test_methods_that_can_branch_draft_chains_where_an_engine_takes_no_trees():
    model = EngineModel(ToyTarget().info)
    chains, trees = (
        Host(model, [("recycling", {"width": 3})], Serves(logits=True, trees=may)) for may in (False, True)
    )

    assert (chains.needs.trees, trees.needs.trees) == (False, True)
