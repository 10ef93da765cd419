"""AIPerf and guidellm run as the page about the server says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs transformers, which writes the tokenizer")

import transformers
from spec_zoo import path

from spec_core import load_tokenizer
from tests.support.pages import blocks

PAGE = Path(__file__).parents[2] / "docs" / "serve-load.md"


@pytest.fixture(scope="module")
def inputs_folder(tmp_path_factory):
    """The folder in which ``inputs.py`` of the page ran, for a model that is installed everywhere."""
    (script,) = [block.text for block in blocks(PAGE) if block.file == "inputs.py"]
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "inputs.py").write_text(script.replace('"smollm2"', '"pico"'), "utf-8")
    subprocess.run([sys.executable, "inputs.py"], cwd=folder, check=True, capture_output=True, timeout=120)
    return folder


def test_the_tokenizer_that_tools_count_with_is_the_model_s(inputs_folder):
    theirs = transformers.AutoTokenizer.from_pretrained(inputs_folder / "tokenizer")
    tokenizer = load_tokenizer("gguf", path("pico"))
    texts = ["def add(a, b):\n    return a + b\n", "  déjà vu: 12345 \t{}", "<|im_start|>user\nHello<|im_end|>\n"]

    assert [theirs.encode(text) for text in texts] == [
        tokenizer.encode(text, bos=False, special=True) for text in texts
    ]
    assert theirs.chat_template == tokenizer.chat_template


def test_every_prompt_has_a_text_and_a_length(inputs_folder):
    lines = (inputs_folder / "prompts.jsonl").read_text("utf-8").splitlines()
    asked = [json.loads(line) for line in lines]

    assert len(asked) == 40 and all(prompt["text"].strip() and prompt["output_length"] == 64 for prompt in asked)
