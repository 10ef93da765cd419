"""Gemma 4's assistants against an independent implementation, and as a method."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from spec_kernels.layer_executor import executor_of
from spec_kernels.model.head import spread_logits
from spec_methods.assistant import Assistant
from spec_methods.assistant.layer import Layer

from spec_core import Refused, Request, Run, Sampling, UsageError, load, prepare
from spec_core.testing import DrafterConformance
from spec_core.toolkit import cache_reader
from tests.support.assistants import tiny_assistant, tiny_gemma4
from tests.support.golden import golden
from tests.support.small_models import tiny_gguf
from tests.targets.drive import forward, part, sequence
from tests.targets.gate import finish_checked

TARGETS = ("gemma4-e", "gemma4-k")
TOLERANCE = 2e-4
"""Of logits; those of the golden vectors and of other implementations differ by as much."""
FORMS = {"hf": "", "model-f32.gguf": "gguf."}
"""What is read, and the vectors that belong to it: windows and the output matrix differ."""


def open_target(name: str, kernels: str, **options: str):
    return load(golden(name) / "hf", dtype="float32", device="cpu", kernels=kernels, cache_dtype="float32", **options)


def prefill(target, tokens):
    """A sequence whose slot holds the rows of these tokens."""
    seq = sequence(target, tokens)
    forward(target, part(seq, 0, tokens))
    return seq


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("form", [*FORMS, "position_minus_1"])
@pytest.mark.parametrize("name", TARGETS)
def test_a_draft_is_that_of_the_original_implementation(name, form, kernels):
    """States, logits and tokens of five steps over the target's own cache."""
    check_drafts(open_target(name, kernels), name, form, ("ctx20", "ctx33"))


def check_drafts(target, name, form, cases) -> None:
    """States, logits and tokens of five steps after each context."""
    path = golden(f"gemma4-assistant/{name}")
    file = load(path / (form if form in FORMS else "hf"), weights=False)
    assert file.misfit(target) is None
    expected, kind = load_file(path / "golden.safetensors"), FORMS.get(form, f"{form}.")
    reader = cache_reader(target)
    layer = Layer(file, executor_of(target), reader, target.info.layers, form != "position_minus_1")
    for case in cases:
        of = lambda part, case=case: expected[f"{case}.{part}"]
        tokens, token = of("tokens").tolist(), int(of("id_last"))
        seq = prefill(target, tokens)
        memory = layer.memory()
        memory.take(0, [*tokens[1:], token], of("hidden")[-1:], {})
        memory.rows = reader.rows(seq, len(tokens))
        drafted, part = [], memory.pairs()
        for step in range(5):
            state, rows = (m.cpu() for m in layer.forward([part]))
            logits, reference = spread_logits(rows, layer.ids, layer.vocab)[0], of(f"{kind}draft_logits")[step]
            finite = torch.isfinite(logits)
            assert (logits[finite] - reference[finite]).abs().max() <= TOLERANCE
            assert finite.all() or (reference[~finite] == reference[finite].min() - 1).all()
            assert (state[0] - of(f"{kind}draft_projected")[step]).abs().max() <= TOLERANCE
            drafted.append(int(logits.argmax()))
            part = memory.own(step + 1, drafted[-1], state)
        assert drafted == of(f"{kind}draft_tokens").tolist()


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("name", TARGETS)
def test_the_reader_shows_the_keys_and_values_of_the_original_implementation(name, kernels):
    target = open_target(name, kernels)
    expected = load_file(golden(f"gemma4-assistant/{name}") / "golden.safetensors")
    tokens = expected["ctx20.tokens"].tolist()
    seq, file = prefill(target, tokens), load(golden(f"gemma4-assistant/{name}") / "hf", weights=False)
    rows = cache_reader(target).rows(seq, len(tokens))

    for block in file.head.blocks(target):
        kind = "sliding_attention" if cache_reader(target).heads(block).window else "full_attention"
        rows_of_theirs = expected[f"ctx20.shared_kv.{kind}.key"], expected[f"ctx20.shared_kv.{kind}.value"]
        for got, want in zip(rows.read(block), rows_of_theirs, strict=True):
            assert (got[:, -want.shape[1] :] - want).abs().max() <= TOLERANCE


def requests(temperature: float) -> list[Request]:
    sampling = Sampling(temperature=temperature)
    prompts = ([3, 1, 4], [1, 5, 9, 2, 6, 5, 3, 5, 8, 9], [7], [3, 1, 4, 1])
    return [Request(p, max_tokens=24, seed=i, sampling=sampling, name=f"{i}") for i, p in enumerate(prompts)]


@pytest.mark.repeats(4)
@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("shared", [True, False])
def test_texts_equal_plain_decoding(shared, temperature, slots, kernels):
    """After every step the target's cache equals that of a fresh forward."""
    target = load(tiny_gemma4(shared), device="cpu", kernels=kernels)
    file = str(tiny_assistant(shared, ordered=shared))
    run = Run(target, [("assistant", {"file": file, "draft_max": 7, "p_min": 0.0})], max_sequences=slots)
    steps = []
    run.observe(steps.append)

    texts = [result.tokens for result in finish_checked(run, requests(temperature))]

    assert texts == [Run(target).generate(request).result.tokens for request in requests(temperature)]
    lengths = {len(p.full_verdict.path) for step in steps for p in step.parts if p.drafted}
    assert len(lengths) > 1 and max(lengths) > 1


class TestAssistant(DrafterConformance):
    def make(self):
        return Assistant(file=str(tiny_assistant()), p_min=0.0, draft_max=3)

    def target(self):
        return load(tiny_gemma4(), device="cpu", context=128)

    def prompts(self):
        return [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2], [7]]


def test_it_runs_one_row_for_a_drafted_token_and_none_beside():
    """A prompt, a reused prefix and a rejected draft cost it nothing."""
    run = Run(load(tiny_gemma4(), device="cpu"), [("assistant", {"file": str(tiny_assistant()), "p_min": 0.0})])
    counts = []
    run.observe(
        lambda step: (
            counts.append((step.forwards["assistant"], step.rows["assistant"], sum(p.drafted for p in step.parts)))
            if "assistant" in step.forwards
            else None
        )
    )
    for prompt in ([3, 1, 4] * 20, [3, 1, 4] * 20 + [5]):
        run.generate(Request(prompt, max_tokens=16)).result

    assert len(counts) > 4
    assert all(forwards == rows == drafted for forwards, rows, drafted in counts)


@pytest.mark.parametrize(
    ("target", "file", "message"),
    [
        (lambda: tiny_gemma4(True), lambda: tiny_gemma4(True), "is no draft head"),
        (lambda: golden("gemma4-e") / "hf", lambda: tiny_assistant(), "for a model of width 32 with 300 tokens"),
        (
            lambda: tiny_gguf(),
            lambda: tiny_assistant(),
            "reads 1 key heads of 8 in blocks with a window, .* no such block",
        ),
        (
            lambda: golden("gemma4-k") / "hf",
            lambda: golden("gemma4-assistant/gemma4-e") / "hf",
            "for a model of width 44 with 384 tokens, hf has 52 and 384",
        ),
    ],
    ids=["a model", "another size", "another family", "another model"],
)
def test_an_assistant_that_does_not_fit_is_refused_by_name(target, file, message):
    with pytest.raises(Refused, match=message):
        prepare(target(), [("assistant", {"file": str(file())})])


def test_an_assistant_is_no_target():
    with pytest.raises(UsageError, match="this is a draft head, not a model") as refused:
        load(tiny_assistant())
    assert "--method assistant=FILE" in refused.value.hint
    with pytest.raises(Refused, match="not a model"):
        prepare(tiny_assistant(), ["ngram"])


def test_a_target_that_shows_no_cache_is_refused_before_weights_are_read():
    target = load(tiny_gemma4(), device="cpu", weights=False)
    target.cache_reader = None
    with pytest.raises(Refused, match="shows none of its cache"):
        Run(target, [("assistant", {"file": str(tiny_assistant())})])


def edit_assistant(tmp_path, config=(), text=(), tensors=(), ordered=True):
    """A copy of a tiny assistant with other values in its config and other tensors."""
    path, source = tmp_path / "assistant", tiny_assistant(ordered=ordered)
    path.mkdir()
    raw = json.loads((source / "config.json").read_text("utf-8")) | dict(config)
    if isinstance(raw["text_config"], dict):
        raw["text_config"] |= dict(text)
    (path / "config.json").write_text(json.dumps(raw), "utf-8")
    stored = load_file(source / "model.safetensors")
    save_file({k: v for k, v in (stored | dict(tensors)).items() if v is not None}, path / "model.safetensors")
    return path


ORDER, CENTROIDS = "masked_embedding.token_ordering", "masked_embedding.centroids.weight"


@pytest.mark.parametrize(
    ("config", "text", "tensors", "message"),
    [
        ({"backbone_hidden_size": 2**31}, {}, {}, "backbone_hidden_size = '2147483648'"),
        ({"backbone_hidden_size": 48}, {}, {}, r"pre_projection.weight' has shape \[32, 64\], \[32, 96\] was needed"),
        ({"text_config": None}, {}, {}, "text_config = None"),
        ({"num_centroids": 7}, {}, {}, "6 of 7 clusters of 300 tokens"),
        ({"num_centroids": 0}, {}, {}, "num_centroids = '0'"),
        ({"centroid_intermediate_top_k": 21}, {}, {}, "21 of 20 clusters"),
        ({}, {}, {ORDER: torch.zeros(300, dtype=torch.int64)}, "does not list every token once"),
        ({}, {}, {ORDER: torch.arange(300) + 2**40}, "does not list every token once"),
        ({}, {}, {ORDER: torch.rand(300)}, r"is F32 \[300\], I64 \[300\] was needed"),
        ({}, {}, {CENTROIDS: torch.ones(20, 9)}, r"'centroids.weight' has shape \[20, 9\]"),
        ({}, {"sliding_window": -3}, {}, "sliding_window = '-3'"),
        ({}, {"layer_types": ["linear"] * 4}, {}, "layers of type 'linear'"),
        ({}, {"per_layer_config": {"0": {"head_dim": 16}}}, {}, "per_layer_config"),
        (
            {},
            {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8},
            {},
            "experts",
        ),
        ({}, {}, {"post_projection.weight": None}, "'nextn.post_projection.weight' is missing"),
    ],
)
def test_hostile_assistants_are_refused_by_name(config, text, tensors, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        load(edit_assistant(tmp_path, config, text, tensors), weights=False)
