"""The server's log: one line for an event, as text or as JSON, and never a prompt or a text."""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from threading import Lock
from time import monotonic
from typing import Any, TextIO

import attrs
from spec_commands.json_text import format_json

from spec_serve.errors import ApiError
from spec_serve.request_info import REQUEST_INFO

log = logging.getLogger("spec_serve")

NOISY = ("httpx", "httpcore", "urllib3", "filelock")
"""Loggers of libraries that have a line for every request of theirs."""
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """An object a line: time, level, logger, message, the numbers of a text, and the traceback of a failure."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= getattr(record, "numbers", {})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return format_json(entry)


class JsonStream(io.TextIOBase):
    """Standard error whose every line is a JSON object, whoever writes it: a note, a warning, a library.

    Text is written as one line with its last line feed, so that a paragraph stays together.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream
        self._text = ""
        self._lock = Lock()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self.stream.fileno()

    def flush(self) -> None:
        self.stream.flush()

    def write(self, text: str) -> int:
        with self._lock:
            self._text += text
            if not self._text.endswith("\n"):
                return len(text)
            whole, self._text = self._text, ""
        lines = [line.rpartition("\r")[2] for line in whole.rstrip("\r\n").split("\n")]  # of progress its last state
        if message := "\n".join(lines).strip():
            record = logging.LogRecord("spec_serve", _level_of(message), "", 0, "%s", (message,), None)
            self.stream.write(JsonLines().format(record) + "\n")
        return len(text)


def _level_of(message: str) -> int:
    word = message.partition(":")[0].lower()
    return {"error": logging.ERROR, "warning": logging.WARNING}.get(word, logging.INFO)


def begin_logging(as_json: bool) -> None:
    """Log to standard error from now on; as JSON, all that the program writes there is an object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else logging.Formatter(TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    if as_json:
        sys.stderr = JsonStream(sys.stderr)
        sys.excepthook = _log_uncaught
        threading.excepthook = lambda raised: _log_uncaught(raised.exc_type, raised.exc_value, raised.exc_traceback)


def _log_uncaught(kind: type[BaseException], error: BaseException | None, traceback: Any) -> None:
    log.critical("%s was not handled", kind.__name__, exc_info=error)


def is_json(options: Iterable[str], environ: Mapping[str, str], file: Mapping[str, Any]) -> bool:
    """Whether the log is JSON, read before the settings are checked: their errors are lines of it too."""
    values = dict(option.partition("=")[::2] for option in options)
    own = file.get("serve")
    of_file = own.get("log") if isinstance(own, Mapping) else None
    return values.get("serve.log", environ.get("SPEC_SERVE__LOG", of_file)) == "json"


def line_of(numbers: Mapping[str, Any]) -> str:
    """Numbers of a line as text: what a client wrote is quoted."""
    return " ".join(f"{name}={value!r}" if name == "path" else f"{name}={value}" for name, value in numbers.items())


@attrs.define(eq=False)
class Refusals:
    """A line for each refused request, without what it said. In a second at most ``most``; the next counts the rest."""

    most: int = 20
    _second: int = 0
    _lines: int = 0
    _left_out: int = 0

    def note(self, error: ApiError, path: str) -> None:
        """Log that a request was refused."""
        now = int(monotonic())
        if now != self._second:
            if self._left_out:
                log.info("%d more requests were refused", self._left_out)
            self._second, self._lines, self._left_out = now, 0, 0
        self._lines += 1
        if self._lines > self.most:
            self._left_out += 1
            return
        info = REQUEST_INFO.get()
        numbers = {
            "status": error.status,
            "path": path[:100],
            "why": error.code or error.kind,
            "client": info.client,
            "request_id": info.request_id,
        }
        log.info("refused %s", line_of(numbers), extra={"numbers": numbers})


REFUSALS = Refusals()
