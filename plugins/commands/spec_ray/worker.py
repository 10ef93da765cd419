"""The comparison of one part, on the machine of a worker."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
from spec_compare.measuring.shard import Shard
from spec_compare.records.reading import LAPS

from spec_core.errors import SpecError, UsageError

LINE, FILE, ERROR = "line", "file", "error"
"""Kinds of a message: a line of the results; name and contents of another file; reason and hint of an error."""
Message = tuple[str, Any]
Queue = queue.SimpleQueue[Message | Exception | None]


@attrs.frozen
class Job:
    """A part to be measured, with the current directory, command line and settings where the user called it.

    flags: of the command. before: the results so far.
    """

    shard: Shard
    flags: Mapping[str, Any]
    before: bytes
    folder: str = attrs.field(factory=os.getcwd)
    command: list[str] = attrs.field(factory=lambda: list(sys.argv))
    environment: dict[str, str] = attrs.field(
        factory=lambda: {name: value for name, value in os.environ.items() if name.startswith("SPEC_")}
    )


def messages(job: Job) -> Iterator[Message]:
    """Measure a part, and send every line when it is written."""
    sent: Queue = queue.SimpleQueue()

    def work() -> None:
        try:
            for file in _measure(job, sent).items():
                sent.put((FILE, file))
        except SpecError as error:
            sent.put((ERROR, (error.reason, error.hint)))
        except Exception as error:
            sent.put(error)
        sent.put(None)

    threading.Thread(target=work, daemon=True).start()
    while (message := sent.get()) is not None:
        if isinstance(message, Exception):
            raise message
        yield message


def _measure(job: Job, sent: Queue) -> dict[str, bytes]:
    """Measure, and return every file in the results' folder by its name."""
    from spec_compare.measuring.comparison import run_comparison

    _enter(job)
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        if job.before:
            out.mkdir()
            (out / LAPS).write_bytes(job.before)
        run_comparison(out, dict(job.flags), job.shard, lambda line: sent.put((LINE, line)))
        return {file.name: file.read_bytes() for file in out.iterdir() if file.name != LAPS}


def _enter(job: Job) -> None:
    try:
        os.chdir(job.folder)
    except OSError as error:
        raise UsageError(
            f"{job.folder} does not exist on this worker: {error.strerror}",
            hint="run from a directory that all machines of the cluster have",
        ) from error
    os.environ.update(job.environment)
    sys.argv = list(job.command)
