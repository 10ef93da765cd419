"""The table of docs/serve.md that says how the models of each family write thinking and calls, from the readers."""

from __future__ import annotations

import sys
from pathlib import Path

from spec_serve.calls.families import ENDS, MEMBERS, Member

BEGIN, END = "<!-- table: answers -->", "<!-- /table -->"


def answers() -> str:
    """The table, a row for each family and member with a form of its own."""
    lines = ["| architecture | models | thinking | calls | ends |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*lines, *map(_row, MEMBERS)])


def _row(member: Member) -> str:
    thinking = _code(member.thinking) if member.thinking else "none"
    ends = " ".join(_code(end) for end in dict.fromkeys(" ".join(ENDS[name] for name in member.families).split()))
    return f"| {', '.join(member.families)} | {member.models} | {thinking} | {_code(member.calls.example)} | {ends} |"


def _code(text: str) -> str:
    escaped = text.replace("|", "\\|").replace("\n", " ")
    return f"`` {escaped} ``" if "`" in text else f"`{escaped}`"


def write_table(page: str) -> str:
    """The page with the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{answers()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(write_table(file.read_text("utf-8")), "utf-8")
