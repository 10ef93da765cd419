"""The ``llm`` program, through its OpenAI-compatible models, without special code."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("llm", reason="needs llm")

from spec_core import Run, load

MODELS = """
- model_id: pico
  model_name: zoo:pico
  api_base: "{}/v1"
  api_key_name: none
"""


@pytest.fixture
def ask(server, tmp_path):
    (tmp_path / "extra-openai-models.yaml").write_text(MODELS.format(server.url), "utf-8")

    def run(*arguments):
        environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "LLM_LOAD_PLUGINS": ""}
        command = [sys.executable, "-m", "llm", "-m", "pico", "--key", "none", "-o", "max_tokens", "12", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    return run


@pytest.mark.parametrize("how", [["--no-stream"], []], ids=["whole", "streamed"])
def test_an_answer_is_the_text_of_a_run_alone(how, ask):
    answer = ask("def add(a, b):", *how)
    with Run(load("zoo:pico")) as run:
        text = run.generate([{"role": "user", "content": "def add(a, b):"}], max_tokens=12).result.text

    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == text.strip()
