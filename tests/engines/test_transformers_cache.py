"""Keys and values of transformers' cache for drafters: golden drafts, texts, and rows after rejected drafts."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from spec_cli.draft import drafted_by

from spec_core import Request, Run, Sampling, load
from spec_core.toolkit import cache_reader
from tests.engines.models import directory
from tests.support.assistants import tiny_assistant, tiny_gemma4
from tests.support.golden import golden

pytest.importorskip("transformers", "5.20")
TOLERANCE = 2e-4
"""As of this project's own targets, in tests/methods/test_assistant.py."""


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def target_of(path, **options):
    return load(f"transformers:{path}", **{"dtype": "float32", "device": "cpu"} | options)


def method(shared: bool) -> tuple[str, dict]:
    return "assistant", {"file": str(tiny_assistant(shared, ordered=shared)), "p_min": 0.0, "draft_max": 4}


@pytest.mark.parametrize("name", ["gemma4-e", "gemma4-k"])
@pytest.mark.parametrize("case", ["ctx20", "ctx33"])
def test_an_assistant_drafts_as_its_original_does(name, case):
    path = golden(f"gemma4-assistant/{name}")
    expected = load_file(path / "golden.safetensors")
    tokens = [*expected[f"{case}.tokens"].tolist(), int(expected[f"{case}.id_last"])]
    settings = {"file": str(path / "hf"), "p_min": 0.0, "draft_max": 5}
    run = Run(target_of(golden(name) / "hf"), [("assistant", settings)], draft_max=5)

    assert drafted_by(run, tokens, 5)[0] == expected[f"{case}.draft_tokens"].tolist()


def drafts_of(target, shared: bool, temperature: float, slots: int) -> tuple[list, list[list[int]]]:
    """All drafts in order, and the texts."""
    drafts, run = [], Run(target, [method(shared)], max_sequences=slots)
    run.observe(lambda step: drafts.extend((p.seq.name, list(p.draft.ids)) for p in step.parts if p.draft))
    return drafts, [text.result.tokens for text in run.generate(requests(temperature))]


def requests(temperature: float) -> list[Request]:
    sampling = Sampling(temperature=temperature)
    prompts = ([3, 1, 4], [1, 5, 9, 2, 6, 5, 3, 5, 8, 9], [7], [3, 1, 4, 1])
    return [Request(p, max_tokens=24, seed=i, sampling=sampling, name=f"{i}") for i, p in enumerate(prompts)]


@pytest.mark.repeats(3)
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("shared", [True, False])
def test_texts_are_plain_and_drafts_those_on_this_projects_executor(shared, temperature, slots):
    path = tiny_gemma4(shared)
    target, own = target_of(path), load(path, dtype="float32", device="cpu")
    drafts, texts = drafts_of(target, shared, temperature, slots)
    own_drafts, own_texts = drafts_of(own, shared, temperature, slots)

    assert texts == own_texts == [text.result.tokens for text in Run(target).generate(requests(temperature))]
    equal = sum(a == b for a, b in zip(drafts, own_drafts, strict=False))
    assert equal > 0.9 * max(len(drafts), len(own_drafts)), "caches of 16 bits may change one draft"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_copied_rows_are_the_caches_after_rejected_drafts_and_a_reused_slot(dtype):
    target = target_of(tiny_gemma4(), dtype=dtype)
    run = Run(target, [method(True)], max_sequences=1)
    reader, checked = cache_reader(target), []

    def compare(step) -> None:
        for part in step.parts:
            state, count = part.seq.slot.state, part.start
            if not count or state.copied.memory is None:
                continue
            rows = reader.rows(part.seq, count)
            for block in range(target.info.layers):
                copies = rows.memory.read(reader.layer(block), count)
                assert all(
                    torch.allclose(a, b.float(), atol=2e-2) for a, b in zip(copies, rows.read(block), strict=True)
                )
            checked.append(count)

    run.observe(compare)
    for request in requests(0.8):
        run.generate(request).result
    assert len(checked) > 12
    assert run.stats.report()["accepted"] < run.stats.report()["drafted"]


def test_models_of_other_families_show_none_of_their_cache():
    for arch in ("llama", "gemma"):
        assert cache_reader(target_of(directory(arch), weights=False)) is None
