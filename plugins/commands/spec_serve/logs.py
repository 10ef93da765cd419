"""The server's log: one line for an event, as text or as JSON, and never a prompt or a text."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import attrs

from spec_serve.errors import ApiError
from spec_serve.job import REQUEST_ID

log = logging.getLogger("spec_serve")

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
        return json.dumps(entry)


def begin(as_json: bool) -> None:
    """Log to standard error from now on."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else logging.Formatter(TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


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
        why = error.code or error.kind
        log.info("refused status=%d path=%r why=%s request_id=%s", error.status, path[:100], why, REQUEST_ID.get())


REFUSALS = Refusals()
