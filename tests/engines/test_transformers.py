"""The target of transformers: conformance, and equality with transformers' own generation."""

from __future__ import annotations

import json
import shutil
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
from spec_engines.transformers import ENGINE

from spec_core import Needs, Refused, Run, UsageError, load
from spec_core.testing import TargetConformance
from spec_core.testing.conformance.target_kit import feed_tokens
from spec_core.toolkit.drive import open_sequence
from tests.engines.models import directory
from tests.support.hugging_face import directory as written
from tests.targets.tiny import save

transformers = pytest.importorskip("transformers", "5.20")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class TestLlama(TargetConformance):
    batch_tolerance = 1e-12

    def make(self):
        return load(f"transformers:{directory('llama')}", dtype="float64", device="cpu")


class TestQwen3(TestLlama):
    def make(self):
        return load(f"transformers:{directory('qwen3')}", dtype="float64", device="cpu")


class TestGemmaWithWindows(TestLlama):
    """Trees are refused: transformers ignores windows under a mask of the caller."""

    def make(self):
        return load(f"transformers:{directory('gemma')}", dtype="float64", device="cpu")


class TestGemma4WithSharedCaches(TestLlama):
    """The last layers store no rows: they read those of others."""

    def make(self):
        return load(f"transformers:{directory('gemma4')}", dtype="float64", device="cpu")

    def test_embeddings_enter_the_first_block(self):
        """Every block also reads an embedding of the token, which such a row lacks: only block 0 is compared."""
        text = self.texts[0]
        entered = feed_tokens(self.model, open_sequence(self.model), text, Needs(hidden={0})).hidden[0].clone()
        embeds = {2: entered[2], 5: entered[5]}
        tokens = [-1 if i in embeds else token for i, token in enumerate(text)]
        again = feed_tokens(self.model, open_sequence(self.model, embeds), tokens, Needs(hidden={0})).hidden[0]
        assert torch.equal(again, entered)


@pytest.mark.slow
class TestQwen3Next(TestLlama):
    """Its gated delta nets compute in float32 for every dtype, alone in another order than together."""

    batch_tolerance = tolerance = 1e-4

    def make(self):
        return load(f"transformers:{directory('qwen3next')}", dtype="float64", device="cpu")


@pytest.mark.parametrize("check", ENGINE.skipped)
def test_checks_that_are_listed_as_skipped_are_skipped(check):
    with pytest.raises(pytest.skip.Exception):
        getattr(TestGemmaWithWindows(), check)()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_texts_of_a_model_with_shared_caches_are_plain_and_those_of_this_projects_executor(temperature):
    served, prompts = target("gemma4"), [[5, 9, 11, 2] * 6, [7] * 5]
    for prompt in prompts:
        ask = lambda run, prompt=prompt: (
            run.generate(prompt, max_tokens=24, temperature=temperature, seed=3, ignore_eos=True).result.tokens
        )
        plain = ask(Run(served))
        drafted = Run(served, ["ngram", "recycling"])
        assert ask(drafted) == plain and drafted.stats.report()["accepted"] > 0
        assert ask(Run(load(f"hf:{directory('gemma4')}", dtype="float32", device="cpu", kernels="reference"))) == plain


def target(arch: str, **options):
    return load(f"transformers:{directory(arch)}", **{"dtype": "float32", "device": "cpu"} | options)


METHODS = {
    "ngram": ("zoo:pico", ("ngram", {})),
    "suffix": ("zoo:pico", ("suffix", {})),
    "recycling": ("zoo:pico", ("recycling", {"width": 3})),
    "draft-model": ("zoo:pico", ("draft-model", {"file": "zoo:pico-draft"})),
    "eagle3": ("zoo:pico", ("eagle3", {"file": "zoo:pico-eagle3"})),
    "eagle3 in trees": ("zoo:pico", ("eagle3", {"file": "zoo:pico-eagle3", "width": 3, "p_min": 0.05})),
    "dflash": ("zoo:pico", ("dflash", {"file": "zoo:pico-dflash"})),
    "mtp": ("zoo:pico-hybrid", ("mtp", {})),
    "ngram on a hybrid": ("zoo:pico-hybrid", ("ngram", {})),
}
PROMPTS = ["def add(a, b):\n    return", "one two three one two three one two three one"]
REQUEST = {"max_tokens": 24, "ignore_eos": True}


@cache
def of_the_zoo(model: str):
    return load(f"transformers:{written(model)}", dtype="float32", device="cpu")


@cache
def plain(model: str, temperature: float) -> list[list[int]]:
    run = Run(of_the_zoo(model), max_sequences=1)
    return [run.generate(p, **REQUEST, temperature=temperature, seed=i).result.tokens for i, p in enumerate(PROMPTS)]


@pytest.mark.repeats(9)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_drafts_and_changes_no_text(name, temperature):
    model, method = METHODS[name]
    run = Run(of_the_zoo(model), [method])
    texts = [run.generate(p, **REQUEST, temperature=temperature, seed=i) for i, p in enumerate(PROMPTS)]

    assert [generation.result.tokens for generation in texts] == plain(model, temperature)
    assert temperature or run.stats.report()["accepted"] > 0


@pytest.mark.parametrize("model", ["zoo:pico", "zoo:pico-hybrid"])
def test_plain_decoding_gives_the_text_of_generate(model):
    target = of_the_zoo(model)
    for prompt, tokens in zip(PROMPTS, plain(model, 0.0), strict=True):
        ids = torch.tensor([target.tokenizer.encode(prompt)])
        generated = target.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False, eos_token_id=None,
            pad_token_id=0,
        )  # fmt: skip
        assert generated[0, ids.shape[1] :].tolist() == tokens


@pytest.mark.filterwarnings("error::FutureWarning")
def test_no_deprecated_argument_is_passed():
    Run(target("llama")).generate([1, 2, 3], max_tokens=2)


@pytest.mark.parametrize("kind, model", [("eagle3", "zoo:pico"), ("dflash", "zoo:pico"), ("mtp", "zoo:pico-hybrid")])
def test_a_head_is_accepted_as_often_as_on_the_target_that_shares_its_executor(kind, model):
    """The heads read the same hidden states and matrices, up to rounding, which may move a draft over its limit."""
    settings = {} if kind == "mtp" else {"file": f"{model}-{kind}"}
    steps = []
    for target in (of_the_zoo(model), load(model, threads=1)):
        run = Run(target, [(kind, settings)])
        for i, prompt in enumerate(PROMPTS):
            assert run.generate(prompt, **REQUEST, seed=i).result.tokens
        steps.append(run.stats.report()["steps"])

    assert abs(steps[0] - steps[1]) <= 1


def test_trees_are_refused_where_a_mask_of_the_caller_is_not_followed():
    """Windows and recurrent layers; positions that the model derives itself, as with ALiBi."""
    config = transformers.BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4)
    bloom = save(transformers.BloomForCausalLM(config), Path(mkdtemp()))

    assert target("llama").info.trees
    assert not target("gemma").info.trees
    assert not target("qwen3next").info.trees
    assert not load(f"transformers:{bloom}", device="cpu").info.trees


def test_a_model_that_ignores_the_mask_is_found_out_when_it_is_loaded(monkeypatch):
    forward = transformers.LlamaForCausalLM.forward
    assert target("llama").info.trees
    monkeypatch.setattr(
        transformers.LlamaForCausalLM,
        "forward",
        lambda self, tokens, attention_mask=None, logits_to_keep=0, position_ids=None, **more: forward(
            self, tokens, logits_to_keep=logits_to_keep, position_ids=position_ids, **more
        ),
    )

    assert not target("llama").info.trees


def test_learned_positions_are_given_too():
    """A model of 2019 with other names for everything; its kit runs on one text only."""
    config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    target = load(f"transformers:{save(transformers.GPT2LMHeadModel(config), Path(mkdtemp()))}", device="cpu")

    assert target.info.trees
    assert (target.info.width, target.info.layers, target.info.context, target.tokenizer) == (32, 2, 64, None)
    assert target.tensor("output.weight").shape == (64, 32)
    prompt = [1, 2, 3, 1, 2, 3, 1, 2]
    plain = Run(target).generate(prompt, max_tokens=20).result.tokens
    assert Run(target, ["recycling"]).generate(prompt, max_tokens=20).result.tokens == plain


# refusals


def test_metadata_are_read_without_weights(monkeypatch):
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", lambda *a, **k: pytest.fail("was read"))
    info = target("qwen3next", weights=False).info

    assert (info.vocab, info.layers, info.states) == (320, 3, {"attention", "recurrent"})


def test_a_run_is_refused_before_weights_are_read(monkeypatch):
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", lambda *a, **k: pytest.fail("was read"))
    with pytest.raises(Refused, match="has no NextN layer"):
        Run(f"transformers:{directory('llama')}", ["mtp"], device="cpu")


def copy_model(tmp_path: Path, arch: str = "llama") -> Path:
    return Path(shutil.copytree(directory(arch), tmp_path / arch))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"kernels": "native"}, "kernels=native is not an option"),
        ({"weights": "q8_0"}, "weights=q8_0 is not an option"),
        ({"dtype": "int3"}, "dtype 'int3' is unknown"),
        ({"device": "moon"}, "device 'moon' is unknown"),
        ({"context": 1000}, "context 1000 was requested, the model declares 128"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        target("llama", **options)


def test_a_directory_without_a_config_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"there is no config\.json"):
        load(f"transformers:{tmp_path}")


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("text", ["", "[]", "{", '{"model_type": "no-such-model"}', '{"model_type": "bert"}', "\0"])
def test_a_config_of_another_kind_is_refused(tmp_path, text, weights):
    path = copy_model(tmp_path)
    (path / "config.json").write_text(text)
    with pytest.raises(UsageError, match=r"transformers cannot load it|were not found"):
        load(f"transformers:{path}", device="cpu", weights=weights)


@pytest.mark.parametrize("count", [0, -1, 10**9, 2.5, "3", None])
def test_an_impossible_number_of_layers_is_refused(tmp_path, count):
    """Before a module is made for each of them."""
    path = copy_model(tmp_path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": count}))
    with pytest.raises(UsageError, match=r"layers, 1 to 1024 were needed|transformers cannot load it"):
        load(f"transformers:{path}", device="cpu", weights=False)


def test_code_in_a_directory_is_not_run(tmp_path):
    path = copy_model(tmp_path)
    config = json.loads((path / "config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}}
    (path / "config.json").write_text(json.dumps(config))
    (path / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UsageError, match="transformers cannot load it"):
        load(f"transformers:{path}", device="cpu")
    assert not (tmp_path / "ran").exists()


def test_pickled_weights_are_not_read(tmp_path):
    path = copy_model(tmp_path)
    (path / "model.safetensors").unlink()
    torch.save({}, path / "pytorch_model.bin")
    with pytest.raises(UsageError, match="transformers cannot load it"):
        load(f"transformers:{path}", device="cpu")


def test_damaged_weights_are_refused(tmp_path):
    path = copy_model(tmp_path)
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="transformers cannot load it"):
        load(f"transformers:{path}", device="cpu")


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    path = copy_model(tmp_path)
    shutil.copy(written("zoo:pico") / "tokenizer.json", path)
    with pytest.raises(UsageError, match="the tokenizer has 3072 tokens, the output matrix 320 rows"):
        load(f"transformers:{path}", device="cpu", weights=False)


def test_without_transformers_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match="transformers is not installed") as caught:
        load(f"transformers:{directory('llama')}", device="cpu")
    assert "pip install 'spec-core[transformers]'" in caught.value.hint
