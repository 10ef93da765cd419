"""A program on a pseudo-terminal, and the screen that a reader sees."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from time import monotonic

import pyte

COLUMNS, ROWS = 80, 60


def listen_to_interrupts():
    """Let Ctrl-C reach a program of a shell that runs in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Terminal:
    """A program on a pseudo-terminal, and what it has written."""

    def __init__(self, *arguments, columns=COLUMNS, **variables):
        self.leader, follower = pty.openpty()
        self.resize(columns)
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "LINES": str(ROWS), **variables}
        command = [sys.executable, "-m", "spec_core", *arguments]
        self.process = subprocess.Popen(
            command, stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True,
            preexec_fn=listen_to_interrupts,
        )  # fmt: skip
        os.close(follower)
        self.data = b""

    def read(self, seconds=60.0, until=None):
        """Read until a text was written, or the program has ended."""
        end = monotonic() + seconds
        while monotonic() < end and (until is None or until not in self.data):
            if select.select([self.leader], [], [], 0.1)[0]:
                try:
                    piece = os.read(self.leader, 65536)
                except OSError:
                    break
                if not piece:
                    break
                self.data += piece
            elif self.process.poll() is not None:
                break
        return self.data

    def resize(self, columns):
        self.columns = columns
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))

    def write(self, text):
        os.write(self.leader, text if isinstance(text, bytes) else text.encode())

    def interrupt(self):
        os.killpg(self.process.pid, signal.SIGINT)

    def screen(self):
        """The lines of the screen and those above it that have scrolled off."""
        screen = pyte.HistoryScreen(self.columns, ROWS, history=10_000, ratio=1)
        pyte.Stream(screen).feed(self.data.decode())
        history = ["".join(line[x].data for x in range(self.columns)).rstrip() for line in screen.history.top]
        return [*history, *(line.rstrip() for line in screen.display)]


def run(*arguments, **variables):
    terminal = Terminal(*arguments, **variables)
    terminal.read()
    assert terminal.process.wait(30) is not None
    return terminal
