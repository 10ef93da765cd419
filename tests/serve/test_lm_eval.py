"""lm-evaluation-harness, with a task of a local file: its scores are those of the model's own rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("lm_eval", reason="needs lm-eval[api]")
pytest.importorskip("tenacity", reason="needs lm-eval[api]")

from spec_core import Run, load

QUESTIONS = [
    {"question": "import", "choices": [" os", " 7 7 7"], "label": 0},
    {"question": "for i in", "choices": [" range(10):", " }}}}"], "label": 0},
    {"question": "def f(x):\n    return", "choices": [" import", " x"], "label": 1},
]
TASK = """
task: mine
dataset_path: json
dataset_kwargs:
  data_files:
    test: {}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: label
target_delimiter: ""
metric_list:
  - metric: acc
"""


def score(run, question, choice):
    """Log-probability of a choice after its question, token by token."""
    tokenizer, vocab = run.target.tokenizer, run.target.info.vocab
    before, whole = tokenizer.encode(question), tokenizer.encode(question + choice)
    total = 0.0
    for at in range(len(before), len(whole)):
        (row,) = run.generate(whole[:at], max_tokens=1, logprobs=vocab).result.logprobs
        total += dict(row.top)[whole[at]]
    return total


@pytest.mark.slow
def test_an_evaluation_has_the_scores_of_the_models_rows(server, tmp_path):
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    load("zoo:pico").tokenizer.backend.save(str(tokenizer / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    data = tmp_path / "data.json"
    data.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS), "utf-8")
    (tmp_path / "mine.yaml").write_text(TASK.format(data), "utf-8")
    model = f"model=any,base_url={server.url}/v1/completions,tokenizer={tokenizer},num_concurrent=2"
    command = ["run", "--model", "local-completions", "--tasks", "mine", "--include_path", str(tmp_path)]
    command += ["--model_args", model, "--log_samples", "--output_path", str(tmp_path / "out")]
    offline = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", *command],
        env={**os.environ, **offline},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    (samples,) = tmp_path.glob("out/**/samples_mine*.jsonl")
    body = [json.loads(line) for line in samples.read_text("utf-8").splitlines()]
    with Run(load("zoo:pico")) as run:
        for sample in body:
            question = sample["doc"]
            scores = [float(answer[0][0]) for answer in sample["resps"]]
            expected = [score(run, question["question"], choice) for choice in question["choices"]]
            assert scores == pytest.approx(expected, abs=1e-4)
