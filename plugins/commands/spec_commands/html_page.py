"""HTML pages of commands: one style sheet, and templates that escape every text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from spec_commands import common

UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""Control characters, marks of the direction of writing, and halves of surrogate pairs."""


def clean(text: str) -> str:
    """Text for a page: control characters as replacement characters."""
    return UNPRINTABLE.sub("\ufffd", text)


def render_page(template: Path, **values: Any) -> str:
    """A page from a template, which may include others of its folder. ``style`` is the text of the style sheet."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    templates = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    style = Markup((Path(__file__).parent / "report.css").read_text("utf-8"))
    return templates.get_template(template.name).render(style=style, markup=Markup, **values)


def write_page(path: Path, page: str) -> None:
    """Write a page and note its path. Raises UsageError if the file cannot be written."""
    try:
        common.write_file(path, page.encode("utf-8", "replace"))
    except OSError as error:
        raise common.write_error(path, error) from error
    common.print_note(f"written: {path}")
