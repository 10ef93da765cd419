"""The page about architectures, with the table of operations from their docstrings."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import get_args

from spec_kernels.model import ops

TEXT = Path(__file__).with_name("add-an-architecture.md")


def architectures() -> str:
    """The whole page: the text with the table in its place."""
    return TEXT.read_text("utf-8").replace("{table}", table())


def table() -> str:
    """A row for each operation of a description: its arguments, and the first paragraph of its docstring."""
    rows = [f"| `{op.__name__}({_arguments(op)})` | {_first(op)} |" for op in get_args(ops.Op)]
    return "\n".join(["| operation | what it computes |", "| --- | --- |", *rows])


def _arguments(op: type) -> str:
    return ", ".join(inspect.signature(op).parameters)


def _first(op: type) -> str:
    return (inspect.getdoc(op) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
