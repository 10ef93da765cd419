"""An iterator of one request's events, built on ``Run.step``.

A consumer that stops reading interrupts nothing: a step is always finished before its events are handed out. Whoever
makes the run step, each sequence's events wait for its own iterator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

import attrs

from spec_core.contract.request import Emitted, Result
from spec_core.contract.sequence import Sequence


class Steps(Protocol):
    """A run, as far as its iterators need it."""

    def step(self) -> list[Emitted]: ...

    def cancel(self, seq: Sequence) -> None: ...

    def _drop(self, seq: Sequence) -> None: ...


@attrs.define(eq=False)
class Stream:
    """Where a run leaves what it has for one iterator. The run forgets it when the sequence ends."""

    events: deque[Emitted] = attrs.field(factory=deque)
    result: Result | None = None


class Generation:
    """Iterate for events; read ``result`` for the whole (it runs to the end first).

    Closed or dropped before its end, it cancels its request, like a generator. Iterators of one run may be read in
    threads of their own: they take turns, and a step of one serves all.
    """

    def __init__(self, run: Steps, seq: Sequence, stream: Stream) -> None:
        self.run = run
        self.seq = seq
        self._stream = stream
        self._raised = False

    def __iter__(self) -> Iterator[Emitted]:
        return self

    def __next__(self) -> Emitted:
        """Raises the error that ended the sequence, once, after the events that came before it."""
        while True:
            ended = self._stream.result is not None
            if self._stream.events:
                return self._stream.events.popleft()
            if ended:
                break
            self.run.step()
        if self.seq.error is not None and not self._raised:
            self._raised = True
            raise self.seq.error
        raise StopIteration

    @property
    def result(self) -> Result:
        """The whole. Raises the error that ended the sequence."""
        for _ in self:
            pass
        if self.seq.error is not None:
            raise self.seq.error
        assert self._stream.result is not None
        return self._stream.result

    @property
    def text(self) -> str:
        """The whole text. Raises the error that ended the sequence."""
        return self.result.text

    def close(self) -> None:
        """Stop early: the request is cancelled, and the run keeps nothing of it."""
        self.run.cancel(self.seq)

    def __del__(self) -> None:
        self.run._drop(self.seq)
