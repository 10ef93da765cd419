"""Progress of an audit on standard error: a bar on a terminal, elsewhere a line for each check."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from spec_commands.common import is_terminal, print_note

from spec_audit.audit import Audit


@contextmanager
def show_progress(audit: Audit, requests: int) -> Iterator[None]:
    """Show the check that runs and the number of requests. requests: the most that there may be."""
    if not is_terminal(sys.stderr):
        audit.on_check = lambda title: print_note(
            f"checking: {title.lower()}, {audit.session.requests:,} requests so far"
        )
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=requests)
        audit.on_check = lambda title: bar.update(task, description=title)
        audit.session.on_answer = lambda count: bar.update(task, completed=count)
        yield
