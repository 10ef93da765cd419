"""Limits of time for a hub that answers, but slowly: the HTTP library's begin again with every byte."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import TypeVar

import attrs

from spec_hub.remote_file import HubError

Result = TypeVar("Result")
SLOW_SECONDS = 60.0
"""Seconds over which the speed of a download is measured."""
SLOW_BYTES = 1 << 16
"""Bytes that must arrive in this time."""


def in_time(work: Callable[[], Result], seconds: float, what: str) -> Result:
    """The result of the work. Raises HubError if it takes longer; then its thread is left alone.

    what: was to be done, as the subject of a sentence.
    """
    results: SimpleQueue[tuple[Result | None, BaseException | None]] = SimpleQueue()

    def do() -> None:
        try:
            results.put((work(), None))
        except BaseException as error:
            results.put((None, error))

    Thread(target=do, name="spec-hub", daemon=True).start()
    try:
        result, error = results.get(timeout=seconds)
    except Empty:
        problem = f"{what} took more than {seconds:g} seconds"
        raise HubError(problem, hint="check the network and HF_ENDPOINT, or try again later") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


@attrs.define
class Pace:
    """Measures how fast a download comes, its breaks included. what: is downloaded."""

    what: str
    _begun: float = attrs.field(factory=monotonic, init=False)
    _size: int = attrs.field(default=0, init=False)

    def advance(self, size: int) -> None:
        """Count new bytes. Raises HubError if there were too few for some time."""
        self._size += size
        seconds = monotonic() - self._begun
        if seconds < SLOW_SECONDS:
            return
        if self._size < SLOW_BYTES:
            raise HubError(
                f"{self.what} arrives too slowly: {self._size} bytes in {seconds:.0f} seconds",
                hint="run the command again later: it goes on where it was",
            )
        self._begun, self._size = monotonic(), 0
