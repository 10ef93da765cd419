"""Whole numbers of a request, of any size: accepted and answered, or refused by name when it is submitted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import attrs
import numpy as np
import pytest
import torch
from spec_cli.main import run_command as run_command
from toys import DENSE, dense, drafter, plain, requests, texts

from spec_core import Request, Run, Sampling, UsageError
from spec_core.testing import ToyTarget
from tests.support.small_models import tiny_gguf

MODEL = str(tiny_gguf(0))
SIZES = {
    "-2^63-1": -(2**63) - 1,
    "-1": -1,
    "2^31": 2**31,
    "2^32": 2**32,
    "2^63-1": 2**63 - 1,
    "2^63": 2**63,
    "2^64": 2**64,
    "10^400": 10**400,
    "10^5000": 10**5000,  # more digits than Python writes
    "True": True,
    "nan": float("nan"),
    "inf": float("inf"),
}
NEIGHBOUR = requests(1, 8)[0]
TARGET = {**DENSE, "context": 40}
INSIDE = {
    "prompt": lambda n: [1, n],
    "stop_tokens": lambda n: [n],
    "embeds": lambda n: {n: torch.zeros(ToyTarget(**DENSE).info.width)},
    "logit_bias": lambda n: {n: 1.0},
    "prediction": lambda n: [n],
}
"""Fields with whole numbers, and a function that sets one of them."""


def fields() -> Iterator[tuple[type, str]]:
    """Every field of a request that is a whole number, or holds some."""
    for table in (Request, Sampling):
        for name, kind in get_type_hints(table).items():
            if name in INSIDE or re.search(r"\bint\b", str(kind)):
                yield table, name


def create(table: type, name: str, value: Any) -> Request:
    value = INSIDE[name](value) if name in INSIDE else value
    if table is Sampling:
        sampling = Sampling(**{"temperature": 0.8, name: value})
        return Request([1, 2], max_tokens=3, sampling=sampling)
    return Request(**{"prompt": [1, 2], "max_tokens": 3, name: value})


def test_every_field_is_known_here():
    """New fields are found by their type; those with nested numbers are listed in ``INSIDE``."""
    names = {name for _, name in fields()}

    assert names >= {"prompt", "max_tokens", "seed", "stop_tokens", "draft_max", "embeds", "offset", "noise_stream"}
    assert names >= {"top_k", "logit_bias", "logprobs"}
    whole = {f.name for table in (Request, Sampling) for f in attrs.fields(table) if type(f.default) is int}
    assert whole <= names


@pytest.mark.parametrize("on_error", ["raise", "isolate"])
@pytest.mark.parametrize(("table", "name"), list(fields()), ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_a_number_is_answered_or_refused_and_its_neighbour_is_plain(table, name, on_error):
    """The neighbour runs already, and its text is plain decoding's; nothing but UsageError comes out of ``submit``."""
    for size, value in SIZES.items():
        run = Run(ToyTarget(**TARGET), [drafter("chains", texts([NEIGHBOUR], **TARGET))], on_error=on_error)
        beside = run.submit(NEIGHBOUR)
        run.step()
        try:
            seq = run.submit(create(table, name, value))
        except UsageError as error:
            seq = None
            assert error.reason and error.hint and len(str(error)) < 300, (size, name)
        while run.busy:
            run.step()

        assert run.take(beside).tokens == plain(NEIGHBOUR, **TARGET).tokens, (size, name)
        assert seq is None or run.take(seq).finish_reason in ("length", "stop"), (size, name)


@pytest.mark.parametrize(("table", "name"), list(fields()), ids=lambda x: x if isinstance(x, str) else x.__name__)
@pytest.mark.parametrize("size", ["-2^63-1", "2^64", "10^5000"])
def test_a_number_that_is_out_of_range_is_refused_by_its_name(table, name, size):
    """With the field, what was found, and the range; in a list of prompts also which of them."""
    with pytest.raises(UsageError) as refused:
        dense([]).submit(create(table, name, SIZES[size]))

    text = f"{refused.value.reason} {refused.value.hint}"
    words = {"prompt": "prompt token", "stop_tokens": "stop token", "embeds": "embedding", "logit_bias": "logit bias"}
    words["prediction"] = "prediction token"
    assert words.get(name, name) in text
    size_text = "bits" if size == "10^5000" else str(SIZES[size])
    assert size_text in text
    assert any(bound in text for bound in ("48", "0 to", "the prompt has", "between -"))


@pytest.mark.parametrize("name", ["top_k", "logprobs", "max_tokens", "draft_max"])
def test_a_large_count_is_no_limit(name):
    """``sys.maxsize`` means all."""
    asked = {"max_tokens": 4, "temperature": 0.8, name: 2**63 - 1, **({} if name == "logprobs" else {"logprobs": 2})}
    result = Run(ToyTarget(context=40)).generate([1, 2], **asked).result

    assert result.finish_reason == "length"
    assert len(result.tokens) == (38 if name == "max_tokens" else 4)
    assert len(result.logprobs[0].top) == (48 if name == "logprobs" else 2)


@pytest.mark.parametrize("number", [np.int64(3), np.uint64(3), torch.tensor(3)])
def test_other_kinds_of_whole_numbers_are_taken(number):
    assert len(dense([]).generate([1, 2], max_tokens=number, top_k=number, seed=number).result.tokens) == 3


LARGE, LONGER = "1" + "0" * 400, "1" + "0" * 5000
COMMANDS = {
    "top_k": ["--top-k"],
    "max_tokens": ["-n"],
    "seed": ["--seed"],
    "logprobs": ["--json", "--logprobs"],
    "stop token": ["--stop-token"],
    "prompt token": ["--tokens"],
}


@pytest.mark.parametrize("size", [str(2**63), LARGE, LONGER], ids=["2^63", "10^400", "10^5000"])
@pytest.mark.parametrize("name", COMMANDS)
def test_the_program_refuses_without_a_traceback(name, size, capsys):
    """Exit code 2 and a message; a seed of 2^63 is one of 64 bits."""
    prompt = [] if name == "prompt token" else ["-p", "x"]
    code = run_command(["generate", "-m", MODEL, "-n", "2", *prompt, *COMMANDS[name], size])

    output = capsys.readouterr().err
    assert code == (0 if (name, size) == ("seed", str(2**63)) else 2)
    assert code == 0 or name in output or "not a valid integer" in output or "must be token ids" in output
    assert "Traceback" not in output


@pytest.mark.parametrize("size", [LARGE, LONGER], ids=["10^400", "10^5000"])
def test_files_of_prompts_texts_to_score_and_settings_are_refused_likewise(size, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.jsonl").write_text(f'{{"tokens": [1, {size}]}}')
    (tmp_path / "set.toml").write_text(f"top_k = {size}")
    commands = [
        ["generate", "-m", MODEL, "-n", "2", "--prompts", "prompts.jsonl"],
        ["score", "-m", MODEL, "--tokens", f"1,{size}", "--out", "out.safetensors"],
        ["generate", "-m", MODEL, "-n", "2", "-p", "x", "--config", "set.toml"],
    ]

    assert [run_command(command) for command in commands] == [2, 2, 2]
    assert "Traceback" not in capsys.readouterr().err
