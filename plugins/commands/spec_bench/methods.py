"""Time that named methods add to a step, by the length of their drafts: Td(k)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from spec_commands import common
from spec_commands.common import Settings
from spec_commands.prompts import Prompt, read_prompt_file
from spec_costs import drafting
from spec_costs.drafting import Lengths
from spec_costs.file import DraftCost

from spec_core import Request, Run, Sampling, Target
from spec_core.commands import split_methods
from spec_core.errors import UsageError

TOKENS = 128
"""Max tokens of each text that is generated to measure drafts."""


def chains(settings: Settings) -> dict[str, list[str]]:
    """{--method: its methods, one or a chain}."""
    return {spec: split_methods(spec, common.installed_names()) for spec in settings["methods"]}


def measure_methods(
    target: Target, settings: Settings, prompts: Sequence[Prompt], repeats: int, sampling: Sampling
) -> list[DraftCost]:
    """Measure every named method on texts of these prompts."""
    longest = settings["draft_max"]
    requests = [Request(p.given, max_tokens=TOKENS, sampling=sampling, seed=p.seed(0), name=p.id) for p in prompts]
    costs = []
    for spec, methods in chains(settings).items():
        times = drafting.measure_drafting(_maker(target, settings, methods), requests, longest, repeats)
        costs += [DraftCost(spec, k, statistics.median(each), len(each)) for k, each in times.items()]
    return costs


def _maker(target: Target, settings: Settings, methods: list[str]) -> Callable[[Lengths], Run]:
    return lambda lengths: common.run_of(target, settings, [("lengths", lengths), *methods], max_sequences=1)


def prompts(target: Target, file: Path | None) -> list[Prompt]:
    """Prompts of a file, or else of the model. Raises UsageError if there are none."""
    path = file or target.info.prompts
    if path is None:
        raise UsageError(
            f"--method needs texts, and {target.info.name} ships no prompts", hint="pass --prompts FILE.jsonl"
        )
    return read_prompt_file(Path(path))
