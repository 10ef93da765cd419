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

from spec_compare.executors.shard import Shard
from spec_compare.records.reading import LAPS
from spec_core.errors import SpecError, UsageError

LINE = "line"
"""Kind of a message: a line of the results."""
FILE = "file"
"""Kind of a message: a file that is written at the end."""
ERROR = "error"
"""Kind of a message: the reason and hint of an error."""
Message = tuple[str, Any]
Queue = queue.SimpleQueue[Message | Exception | None]


@attrs.frozen
class Job:
    """A part to be measured. flags: of the command. before: the results so far. folder: the current directory.

    command: the command line, and environment: the settings in it, as they are where the user called it.
    """

    part: Shard
    flags: Mapping[str, Any]
    before: bytes
    folder: str
    command: list[str]
    environment: dict[str, str]


def messages(job: Job) -> Iterator[Message]:
    """Measure a part, and send every line when it is written."""
    sent: Queue = queue.SimpleQueue()

    def work() -> None:
        try:
            for name, data in _measure(job, sent).items():
                sent.put((FILE, (name, data)))
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
    """Measure, and return every file beside the results by its name."""
    from spec_compare.comparison import run_comparison

    _enter(job)
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        if job.before:
            out.mkdir()
            (out / LAPS).write_bytes(job.before)
        run_comparison(out, dict(job.flags), job.part, lambda line: sent.put((LINE, line)))
        return {file.name: file.read_bytes() for file in out.iterdir() if file.name != LAPS}


def _enter(job: Job) -> None:
    """The current directory, settings and command line of the user. Raises UsageError."""
    try:
        os.chdir(job.folder)
    except OSError as error:
        raise UsageError(
            f"{job.folder} does not exist on this worker: {error.strerror}",
            hint="run from a directory that all machines of the cluster have",
        ) from error
    os.environ.update(job.environment)
    sys.argv = list(job.command)
