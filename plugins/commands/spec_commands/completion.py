"""Values that a shell completes: names of plugins, models by scheme, files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from spec_core.commands import discover_plugins, read_entry_points
from spec_core.errors import FOREIGN

MODELS = "spec_core.model_names"
"""Entry points of functions that return the names of a scheme's models, by scheme."""


def complete_names(*kinds: str) -> Callable[[Any, Any, str], list[CompletionItem]]:
    """Names of installed plugins of these kinds; after ``+`` of the next method of a chain."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, plus, begun = incomplete.rpartition("+")
        names = sorted({entry.name for entry in discover_plugins(kinds)})
        return [CompletionItem(f"{before}{plus}{name}") for name in names if name.startswith(begun)]

    return complete


def complete_model(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Models of schemes that list theirs, such as ``zoo:pico``; otherwise files."""
    scheme, colon, begun = incomplete.partition(":")
    items = []
    for point in read_entry_points(group=MODELS):
        if colon and point.name == scheme:
            items += [CompletionItem(f"{scheme}:{name}") for name in _names(point) if name.startswith(begun)]
        elif not colon and point.name.startswith(scheme):
            items += [CompletionItem(f"{point.name}:{name}") for name in _names(point)]
    return items if colon else [*items, CompletionItem(incomplete, type="file")]


def _names(point: Any) -> list[str]:
    try:
        return sorted(point.load()())
    except FOREIGN:  # completion prints nothing but words
        return []
