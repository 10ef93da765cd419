"""Processes that render chat templates: a few, kept warm, each replaced when it ends."""

from __future__ import annotations

import atexit
import marshal
import os
from pathlib import Path
from threading import Lock, Semaphore
from typing import Any

from spec_core.toolkit import LimitedProcess, ProcessEnded
from spec_targets.tokenizer.templates.program import FULL, TEXT

PROGRAM = Path(__file__).with_name("program.py")
WORKERS_MAX = 2
CPU_SECONDS = 2.0
MEMORY = 256 << 20
"""Bytes that a process may grow by for one prompt."""
WALL_SECONDS = 30.0
"""Limit for a process that waits, and for systems without limits of processor time."""
KEPT_NAMES = ("TZ", "SYSTEMROOT")
"""Variables of the environment that a process has: a template can ask for the time."""


class TemplateFailed(Exception):
    """Why there is no prompt, in words."""


class Workers:
    """The processes, for all threads. The one that rendered last is the next."""

    def __init__(self) -> None:
        self.all = [self._worker() for _ in range(WORKERS_MAX)]
        self._free_all()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._free_all)

    def _worker(self) -> LimitedProcess:
        program = ["-P", str(PROGRAM)]
        return LimitedProcess(program, CPU_SECONDS, memory=MEMORY, seconds=WALL_SECONDS, names=KEPT_NAMES)

    def _free_all(self) -> None:
        """Free all processes at the start, and in a forked child, where other threads of the parent hold none."""
        self._idle = list(self.all)
        self._lock = Lock()
        self._room = Semaphore(WORKERS_MAX)

    def render(self, template: str, variables: dict[str, Any], longest: int) -> str:
        """A prompt of at most ``longest`` characters. Raises TemplateFailed, or ValueError for values that cannot be
        passed on.
        """
        message = marshal.dumps((template, variables, longest))
        with self._room:
            kind, answer = self._ask(message)
        if kind == TEXT:
            return answer.decode("utf-8", "surrogatepass")
        raise TemplateFailed(answer.decode("utf-8", "replace"))

    def _ask(self, message: bytes) -> tuple[bytes, bytes]:
        with self._lock:
            worker = self._idle.pop()
        try:
            answer = worker.call(message)
        except ProcessEnded as error:
            raise TemplateFailed(str(error)) from error
        finally:
            with self._lock:
                self._idle.append(worker)
        kind, answer = answer[:1], answer[1:]
        if kind == FULL:
            worker.close()  # so that the next prompt begins with little memory
            raise TemplateFailed(f"it needed more than {MEMORY >> 20} MiB of memory")
        return kind, answer

    def close(self) -> None:
        """End all processes; later calls start new ones."""
        for worker in self.all:
            worker.close()

    def kill(self) -> None:
        """End all processes at once, also while they render."""
        for worker in self.all:
            worker.kill()


workers = Workers()
atexit.register(workers.kill)
