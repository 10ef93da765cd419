"""What a comparison is to measure: settings, contenders, prompts and sizes, from the flags of the command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
from spec_commands import common
from spec_commands.common import Settings

from spec_compare.inputs import golden as golden_lengths
from spec_compare.inputs import sources
from spec_compare.inputs.sized import read_lengths, size_prompts
from spec_compare.inputs.sources import PromptSource
from spec_compare.measuring import prompt_source
from spec_compare.measuring.entries import ContenderEntry, entries
from spec_compare.measuring.shard import ALL_WORK, Shard
from spec_core import Target

PROMPT_FLAGS = ("file", "suite", "chat")
PROMPT_FILTERS = ("families", "limit")
SIZE_FLAGS = ("repeats", "batch", "reuse_turns", "trace", "prompt_tokens")
CONTENDER_FLAGS = ("contenders_file", "sweeps", "dtypes", "targets", "golden", "thinking")
ACCOUNT_FLAGS = ("oracles", "bounds", "costs", "exact", "no_prompts")
Choose = Callable[[Iterable[Target]], PromptSource]
"""The chosen prompts: of a file, or of the first of the models that has some."""


@attrs.frozen(eq=False)
class Experiment:
    """A comparison before anything is loaded.

    sizes: fields of ``RequestSettings`` that are no settings. accounts: flags on costs, oracles and explanations.
    lengths: of prompts, with ``--lengths``.
    """

    settings: Settings
    entered: list[ContenderEntry]
    choose: Choose
    sizes: dict[str, Any]
    accounts: Mapping[str, Any]
    lengths: tuple[int, ...] = ()


def from_flags(flags: dict[str, Any], shard: Shard = ALL_WORK) -> Experiment:
    """The experiment that the flags of the command describe, or a part of it. Raises UsageError."""
    groups = (PROMPT_FILTERS, SIZE_FLAGS, PROMPT_FLAGS, CONTENDER_FLAGS, ACCOUNT_FLAGS)
    filters, sizes, place, named, accounts = (common.pop_flags(flags, *names) for names in groups)
    lengths = read_lengths(flags.pop("lengths"), sizes["prompt_tokens"])
    settings = common.settings_of(flags)

    def filtered_source(source: PromptSource) -> PromptSource:
        chosen = prompt_source.choose_prompts(source.prompts, source.name, **filters)
        return attrs.evolve(source, prompts=size_prompts(chosen, lengths))

    own_source = None if place["file"] is place["suite"] is None else filtered_source(prompt_source_of((), **place))

    def choose(targets: Iterable[Target]) -> PromptSource:
        return own_source or filtered_source(prompt_source_of(targets, **place))

    return Experiment(settings, shard.of(listed_contenders(settings, **named)), choose, sizes, accounts, tuple(lengths))


def number_of_contenders(flags: Mapping[str, Any]) -> int:
    """Contenders that the flags name, without plain decoding."""
    return len(from_flags(dict(flags)).entered)


def listed_contenders(
    settings: Settings,
    contenders_file: Path | None,
    sweeps: Iterable[str],
    dtypes: str | None,
    targets: Iterable[str],
    golden: Path | None,
    thinking: str,
) -> list[ContenderEntry]:
    """The contenders of the command, of its file, and of its sweeps."""
    lengths = None if golden is None else golden_lengths.read_golden(golden, thinking).rule_settings
    swept = [*sweeps, *([] if dtypes is None else [f"dtype={dtypes}"])]
    return entries(settings, contenders_file, swept, targets, lengths)


def prompt_source_of(targets: Iterable[Target], file: Path | None, suite: str | None, chat: bool) -> PromptSource:
    """The prompts that were asked for: of a file, a directory or a suite, else of the first model that has some."""
    return (
        sources.suite(suite, chat, file)
        if suite is not None
        else sources.source(file or prompt_source.shipped_file(targets), chat)
    )
