"""Progress of a comparison on standard error: a bar on a terminal, elsewhere a line for every tenth."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
from rich.console import Console
from rich.progress import Progress
from spec_cli.common import is_terminal, note

LINES = 10
"""Max lines without a terminal."""


@contextmanager
def progress(total: int) -> Iterator[Callable[[], None]]:
    """A function to call after each of ``total`` measurements."""
    if not is_terminal(sys.stderr):
        yield Lines(total).one_more
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring", total=total)
        yield lambda: bar.advance(task)


@attrs.define
class Lines:
    """One line for every tenth of the work."""

    total: int
    done: int = 0

    def one_more(self) -> None:
        before = self.done * LINES // self.total
        self.done += 1
        if self.done * LINES // self.total > before:
            note(f"measured {self.done} of {self.total}")
