"""Draft heads against vectors of the original implementations, with ``spec draft``."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file
from spec_cli.main import run
from spec_kernels import native

from spec_core import load
from tests.support.golden import golden

RATIO = 5e-5
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
    assert run([str(word) for word in (*words, *options)]) == 0
    return load_file(out)
