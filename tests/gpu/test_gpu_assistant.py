"""Gemma 4's assistants on GPU kernels: they read the target's own pages, and store nothing."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("transformers")

from spec_kernels.gpu import drafting

from spec_core import Request, Run, Sampling, load
from spec_core.toolkit import cache_reader
from tests.methods.test_assistant import TOLERANCE, check_drafts, prefill
from tests.support.assistants import tiny_assistant, tiny_gemma4
from tests.support.golden import golden

OPTIONS = {"kernels": "gpu", "device": "cuda" if torch.cuda.is_available() else "cpu", "dtype": "float32"}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("name", "form"), [("gemma4-e", "hf"), ("gemma4-k", "model-f32.gguf"), ("gemma4-k", "position_minus_1")]
)
def test_a_draft_is_that_of_the_original_implementation(name, form):
    check_drafts(load(golden(name) / "hf", **OPTIONS), name, form, ("ctx33",))


def test_the_reader_shows_the_keys_and_values_of_the_original_implementation():
    target = load(golden("gemma4-e") / "hf", **OPTIONS)
    expected = load_file(golden("gemma4-assistant/gemma4-e") / "golden.safetensors")
    tokens, file = expected["ctx20.tokens"].tolist(), load(golden("gemma4-assistant/gemma4-e") / "hf", weights=False)
    rows = cache_reader(target).rows(prefill(target, tokens), len(tokens))
    kinds = {bool(cache_reader(target).heads(block).window): block for block in file.head.blocks(target)}

    for windowed, kind in ((True, "sliding_attention"), (False, "full_attention")):
        for got, part in zip(rows.read(kinds[windowed]), ("key", "value"), strict=True):
            want = expected[f"ctx20.shared_kv.{kind}.{part}"]
            assert (got.cpu()[:, -want.shape[1] :] - want).abs().max() <= TOLERANCE


@pytest.mark.parametrize("shared", [True, False])
def test_drafts_are_those_of_plain_torch_and_texts_those_of_plain_decoding(shared, monkeypatch):
    """Two texts at once, one of which is drawn, beyond a window; chains of up to five tokens are one call."""
    requests = [
        Request(p, max_tokens=7, seed=i, sampling=Sampling(t), name=f"{i}")
        for i, (p, t) in enumerate((([3, 1, 4], 0.0), ([1, 5, 9, 2, 6, 5, 3], 0.8)))
    ]
    calls, whole = [], drafting.cut_chain
    monkeypatch.setattr(drafting, "cut_chain", lambda *args: calls.append(1) or whole(*args))
    settings = {"file": str(tiny_assistant(shared, ordered=shared)), "draft_max": 5, "p_min": 0.0}
    drafts, texts = {}, {}
    for kernels in ("gpu", "reference"):
        target = load(tiny_gemma4(shared), **OPTIONS | {"kernels": kernels})
        run, offers = Run(target, [("assistant", settings)], max_sequences=2), []
        run.observe(
            lambda step, offers=offers: offers.extend((p.seq.name, p.start, p.draft.ids) for p in step.parts if p.draft)
        )
        texts[kernels] = [text.result.tokens for text in run.generate(requests)]
        drafts[kernels] = sorted(offers)

    assert texts["gpu"] == texts["reference"]
    assert drafts["gpu"] == drafts["reference"]
    assert calls and max(len(ids) for _, _, ids in drafts["gpu"]) == 5
