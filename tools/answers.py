"""Tables of docs/serve-chats.md: how models write calls and thinking, and how they end a text, from the readers."""

from __future__ import annotations

import sys
from pathlib import Path

from spec_serve.calls.families import ENDS, MEMBERS, Member

BEGIN, END = "<!-- table: answers -->", "<!-- /table -->"


def answers() -> str:
    """A row for each form of calls with the models that write it, and a row for the ends of each architecture."""
    models: dict[str, list[str]] = {}
    for member in MEMBERS:
        models.setdefault(member.calls.example, []).append(_models(member))
    forms = [f"| {_code(example)} | {'; '.join(names)} |" for example, names in models.items()]
    families: dict[str, list[str]] = {}
    for family, ends in ENDS.items():
        families.setdefault(ends, []).append(family)
    lines = [f"| {', '.join(names)} | {' '.join(map(_code, ends.split()))} |" for ends, names in families.items()]
    first = ["| call | models |", "| --- | --- |", *forms]
    return "\n".join([*first, "", "| architecture | tokens that end a text |", "| --- | --- |", *lines])


def _models(member: Member) -> str:
    """Names of the models, with the mark of their thinking."""
    return f"{member.models} ({_code(member.thinking)})" if member.thinking else member.models


def _code(text: str) -> str:
    escaped = text.replace("|", "\\|").replace("\n", " ")
    return f"`` {escaped} ``" if "`" in text else f"`{escaped}`"


def write_table(page: str) -> str:
    """The page with the tables between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{answers()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(write_table(file.read_text("utf-8")), "utf-8")
