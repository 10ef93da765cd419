"""The constraint of a text on the command line: a schema, an expression or a grammar."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from spec_core.errors import UsageError, error_message

if TYPE_CHECKING:
    from spec_core import Constraint

OPTIONS = [
    click.option("--json-schema", "json_schema", metavar="FILE|JSON", help="The text is JSON of this schema."),
    click.option(
        "--open-objects",
        "open_objects",
        is_flag=True,
        help="With --json-schema: objects may have keys it does not name.",
    ),
    click.option("--regex", help="The text matches this expression as a whole."),
    click.option("--grammar", metavar="FILE", help="The text is one of this grammar, in Lark's notation or GBNF."),
]
NAMES = ("json_schema", "regex", "grammar", "open_objects")


def constraint_of(
    json_schema: str | None, regex: str | None, grammar: str | None, open_objects: bool = False
) -> Constraint | None:
    """The constraint that the options name. Raises UsageError for several, and for what cannot be read."""
    flags = {"--json-schema": json_schema, "--regex": regex, "--grammar": grammar}
    chosen = [flag for flag, value in flags.items() if value is not None]
    if not chosen:
        return None
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} are both given", hint="give one constraint")
    import spec_grammar

    constraint: spec_grammar.JsonSchema | spec_grammar.Regex | spec_grammar.Lark | spec_grammar.Gbnf
    if json_schema is not None:
        written = json_schema.lstrip().startswith("{")
        text = json_schema if written else _read("--json-schema", json_schema)
        constraint = spec_grammar.JsonSchema(text, open_objects=open_objects)
    elif regex is not None:
        constraint = spec_grammar.Regex(regex)
    else:
        assert grammar is not None
        constraint = spec_grammar.grammar(_read("--grammar", grammar))
    constraint.check()
    return constraint


def _read(flag: str, file: str) -> str:
    try:
        return Path(file).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{flag} {file}: {error_message(error)}", hint="give the path of a text file in UTF-8"
        ) from error
