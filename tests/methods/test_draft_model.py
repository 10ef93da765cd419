"""draft-model beyond the contract: parity of its own forwards, counts, catch-up, vocabularies."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import attrs
import pytest
import torch
from safetensors.torch import load_file, save_file
from spec_methods.draft_model import DraftModel

from spec_core import Refused, Request, Run, Sampling, SpecError, load
from tests.support.golden import golden
from tests.support.small_models import tiny_gguf


@pytest.fixture(scope="module")
def target():
    return load(tiny_gguf(0))


def texts(target, methods, batch=1, n=40, **request):
    run = Run(target, methods=methods)
    seqs = [run.submit(f"def add(a, b): {i}", max_tokens=n, seed=i, ignore_eos=True, **request) for i in range(batch)]
    for _ in run:
        pass
    return [run.take(s).tokens for s in seqs], run


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("batch", [1, 4])
def test_text_is_the_targets_own(target, temperature, batch):
    sampling = Sampling(temperature=temperature)
    plain, _ = texts(target, [], batch, sampling=sampling)
    drafted, _ = texts(target, [("draft-model", {"file": str(tiny_gguf(1)), "p_min": 0.0})], batch, sampling=sampling)

    assert plain == drafted


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_target_as_its_own_draft_is_accepted_always(target, temperature):
    """A perfect drafter is accepted to the last token, which detects shifted or stale rows and wrong noise."""
    sampling = Sampling(temperature=temperature)
    _, run = texts(target, [("draft-model", {"file": str(tiny_gguf(0)), "p_min": 0.0})], sampling=sampling)

    assert run.stats.report()["draft_acceptance"] == 1.0


def test_k_drafts_cost_k_forwards_and_one_of_the_target(target):
    """Catch-up rows are part of the first draft's forward."""
    _, run = texts(target, [("draft-model", {"file": str(tiny_gguf(1)), "p_min": 0.0, "draft_max": 4})])
    report = run.stats.report()

    assert report["forwards"]["draft-model"] == report["drafted"]
    assert report["forwards"]["target"] == report["steps"] + 1


def test_all_sequences_share_one_forward(target):
    """Four sequences drafted together need the forwards of the longest, not four times their number."""
    methods = [("draft-model", {"file": str(tiny_gguf(1)), "p_min": 0.0, "draft_max": 4})]
    _, one = texts(target, methods)
    _, four = texts(target, methods, batch=4)

    assert four.stats.report()["forwards"]["draft-model"] < 2 * one.stats.report()["forwards"]["draft-model"]


def test_a_method_that_was_not_asked_catches_up(target):
    """After requests without it the cache lags behind; its next drafts still equal those of a new instance."""
    methods = [("draft-model", {"file": str(tiny_gguf(0)), "p_min": 0.0})]
    run = Run(target, methods=methods, max_sequences=1)
    run.generate("def add(a, b):", max_tokens=30, methods=(), ignore_eos=True).result
    result = run.generate("def add(a, b):", max_tokens=30, ignore_eos=True).result

    assert result.stats["draft_acceptance"] == 1.0


def test_p_min_stops_a_draft_before_an_unsure_token(target):
    _, sure = texts(target, [("draft-model", {"file": str(tiny_gguf(1)), "p_min": 0.99})])
    _, free = texts(target, [("draft-model", {"file": str(tiny_gguf(1)), "p_min": 0.0})])

    assert sure.stats.report()["drafted"] < free.stats.report()["drafted"]


def test_another_vocabulary_is_refused_with_the_first_difference(target):
    other = tiny_gguf(2, salt="completely different words ")
    with pytest.raises(Refused, match=r"token \d+ is") as refused:
        Run(target, methods=[f"draft-model={other}"])

    assert "translate" in refused.value.hint


@cache
def pad(rows: int, seed: int = 0) -> str:
    """A random model of the golden family whose embeddings have more or fewer rows than the family's."""
    folder = Path(mkdtemp()) / f"rows-{rows}"
    shutil.copytree(golden("qwen2") / "hf", folder)
    config = json.loads((folder / "config.json").read_text())
    tensors, generator = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(seed)
    for name in [name for name in tensors if name in ("model.embed_tokens.weight", "lm_head.weight")]:
        more = torch.randn(max(0, rows - len(tensors[name])), tensors[name].shape[1], generator=generator) * 0.1
        tensors[name] = torch.cat([tensors[name], more])[:rows].contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": rows}))
    return str(folder)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("ours, theirs", [(512, 520), (520, 512), (508, 700)])
def test_padding_of_the_embedding_is_not_vocabulary(ours, theirs, temperature):
    """Ids beyond the smaller embedding are never drafted, nor does a text with one stop the run."""
    target = load(pad(ours), dtype="float32", device="cpu")
    asked = Request(
        "def add(a, b):", max_tokens=40, seed=1, ignore_eos=True, sampling=Sampling(temperature=temperature)
    )
    plain = Run(target).generate(asked).result
    drafted = []
    run = Run(target, [("draft-model", {"file": pad(theirs), "p_min": 0.0})])
    run.observe(lambda step: drafted.extend(i for part in step.parts if part.draft for i in part.draft.ids))

    assert run.generate(asked).result.tokens == plain.tokens
    assert drafted and max(drafted) < min(ours, theirs)
    high = Request([1, 2, ours - 1, 5], max_tokens=4, ignore_eos=True)
    assert run.generate(high).result.tokens == Run(target).generate(high).result.tokens


def test_the_hint_for_another_vocabulary_is_a_name_that_a_run_takes(target):
    """Python and the command line use the same notation."""
    file = tiny_gguf(3, salt="other words ")
    with pytest.raises(Refused) as refused:
        Run(target, [f"draft-model={file}"])
    (name,) = re.findall(r'"(draft-model:[^"]+)"', str(refused.value))

    assert name == f"draft-model:file={file},translate=true"
    assert Run(target, [name]).plugins[0].plugin.translate is True


def test_another_vocabulary_is_translated_when_asked(target):
    """Tokens are matched by their text; the text stays the target's own."""
    other = tiny_gguf(2, salt="completely different words ")
    plain, _ = texts(target, [])
    drafted, run = texts(target, [("draft-model", {"file": str(other), "p_min": 0.0, "translate": True})])

    assert plain == drafted
    assert run.stats.report()["drafted"] > 0


def test_without_a_file_it_is_refused_with_a_mend(target):
    with pytest.raises(Refused, match="no draft model"):
        Run(target, methods=["draft-model"])


def test_methods_chain_in_the_users_order(target):
    """A sequence that has a draft from ngram is not offered to draft-model; both have drafted by the end."""
    plain, _ = texts(target, [], n=80)
    drafted, run = texts(target, ["ngram", ("draft-model", {"file": str(tiny_gguf(1)), "p_min": 0.0})], n=80)

    assert plain == drafted
    assert set(run.stats.report()["methods"]) == {"ngram", "draft-model"}


def test_draft_logits_are_the_draft_models_own(target):
    run = Run(target, methods=[("draft-model", {"file": str(tiny_gguf(0))})])
    plugin = run.plugins[0].plugin
    prompt = target.tokenizer.encode("def add(a, b):")
    tokens, logits = plugin.draft_logits(prompt, 5)
    plain = Run(target).generate(prompt, max_tokens=5, ignore_eos=True).result.tokens

    assert plain == tokens
    assert list(logits.shape) == [5, target.info.vocab]


@pytest.mark.parametrize("translate", [False, True], ids=["same-words", "translated"])
def test_it_drafts_as_far_as_its_own_context_goes(target, translate):
    """Also at the last position; then the target continues alone, and counts are of drafted tokens."""
    file = tiny_gguf(3, context=64, salt="completely different words " if translate else "")
    settings = {"file": str(file), "p_min": 0.0, "draft_max": 4, "translate": translate}
    plain, _ = texts(target, [], n=120)
    run, lengths = Run(target, methods=[("draft-model", settings)]), []
    run.observe(lambda step: lengths.extend((len(p.seq.tokens) - len(p.emitted), p.drafted) for p in step.parts))
    result = run.generate("def add(a, b): 0", max_tokens=120, seed=0, ignore_eos=True).result
    report = run.stats.report()

    assert [result.tokens] == plain
    assert report["drafted"] == report["forwards"]["draft-model"] == sum(drafted for _, drafted in lengths) > 0
    assert {drafted for length, drafted in lengths if length > (60 if translate else 64)} == {0}
    if not translate:
        assert all(drafted == min(4, 65 - length) for length, drafted in lengths[1:] if length <= 64)
        assert run.plugins[0].plugin.model.info.context == 64


def test_a_draft_model_with_a_longer_context_takes_no_more_than_the_targets(target):
    """Its cache is as long as the target's context."""
    run = Run(target, methods=[f"draft-model={tiny_gguf(1, context=1024)}"])

    assert run.plugins[0].plugin.model.info.context == target.info.context == 256


def test_it_is_loaded_in_a_dtype_of_its_own():
    """With a target whose dtype its loader does not support; a setting chooses another one."""
    odd = load(tiny_gguf(0))
    odd.info = attrs.evolve(odd.info, dtype="float64")
    chosen = {
        wish: Run(odd, methods=[("draft-model", {"file": str(tiny_gguf(1)), **wish_of(wish)})]).plugins[0].plugin.model
        for wish in ("", "bfloat16")
    }

    assert {wish: model.info.dtype for wish, model in chosen.items()} == {"": "float32", "bfloat16": "bfloat16"}


def wish_of(dtype):
    return {"dtype": dtype} if dtype else {}


def test_a_target_without_tokenizer_takes_a_draft_model_of_its_own_words_only(target):
    """No token of the vocabularies matches, and the refusal says so."""
    mute = load(tiny_gguf(0))
    mute.tokenizer = None

    assert Run(mute, methods=[f"draft-model={tiny_gguf(1)}"])
    other = tiny_gguf(2, salt="completely different words ")
    with pytest.raises(Refused, match="has no tokenizer"):
        Run(mute, methods=[("draft-model", {"file": str(other), "translate": True})])


def test_it_has_threads_of_its_own(monkeypatch):
    """Within its forwards only; the text is the same."""
    import torch

    target, seen = load("zoo:pico"), set()
    chosen = DraftModel(threads=2)
    with Run(target, [("draft-model", chosen)]) as run:
        original = type(chosen.model).draft
        monkeypatch.setattr(
            type(chosen.model), "draft", lambda *a, **k: seen.add(torch.get_num_threads()) or original(*a, **k)
        )
        before = torch.get_num_threads()
        result = run.generate("def f(x):\n", max_tokens=12).result

    assert result.tokens == Run(target).generate("def f(x):\n", max_tokens=12).result.tokens
    assert seen == {2} and torch.get_num_threads() == before


def test_it_runs_on_a_device_of_its_own():
    with Run(load("zoo:pico"), [("draft-model", DraftModel(device="cpu"))]) as run:
        assert run.generate("def f(x):\n", max_tokens=12).result.stats["accepted"] > 0
    with pytest.raises(SpecError, match="nowhere"):
        Run(load("zoo:pico"), [("draft-model", DraftModel(device="nowhere"))])
