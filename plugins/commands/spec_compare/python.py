"""Comparisons from Python and notebooks: run one, read one, and have its figures as a data frame."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from spec_commands import common

from spec_compare.exports import tables
from spec_compare.figures.outcome import Outcome, recompute_outcome
from spec_compare.records.reading import read_results
from spec_compare.servers.options import SERVER_FLAGS
from spec_core.errors import UsageError

if TYPE_CHECKING:
    import pandas

Prompts = str | Path | Iterable[str | Mapping[str, Any]]
"""A file of ``--prompts``, or texts and objects of its lines."""


def compare(
    model: str | Path,
    methods: Iterable[str],
    prompts: Prompts | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Outcome:
    """Compare methods with plain decoding, as ``spec compare`` does.

    methods: as in ``--method``. prompts: None for the model's own. out: a directory for the results;
    an interrupted run continues. options: of the command, such as ``max_tokens=128``, ``repeats=3`` or ``sweep=[...]``.

    Differing texts are in ``differences``. Raises UsageError, Refused.
    """
    from spec_compare.measuring.comparison import run_comparison

    with prompt_file(prompts) as file:
        words = ["-m", str(model), *(word for method in methods for word in ("--method", method))]
        words += [] if file is None else ["--prompts", str(file)]
        return run_comparison(None if out is None else Path(out), flags_of([*words, *option_words(options)]))


def read_outcome(folder: str | Path, level: float | None = None) -> Outcome:
    """The outcome of results in a directory, recomputed from their records. level: of the intervals.

    Raises UsageError.
    """
    return recompute_outcome(read_results(Path(folder)), level)


def to_frame(outcome: Outcome, texts: bool = False) -> pandas.DataFrame:
    """A row per contender and family, or per text, with the columns of ``export --csv`` and ``--texts``.

    Raises UsageError if pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise UsageError(
            "a data frame needs pandas, which is not installed", hint="pip install 'spec-core[frames]'"
        ) from error
    return pandas.DataFrame(tables.text_rows(outcome) if texts else list(tables.rows(outcome)))


@contextmanager
def prompt_file(prompts: Prompts | None) -> Iterator[Path | None]:
    """The file of the prompts; of texts, one that lasts as long as the block."""
    if prompts is None or isinstance(prompts, str | Path):
        yield None if prompts is None else Path(prompts)
        return
    with TemporaryDirectory() as folder:
        file = Path(folder) / "prompts.jsonl"
        lines = [{"prompt": one} if isinstance(one, str) else dict(one) for one in prompts]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        yield file


def option_words(options: Mapping[str, Any]) -> Iterator[str]:
    """The options as words of the command line; a list is an option that is repeated."""
    for name, value in options.items():
        flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, list | tuple) else [value]:
            if one is True:
                yield flag
            elif one is False:
                yield f"--no-{name.replace('_', '-')}"
            elif one is not None:
                yield from (flag, str(one))


def flags_of(words: list[str]) -> dict[str, Any]:
    """The values of the command's options. Raises UsageError for an unknown one, and for options that only print."""
    import click

    from spec_compare.command import compare as command

    try:
        flags = dict(command.make_context("compare", words).params)
    except click.UsageError as error:
        raise UsageError(error.format_message(), hint="spec compare --help lists the options") from error
    if common.pop_flags(flags, *SERVER_FLAGS)["urls"]:
        raise UsageError("url is not an option of a comparison from Python", hint="run spec compare --url, and read it")
    for name in PRINTED:
        if flags.pop(name) not in (None, False, "local"):
            raise UsageError(f"{name} is not an option of a comparison from Python", hint="write it from the outcome")
    return flags


PRINTED = ("out", "executor", "ray_address", "rerun", "report", "against", "wide", "as_json")
"""Options of the terminal."""
