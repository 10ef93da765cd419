"""Observes a run for a command: times of tokens, and the progress of prefill."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import attrs
from spec_commands.common import is_terminal, print_note
from spec_commands.printing import PASSING

if TYPE_CHECKING:
    from spec_core import Sequence, Step

PATIENCE = 1.0
"""Seconds of prefill before its progress is shown."""


@attrs.define(eq=False)
class Watch:
    """Times of the first and last token of every text. began: start of the command; asked: of the requests. Seconds."""

    began: float
    now: Callable[[], float] = perf_counter
    asked: float = 0.0
    first: dict[Sequence, float] = attrs.field(factory=dict)
    last: dict[Sequence, float] = attrs.field(factory=dict)

    def look(self, step: Step) -> None:
        now = self.now()
        for part in step.parts:
            if part.emitted:
                self.first.setdefault(part.seq, now)
                self.last[part.seq] = now

    def times(self, seq: Sequence, prompt: int, tokens: int) -> dict[str, float | None]:
        """Seconds and rates of one text; None if it has too few tokens.

        prompt: number of prompt tokens that were evaluated; tokens: number of output tokens.
        """
        if seq not in self.first:
            return {**dict.fromkeys(NAMES), "startup_seconds": self.asked - self.began}
        first, decode = self.first[seq] - self.asked, self.last[seq] - self.first[seq]
        return {
            "startup_seconds": self.asked - self.began,
            "first_token_seconds": first,
            "decode_seconds": decode,
            "prompt_tokens_per_second": prompt / first if first > 0 else None,
            "tokens_per_second": (tokens - 1) / decode if decode > 0 else None,
        }


NAMES = (
    "startup_seconds", "first_token_seconds", "decode_seconds", "prompt_tokens_per_second", "tokens_per_second",
)  # fmt: skip


@attrs.define(eq=False)
class Prefill:
    """Shows the progress of a long prefill: in one line on a terminal, elsewhere in a line for every tenth.

    It ends with the first token of any text, which is printed on the same terminal.
    """

    seqs: list[Sequence]
    terminal: bool
    now: Callable[[], float] = perf_counter
    say: Callable[[str], None] = print_note
    began: float = attrs.field(default=attrs.Factory(lambda self: self.now(), takes_self=True))
    shown: int = 0
    over: bool = False

    def look(self, step: Any) -> None:
        """Print progress after a step, but not in the first second, nor after the first token."""
        if self.over:
            return
        total = sum(seq.prompt_len for seq in self.seqs)
        done = sum(min(seq.evaluated, seq.prompt_len) for seq in self.seqs)
        self.over = done >= total or any(part.emitted for part in getattr(step, "parts", ()))
        if self.over:
            PASSING.clear()
        elif self.now() - self.began >= PATIENCE:
            self._show(done, total)

    def _show(self, done: int, total: int) -> None:
        text = f"prompt: {done} of {total} tokens"
        if self.terminal:
            PASSING.show(text)
        elif (tenth := done * 10 // total) > self.shown:
            self.shown = tenth
            self.say(text)


def prefill(seqs: Iterable[Sequence]) -> Prefill:
    return Prefill(list(seqs), is_terminal(sys.stderr))
