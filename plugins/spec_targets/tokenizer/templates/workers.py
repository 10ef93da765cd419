"""Processes that render chat templates: a few, kept warm, each replaced when it ends.

They belong to this process: a child that it forks starts its own, and at its end they are ended. A process whose input
is closed ends by itself, also where this one was killed.
"""

from __future__ import annotations

import atexit
import marshal
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Lock, Semaphore, Timer
from typing import Any

from spec_core.errors import UsageError
from spec_targets.tokenizer.templates.program import FULL, HEADER, SIZE, TEXT

PROGRAM = Path(__file__).with_name("program.py")
WORKERS_MAX = 2
MEMORY = 512 << 20
"""Bytes of address space of one process."""
WALL_SECONDS = 30.0
"""A process that was not ended by its limit of processor time, because it waits or there is none, is ended then."""
KEPT_NAMES = ("TZ", "SYSTEMROOT")
"""Variables that a process has of this one's environment: a template can ask for the time."""


EXPIRED = int(getattr(signal, "SIGPROF", 0))
"""The signal with which the system ends a process that used up its time; 0 where there is none."""


class TemplateFailed(Exception):
    """Why there is no prompt, in words."""


class Worker:
    """One process and its pipes."""

    def __init__(self) -> None:
        if not sys.executable:
            raise UsageError(
                "chat templates run in a process of their own, and sys.executable does not name a Python to start",
                hint="give the prompt as text, or set sys.executable",
            )
        paths = [path for path in sys.path if os.path.isabs(path)]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(PROGRAM), str(MEMORY), *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={name: os.environ[name] for name in KEPT_NAMES if name in os.environ},
            start_new_session=True,
        )
        self.expired = False

    def ask(self, request: bytes, longest: int) -> tuple[bytes, bytes]:
        """What the process answers, and its kind; nothing from a process that ended. longest: bytes of an answer."""
        clock = Timer(WALL_SECONDS, self._expire)
        clock.daemon = True
        clock.start()
        try:
            self._write(SIZE.pack(len(request)) + request)
            kind, size = HEADER.unpack(self._read(HEADER.size))
            if size > longest:
                raise OSError("the answer is too long")
            return kind, self._read(size)
        except (OSError, ValueError):
            return b"", b""
        finally:
            clock.cancel()

    def end(self) -> str:
        """End the process; returns why it ended, if it ended itself."""
        forced = self.process.poll() is None
        code = self._stop()
        if self.expired or (EXPIRED and code == -EXPIRED):
            return "time"
        return "" if forced else f"its process ended with status {code}"

    def abandon(self) -> None:
        """Close the pipes of a process that belongs to the parent of this one."""
        self._close()
        self.process.returncode = 0

    def _stop(self) -> int:
        self.process.kill()
        code = self.process.wait()
        self._close()
        return code

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _expire(self) -> None:
        self.expired = True
        self.process.kill()

    def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) :]

    def _read(self, size: int) -> bytes:
        assert self.process.stdout is not None
        parts = []
        while size:
            part = self.process.stdout.read(min(size, 1 << 20))
            if not part:
                raise OSError("the process ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class Workers:
    """Processes that wait for requests, for all threads."""

    def __init__(self) -> None:
        self.all: set[Worker] = set()
        self._forget()

    def _forget(self) -> None:
        self.idle: list[Worker] = []
        self.lock = Lock()
        self.room = Semaphore(WORKERS_MAX)

    def render(self, template: str, variables: dict[str, Any], seconds: float, longest: int) -> str:
        """A prompt of at most ``longest`` characters. Raises TemplateFailed, or ValueError for values that cannot be
        passed on.
        """
        request = marshal.dumps((template, variables, seconds, longest))
        with self.room:
            kind, answer, ended = self._answer(request, longest)
        if kind == TEXT:
            return answer.decode("utf-8", "surrogatepass")
        if kind == FULL:
            raise TemplateFailed(f"it needed more than {MEMORY >> 20} MiB of memory")
        if ended == "time":
            raise TemplateFailed(f"it ran longer than {seconds:g} seconds")
        raise TemplateFailed(answer.decode("utf-8", "replace") or ended)

    def _answer(self, request: bytes, longest: int) -> tuple[bytes, bytes, str]:
        """Of a process that waits, or of a new one if it has ended meanwhile; and why it ended while it rendered."""
        for again in (True, False):
            worker, warm = self._take()
            kind, answer, ended = b"", b"", ""
            try:
                kind, answer = worker.ask(request, longest * 4)
            finally:
                if kind and kind != FULL:
                    self._put(worker)
                else:
                    ended = self._drop(worker)
            if kind or not (again and warm and ended != "time"):
                break
        return kind, answer, ended

    def _take(self) -> tuple[Worker, bool]:
        """A process, and whether it has waited."""
        with self.lock:
            if self.idle:
                return self.idle.pop(), True
        worker = Worker()
        with self.lock:
            self.all.add(worker)
        return worker, False

    def _put(self, worker: Worker) -> None:
        with self.lock:
            self.idle.append(worker)

    def _drop(self, worker: Worker) -> str:
        with self.lock:
            self.all.discard(worker)
        return worker.end()

    def close(self) -> None:
        """End all processes."""
        with self.lock:
            ending, self.all, self.idle = self.all, set(), []
        for worker in ending:
            worker.end()

    def after_fork(self) -> None:
        """In a child: the processes are the parent's, and its threads may have held the lock."""
        for worker in self.all:
            worker.abandon()
        self.all = set()
        self._forget()


workers = Workers()
atexit.register(workers.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=workers.after_fork)
