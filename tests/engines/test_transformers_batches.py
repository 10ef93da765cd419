"""Several sequences in one call of a model of transformers."""

from __future__ import annotations

from functools import cache
from inspect import signature

import pytest
import torch

from spec_core import Draft, Needs, Part, Run, load
from spec_core.toolkit import forward, open_sequence
from tests.engines.models import directory
from tests.support.hugging_face import directory as written

transformers = pytest.importorskip("transformers", "5.20")
from spec_engines.transformers.call import SHARED_ROWS  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@cache
def target(arch: str = "llama"):
    return load(f"transformers:{directory(arch)}", dtype="float64", device="cpu")


@cache
def pico():
    return load(f"transformers:{written('zoo:pico')}", dtype="float64", device="cpu")


def calls(target, lengths, drafts=None, starts=None) -> list[tuple[int, int]]:
    """[lines, rows] of each call of the model in one step. lengths: pending tokens of each sequence."""
    parts = []
    for i, length in enumerate(lengths):
        seq, start = open_sequence(target), 0 if starts is None else starts[i]
        if start:
            forward(target, [Part(seq, 0, [1] * start, decides=False)])
        parts.append(Part(seq, start, [2] * length, decides=True, draft=drafts[i] if drafts else None))
    seen = []
    hook = target.model.register_forward_pre_hook(lambda module, args: seen.append(tuple(args[0].shape)))
    try:
        forward(target, parts, Needs(trees=True))
    finally:
        hook.remove()
        for part in parts:
            target.close(part.seq)
    return seen


def test_sequences_share_a_call():
    assert calls(target(), [1, 1, 1, 1]) == [(4, 1)]
    assert calls(target(), [1, 3, 2], [Draft([1, 2]), None, Draft([1, 2], parents=[-1, -1])]) == [(3, 4)]


def test_long_prompts_have_calls_of_their_own():
    assert calls(target(), [1, SHARED_ROWS + 1, 1]) == [(2, 1), (1, SHARED_ROWS + 1)]


def test_a_long_sequence_shares_with_those_that_are_about_as_long():
    """A line is as wide as the longest one: a short sequence would attend to padding, mostly."""
    assert calls(pico(), [1, 1, 1, 1], starts=[200, 300, 60, 400]) == [(2, 1), (2, 1)]
    assert calls(pico(), [1, 1, 1, 1], starts=[250, 300, 270, 200]) == [(4, 1)]


@pytest.mark.parametrize("arch", ["gemma", "qwen3next"])
def test_models_whose_layers_do_not_keep_all_rows_have_a_call_for_each_sequence(arch):
    assert calls(target(arch), [1, 1]) == [(1, 1), (1, 1)]


def test_rows_of_every_kind_are_as_if_each_sequence_were_alone():
    """Logits, hidden states and final states, with drafts of all shapes and rows given as embeddings."""
    loaded, width = target(), target().info.width
    needs = Needs(trees=True, final=True, hidden={0, 1, 2})
    drafts = [None, Draft([5, 6, 7]), Draft([5, 6, 7], parents=[-1, -1, 1]), Draft([4])]
    texts = [[1, 2, 3], [4], [5, 6], [7, -1, 9, 10, 11]]
    vector = torch.linspace(-1, 1, width, dtype=torch.float64)

    def step(indices):
        seqs = [open_sequence(loaded, {1: vector} if i == 3 else {}) for i in indices]
        parts = [Part(s, 0, texts[i], decides=True, draft=drafts[i]) for i, s in zip(indices, seqs, strict=True)]
        return forward(loaded, parts, needs).output

    together, alone = step(range(4)), [step([i]) for i in range(4)]
    pairs = [(together.logits, [x.logits for x in alone]), (together.final, [x.final for x in alone])]
    pairs += [(together.hidden[i], [x.hidden[i] for x in alone]) for i in (0, 1, 2)]
    for actual, expected in pairs:
        assert torch.allclose(actual, torch.cat(expected), rtol=0, atol=1e-12)


PROMPTS = [
    "def add(a, b):\n    return",
    "one two three one two three one two three one",
    "The",
    "for i in range(10):\n    print(i)\n" * 6,
]
METHODS = {
    "plain": [],
    "ngram": ["ngram"],
    "recycling in trees": [("recycling", {"width": 3})],
    "eagle3 in trees": [("eagle3", {"file": "zoo:pico-eagle3", "width": 3, "p_min": 0.05})],
    "draft-model": [("draft-model", {"file": "zoo:pico-draft"})],
}


@cache
def alone() -> list[list[int]]:
    run = Run(pico(), max_sequences=1)
    return [run.generate(p, max_tokens=24, ignore_eos=True).result.tokens for p in PROMPTS]


@pytest.mark.parametrize("name", METHODS)
def test_texts_of_several_sequences_are_those_of_each_alone(name):
    run = Run(pico(), METHODS[name], max_sequences=4)
    together = run.generate(PROMPTS, max_tokens=24, ignore_eos=True)

    assert [generation.result.tokens for generation in together] == alone()


def test_a_model_that_mixes_lines_of_a_batch_is_found_out_when_it_is_loaded(monkeypatch):
    """Sequences then have calls of their own."""
    forward = transformers.LlamaForCausalLM.forward
    assert target().batches

    def first_only(self, tokens, **options):
        return forward(self, tokens[:1].expand_as(tokens), **options)

    first_only.__signature__ = signature(forward)
    monkeypatch.setattr(transformers.LlamaForCausalLM, "forward", first_only)
    loaded = load(f"transformers:{directory('llama')}", dtype="float64", device="cpu")

    assert loaded.info.trees
    assert not loaded.batches
    assert calls(loaded, [1, 1]) == [(1, 1), (1, 1)]
