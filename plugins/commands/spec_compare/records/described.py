"""Fields with a description, from which the JSON schemas and the page of output formats are made."""

from __future__ import annotations

from typing import Any

import attrs


def field(help: str, **options: Any) -> Any:
    """A field of a data class that is written to a file. help: what it holds, with its unit."""
    return attrs.field(metadata={"help": help}, **options)


def unwritten_field(**options: Any) -> Any:
    """A field that is not written, or elsewhere."""
    return attrs.field(**options)


def help_of(attribute: attrs.Attribute) -> str:
    """The description of a field."""
    return attribute.metadata["help"]
