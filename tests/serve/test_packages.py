"""Texts of the packages outside of this distribution, through the server: those of plain decoding, seven at once."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from types import ModuleType

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_core import Run, load
from tests.support.installed import ROOT
from tests.support.served import serving

PROMPTS = ["def add(a, b):\n", "x = [1, 1, 1, 1, "]
REQUESTS = [
    {"prompt": PROMPTS[i % 2], "max_tokens": 24, "seed": i, "temperature": 0.8 * (i % 3 > 0), "logprobs": 0}
    for i in range(7)
]


def read_module(package: str, test: bool = False) -> ModuleType:
    """A module of a package in ``tests/out_of_tree``."""
    folder = str(ROOT / "tests" / "out_of_tree" / f"spec-{package}")
    if folder not in sys.path:
        sys.path.append(folder)
    name = package.replace("-", "_")
    return import_module(f"test_{name}" if test else f"spec_{name}")


METHODS = {
    "layerskip": lambda folder: read_module("layerskip").LayerSkip(exit=6),
    "swift": lambda folder: read_module("swift").Swift(share=0.2),
    "windowed": lambda folder: read_module("windowed").Windowed(window=12, sinks=2),
    "lookahead": lambda folder: read_module("lookahead").Lookahead(),
    "pass": lambda folder: read_module("pass").Pass(
        read_module("pass", test=True).write_vectors(folder / "vectors.safetensors", load("zoo:pico"), [7, 8])
    ),
    "orthrus": lambda folder: read_module("orthrus").Orthrus(read_module("orthrus", test=True).write_weights(folder)),
    "uno": lambda folder: read_module("uno").Uno(read_module("uno", test=True).write_adapter(folder), block=4),
    "nemotron-labs": lambda folder: read_module("nemotron-labs").NemotronLabs(
        read_module("nemotron-labs", test=True).write_adapter(folder), block=4, mask=0
    ),
    "sequoia": lambda folder: read_module("sequoia").Sequoia("zoo:pico-draft"),
}


def ask(server, body: dict) -> str:
    answer = server.post("/v1/completions", body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def served_texts(methods=(), **more) -> tuple[list[str], int]:
    with serving("zoo:pico", methods, **more) as server, ThreadPoolExecutor(len(REQUESTS)) as pool:
        texts = list(pool.map(lambda body: ask(server, body), REQUESTS))
        return texts, server.engine.run.stats.report()["drafted"]


@pytest.fixture(scope="module")
def plain() -> list[str]:
    run, texts = Run("zoo:pico"), []
    for body in REQUESTS:
        fields = {name: value for name, value in body.items() if name != "logprobs"}
        texts.append(run.generate(fields.pop("prompt"), **fields).result.text)
    return texts


@pytest.mark.repeats(3)
@pytest.mark.parametrize("package", METHODS)
def test_served_texts_are_those_of_plain_decoding(package, tmp_path, plain):
    texts, drafted = served_texts([(package, METHODS[package](tmp_path))])

    assert drafted > 0
    assert texts == plain


def test_guided_texts_are_the_same_with_drafts():
    """The scale of guidance and the negative prompt are values of the request."""
    guidance = read_module("guidance").Guidance
    guided, _ = served_texts(rule=("guidance", guidance(scale=2.0)))
    drafted, count = served_texts(["ngram"], rule=("guidance", guidance(scale=2.0)))

    assert count > 0
    assert drafted == guided
