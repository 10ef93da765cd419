"""Runs the program of a stranger, such as a grammar or a template, in a process with limits of time and memory.

Only the system can end a program that loops, allocates or overflows its stack. Both ends are here: ``LimitedProcess``
in the parent, ``answer_messages`` in the child. Importing this module loads neither torch nor numpy.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import BinaryIO

import attrs

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

LENGTH = struct.Struct("<Q")
"""Precedes every message."""
MESSAGE_MAX = 1 << 30
"""Bytes of a message."""
ENDS = {
    "SIGXCPU": "it took more than {cpu_seconds:g} seconds of a processor",
    "SIGKILL": "it was ended by the system",
    "SIGSEGV": "it overflowed its stack",
    "SIGBUS": "it overflowed its stack",
    "SIGABRT": "it ran out of memory or failed",
}
"""Messages of the signals that end a process."""


class ProcessEnded(Exception):
    """The process ended before it answered. The message says why, as the end of a sentence."""


@attrs.define(eq=False)
class LimitedProcess:
    """A child process that answers one message at a time. It starts at the first call, and again after it has ended.

    arguments: of the Python interpreter, such as ``["-m", "package.module"]``; the module calls ``answer_messages``.
    cpu_seconds: of a processor, for one message. memory: bytes that the process may grow by for one message. seconds:
    max wait for an answer, for a child that sleeps. stack: bytes, 0 is the system's default. names: variables of the
    environment that the child has; None is all. Calls from several threads wait for each other.
    """

    arguments: Sequence[str]
    cpu_seconds: float = 5.0
    memory: int = 256 << 20
    seconds: float = 60.0
    stack: int = 0
    names: Sequence[str] | None = None
    _child: subprocess.Popen[bytes] | None = attrs.field(init=False, default=None, repr=False)
    _lock: Lock = attrs.field(init=False, factory=Lock, repr=False)
    starts: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def call(self, message: bytes) -> bytes:
        """The child's answer. Raises ProcessEnded; the next call starts a new child."""
        with self._lock:
            child = self._running()
            try:
                _write(child.stdin, message)  # type: ignore[arg-type]
                return _read(child.stdout, monotonic() + self.seconds)  # type: ignore[arg-type]
            except (OSError, EOFError, TimeoutError) as error:
                raise ProcessEnded(self._reason(error)) from error
            except BaseException:  # an interrupted call leaves half a message in the pipe
                self._end()
                raise

    def close(self) -> None:
        """End the child. A later call starts a new one."""
        with self._lock:
            self._end()

    def kill(self) -> None:
        """End the child at once, also while another thread waits for its answer: for the end of a program."""
        if (child := self._child) is not None:
            child.kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is not None:
            self._end()
        if self._child is None:
            limits = " ".join(map(str, (self.cpu_seconds, self.memory, self.stack)))
            path = os.pathsep.join(part for part in sys.path if part)
            known = os.environ if self.names is None else {n: os.environ[n] for n in self.names if n in os.environ}
            self._child = subprocess.Popen(
                [sys.executable, *self.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for the parent, which closes the pipe
                env={**known, "PYTHONPATH": path, LIMITS: limits},
            )
            self.starts += 1
        return self._child

    def _reason(self, error: BaseException) -> str:
        child = self._child
        assert child is not None
        if isinstance(error, TimeoutError):
            self._end()
            return f"it took more than {self.seconds:g} seconds"
        try:
            code = child.wait(1.0)
        except subprocess.TimeoutExpired:
            code = -9
        self._end()
        ending = ENDS.get(signal.Signals(-code).name) if code < 0 else None
        return (ending or "its process ended with code {code}").format(cpu_seconds=self.cpu_seconds, code=code)

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()

    def _forget(self) -> None:
        """Forget the child after a fork: it belongs to the parent, and another thread may have held the lock."""
        self._lock = Lock()
        if self._child is not None:
            for pipe in (self._child.stdin, self._child.stdout):
                if pipe is not None:
                    pipe.close()
            self._child.returncode = 0  # not this process's child: nothing to wait for
        self._child = None


LIMITS = "SPEC_LIMITED_PROCESS"
"""Environment variable with the limits of a child: seconds of CPU, bytes of memory, bytes of stack."""


def answer_messages(answer: Callable[[bytes], bytes], environment: Mapping[str, str] = os.environ) -> None:
    """Answer messages until the parent closes the pipe. Output of ``answer`` goes to standard error."""
    cpu_seconds, memory, stack = (float(part) for part in environment[LIMITS].split())
    source, sink = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)
    _limit("RLIMIT_CORE", 0)
    if stack:
        _limit("RLIMIT_STACK", int(stack))
    while True:
        try:
            message = _read(source)
        except EOFError:
            return
        _limit_cpu(cpu_seconds)
        _limit_memory(int(memory))
        _write(sink, answer(message))


def _limit(name: str, value: int) -> None:
    """Lower a limit of this process, as far as the system has it: Windows has none."""
    if resource is None:
        return
    kind = getattr(resource, name)
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _limit_cpu(seconds: float) -> None:
    """Let this process use a processor for these seconds more; the system counts whole seconds."""
    if resource is None:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit("RLIMIT_CPU", int(used.ru_utime + used.ru_stime + seconds) + 1)


def _limit_memory(size: int) -> None:
    """Let this process grow by ``size`` bytes, where the system says how large it is."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return
    _limit("RLIMIT_AS", pages * os.sysconf("SC_PAGE_SIZE") + size)


def _write(pipe: BinaryIO, message: bytes) -> None:
    data = memoryview(LENGTH.pack(len(message)) + message)
    while data:
        data = data[pipe.write(data) :]


def _read(pipe: BinaryIO, deadline: float | None = None) -> bytes:
    """A message. Raises EOFError where the other end has closed, TimeoutError at the deadline."""
    (length,) = LENGTH.unpack(_read_exactly(pipe, LENGTH.size, deadline))
    if length > MESSAGE_MAX:
        raise EOFError
    return _read_exactly(pipe, length, deadline)


def _wait(pipe: BinaryIO, deadline: float) -> None:
    """Return when the pipe has bytes or is closed. Raises TimeoutError at the deadline, which Windows has not."""
    if not hasattr(select, "poll"):
        return
    poll = select.poll()  # select() cannot wait for a descriptor beyond 1,023
    poll.register(pipe, select.POLLIN)
    if not poll.poll(1000 * max(0.0, deadline - monotonic())):
        raise TimeoutError


def _read_exactly(pipe: BinaryIO, length: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < length:
        if deadline is not None:
            _wait(pipe, deadline)
        part = pipe.read(min(length - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
