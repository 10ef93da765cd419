"""The events and results of a run: queued for an iterator, or kept until ``take`` is called."""

from __future__ import annotations

import attrs

from spec_core.contract.request import Emitted, Result
from spec_core.contract.sequence import Sequence
from spec_core.loop.generation import Queued
from spec_core.loop.stats import Stats
from spec_core.sampling.logprob import Logprob


@attrs.define(eq=False)
class Outputs:
    """Events and results of the sequences of a run.

    stats: of the run; a sequence that ends is counted there. results: of ended sequences without an iterator.
    queued: events of sequences with an iterator. logprobs: of running sequences that requested them.
    """

    stats: Stats
    results: dict[Sequence, Result] = attrs.field(factory=dict)
    queued: dict[Sequence, Queued] = attrs.field(factory=dict)
    logprobs: dict[Sequence, list[Logprob]] = attrs.field(factory=dict)

    def deliver(self, events: list[Emitted]) -> None:
        """Queue the events of a step for their iterators."""
        for event in events:
            if event.logprob is not None:
                self.logprobs.setdefault(event.seq, []).append(event.logprob)
            if (queue := self.queued.get(event.seq)) is not None:
                queue.events.append(event)

    def finish(self, seq: Sequence) -> None:
        """Pass the result to the sequence's iterator, or keep it for ``take``. Drop everything else of the sequence."""
        result = self._result(seq)
        if (queue := self.queued.pop(seq, None)) is not None:
            queue.result = result
        else:
            self.results[seq] = result

    def _result(self, seq: Sequence) -> Result:
        tally = self.stats.close(seq)
        return Result(
            text=seq.text.whole if seq.text is not None else "",
            tokens=seq.tokens[seq.prompt_len :],
            finish_reason=seq.finish or "",
            prompt_tokens=seq.prompt_len,
            reused=seq.reused,
            seed=seq.seed,
            stats={**tally.report(), "lossy": self.stats.lossy, "steers": self.stats.steers},
            logprobs=self.logprobs.pop(seq, None),
        )

    def take(self, seq: Sequence) -> Result:
        """Return a kept result and forget it. Raises the sequence's own error, or KeyError if no result is kept."""
        result = self.results.pop(seq)
        if seq.error is not None:
            raise seq.error
        return result
