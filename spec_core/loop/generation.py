"""An iterator of one request's events, built on ``Run.step``.

A consumer that stops reading interrupts nothing: a step always finishes before its events are returned. Any iterator
may drive the run; each sequence's events are queued for its own iterator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

import attrs

from spec_core.contract.request import Emitted, Result
from spec_core.contract.sequence import Sequence


class Steps(Protocol):
    """The part of a run that its iterators use."""

    def step(self) -> list[Emitted]: ...

    def cancel(self, seq: Sequence) -> None: ...

    def _drop(self, seq: Sequence) -> None: ...


@attrs.define(eq=False)
class Queued:
    """Events and result that a run queues for one iterator. The run drops its reference when the sequence ends."""

    events: deque[Emitted] = attrs.field(factory=deque)
    result: Result | None = None


class Generation:
    """Iterate over the events of one request, or read ``result``, which runs to the end first.

    Closing or dropping it before the end cancels the request, as with a generator. Iterators of one run may be read
    in different threads: they take turns, and each step serves all of them.
    """

    def __init__(self, steps: Steps, seq: Sequence, queued: Queued) -> None:
        self.run = steps
        self.seq = seq
        self._queued = queued
        self._raised = False

    def __iter__(self) -> Iterator[Emitted]:
        return self

    def __next__(self) -> Emitted:
        """Raises the error that ended the sequence, once, after the events that came before it."""
        while True:
            ended = self._queued.result is not None
            if self._queued.events:
                return self._queued.events.popleft()
            if ended:
                break
            self.run.step()
        if self.seq.error is not None and not self._raised:
            self._raised = True
            raise self.seq.error
        raise StopIteration

    @property
    def result(self) -> Result:
        """The result of the request. Raises the error that ended the sequence."""
        for _ in self:
            pass
        if self.seq.error is not None:
            raise self.seq.error
        assert self._queued.result is not None
        return self._queued.result

    @property
    def text(self) -> str:
        """The text of the result. Raises the error that ended the sequence."""
        return self.result.text

    def close(self) -> None:
        """Cancel the request; the run keeps nothing of it."""
        self.run.cancel(self.seq)

    def __del__(self) -> None:
        self.run._drop(self.seq)
