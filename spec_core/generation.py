"""An iterator of one request's events, built on ``Run.step``.

A consumer that stops reading interrupts nothing: a step is always finished before its events are handed out. Whoever
makes the run step, each sequence's events wait for its own iterator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spec_core.request import Emitted, Result
from spec_core.sequence import Sequence

if TYPE_CHECKING:
    from spec_core.run import Run


class Generation:
    """Iterate for events; read ``result`` for the whole (it runs to the end first)."""

    def __init__(self, run: Run, seq: Sequence, events: deque[Emitted]) -> None:
        self.run = run
        self.seq = seq
        self._events = events
        self._result: Result | None = None

    def __iter__(self) -> Iterator[Emitted]:
        return self

    def __next__(self) -> Emitted:
        while not self._events:
            if self.seq.finish is not None and self.seq in self.run.results:
                self._result = self.run.take(self.seq)
            if self._result is not None:
                raise StopIteration
            self.run.step()
        return self._events.popleft()

    @property
    def result(self) -> Result:
        for _ in self:
            pass
        assert self._result is not None
        return self._result

    def close(self) -> None:
        """Stop early: the request is cancelled."""
        self.run.cancel(self.seq)
