"""Help of commands: options in groups with their defaults, every description whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import click

from spec_core.commands import TextSettings, core_fields

OTHER = "Options"
"""The group of options that belong to no other."""
SHARED: Mapping[str, tuple[str, ...]] = {
    "Prompt": ("prompt", "file", "tokens", "chat", "messages", "system", "many", "images"),
    "Model": ("model", "device", "dtype", "threads", "context"),
    "Methods": ("methods", "rule", "rollback", "control"),
    "Text": (
        *(field.name for field in attrs.fields(TextSettings)), "logit_bias", "logprobs", "stop", "stop_tokens",
        "ignore_eos", "json_schema", "regex", "grammar", "open_objects",
    ),
    "Settings": ("options", "config"),
}  # fmt: skip
"""Groups of the options that commands share, by name, in the order of the help."""


class GroupedHelp(click.Command):
    """A command whose help has its options in groups, each with the default that its setting has.

    groups: of the command's own options, before the shared ones.
    """

    def __init__(self, *args: Any, groups: Mapping[str, tuple[str, ...]] | None = None, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.groups = {**(groups or {}), **SHARED}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records: dict[str, list[tuple[str, str]]] = {title: [] for title in (*self.groups, OTHER)}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                records[self._group_of(parameter)].append((record[0], plain_text(record[1]) + default_of(parameter)))
        for title, lines in records.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        text, self.help = self.help, plain_text(self.help or "")
        super().format_help_text(ctx, formatter)
        self.help = text

    def _group_of(self, parameter: click.Parameter) -> str:
        return next((title for title, names in self.groups.items() if parameter.name in names), OTHER)


class Command(GroupedHelp):
    """A command with grouped help."""


class Group(GroupedHelp, click.Group):
    """A group of commands with grouped help, which lists them with their whole first sentences."""

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        commands = [(name, self.get_command(ctx, name)) for name in names]
        with formatter.section("Commands"):
            formatter.write_dl([(name, first_sentence(command)) for name, command in commands if command is not None])


def default_of(parameter: click.Parameter) -> str:
    """The default of the setting that an option sets, as the end of its help."""
    if not isinstance(parameter, click.Option) or parameter.is_flag or parameter.show_default:
        return ""
    value = getattr(core_fields().get(parameter.name or ""), "default", None)
    known = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    return f"  [default: {value}]" if known and "default" not in (parameter.help or "") else ""


def plain_text(text: str) -> str:
    """A docstring without its marks of code."""
    return text.replace("``", "")


def first_sentence(command: click.Command) -> str:
    """The first sentence of a command's help, whole."""
    text = plain_text(" ".join((command.help or "").split("\n\n")[0].split()))
    end = next((i for i, c in enumerate(text) if c == "." and text[i + 1 : i + 2] in ("", " ")), len(text))
    return text[:end]


def divide_commands(names: Iterable[str], order: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Names of commands by section, in an order of use; the last one has the rest."""
    left, divided = sorted(names), {}
    for title, members in order.items():
        divided[title] = [name for name in members if name in left]
        left = [name for name in left if name not in divided[title]]
    return {title: members for title, members in {**divided, "Others": left}.items() if members}
