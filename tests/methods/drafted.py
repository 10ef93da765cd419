"""Draft heads against vectors of the original implementations, with ``spec draft``."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from spec_cli.main import run_command
from spec_kernels import native
from spec_kernels.layer_executor import executor_of
from spec_kernels.model.head import spread_logits, tokens_of
from spec_methods.block_drafters.layers import Layers
from spec_methods.block_drafters.sequential import sequential_part

from spec_core import Target, load
from tests.support.golden import golden

RATIO = 5e-5
TOLERANCE = 2e-5
"""Of logits of block drafters; golden vectors differ between implementations by as much."""
TARGETS = {"llama": "llama", "qwen3": "qwen3", "qwen35": "qwen35"}


def check_published(name: str, file: str, context: str, kernels: str, out: Path) -> None:
    """Tokens are identical, logits differ by at most RATIO of their range. name: such as ``eagle3/llama-d2t``."""
    kind, of = name.split("/")
    head, expected = golden(name) / file, load_file(golden(name) / "golden.safetensors")
    tokens = [*expected[f"{context}.tokens"].tolist(), int(expected[f"{context}.id_last"])]
    drafts, logits = expected[f"{context}.draft_tokens"], expected[f"{context}.draft_logits"]
    target = golden(TARGETS[of.split("-")[0]]) / "model-f32.gguf"
    actual = draft_file(target, f"{kind}={head}", tokens, len(drafts), kernels, out)

    d2t = load(head, weights=False).head.d2t
    rows = actual["logits"] if d2t is None else actual["logits"][:, d2t]
    assert actual["tokens"].tolist() == drafts.tolist()
    assert (rows - logits).abs().max() <= RATIO * (logits.max() - logits.min())


def draft_file(target: Path, method: str, tokens: list[int], n: int, kernels: str, out: Path):
    """The file that the command writes: tokens [n] and logits [n, V]."""
    words = ["draft", "-m", target, "--method", method, "--tokens", ",".join(map(str, tokens)), "-n", n, "--out", out]
    options = ["--device", "cpu", "--dtype", "float32", "-o", f"kernels={kernels}", "-o", "cache_dtype=float32"]
    if kernels == "native" and (reason := native.problem()):
        pytest.skip(reason)
    assert run_command([str(word) for word in (*words, *options)]) == 0
    return load_file(out)


def check_block(name: str, form: str, target: Target, tolerance: float) -> None:
    """Base logits, states, logits after the sequential part, confidence and tokens, from the golden features."""
    expected, file = load_file(golden(name) / "golden.safetensors"), load(golden(name) / form, weights=False)
    trunk = executor_of(target)
    layers, sequential = Layers(file, trunk), sequential_part(file, trunk)
    for case in ("ctx20", "ctx33"):
        of = {key.removeprefix(f"{case}."): value for key, value in expected.items() if key.startswith(case)}
        context = layers.context()
        context.take(0, of["features"])
        layers.learn([context])
        context.token = before = int(of["id_last"])
        (rows,), (states,) = layers.blocks([context], [layers.longest])
        tokens = []
        chances = of.get("confidence", torch.ones(len(rows)))
        for row, state, logits, chance in zip(rows, states, of["draft_logits"], chances, strict=True):
            [after] = sequential.follow([(before, row, state)])
            logits_of_all = spread_logits(logits[None], tokens_of(file.head, "cpu"), file.head.vocab)[0]
            finite = torch.isfinite(logits_of_all)
            assert (after.logits[finite] - logits_of_all[finite]).abs().max() <= tolerance
            assert not torch.isfinite(after.logits[~finite]).any()
            assert after.chance is None or after.chance == pytest.approx(float(chance), abs=tolerance)
            before = int(after.logits.argmax())
            tokens.append(before)

        assert (rows - of["base_logits"]).abs().max() <= tolerance
        assert (states - of["block_hidden"][-len(states) :]).abs().max() <= tolerance
        assert tokens == of["draft_tokens"].tolist()
        assert (after.chance is None) == (file.head.confidence == 0)
