"""Progress of a comparison on standard error: time left, and the speedup of each contender so far.

A bar on a terminal, elsewhere a line for every tenth.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic

import attrs
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from spec_commands.common import is_terminal, print_note
from spec_commands.printing import escape_controls

from spec_compare.figures.summary import Text, text_of
from spec_compare.records.record import Lap

LINES = 10
"""Max lines without a terminal."""


@contextmanager
def progress(
    total: int, done: Iterable[Lap] = (), labels: Container[str] = (), now: Callable[[], float] = monotonic
) -> Iterator[Callable[[Lap], None]]:
    """A function to call with each lap.

    total: number of all laps. done: laps of the run that was interrupted. labels: contenders whose text may differ.
    """
    state = State(total, now, labels)
    for lap in done:
        state.add(lap)
    state.start()
    if not is_terminal(sys.stderr):
        yield lambda lap: _line(state, lap)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}  {task.fields[speedups]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring", total=total, completed=state.done, left="", speedups="")

        def on_lap(lap: Lap) -> None:
            state.add(lap)
            bar.update(
                task, completed=state.done, left=state.time_left(), speedups=escape(escape_controls(state.speedups()))
            )

        yield on_lap


def _line(state: State, lap: Lap) -> None:
    """A line when another tenth of the work is done."""
    before = state.done * LINES // state.total
    state.add(lap)
    if state.done * LINES // state.total > before:
        details = ", ".join(part for part in (state.time_left(), state.speedups()) if part)
        print_note(f"measured {state.done} of {state.total}" + (f": {details}" if details else ""))


SHOWN = 4
"""Max contenders that the progress names."""


@attrs.define(eq=False)
class State:
    """The laps so far. Speedups are over prompts that both the contender and its baseline have finished."""

    total: int
    now: Callable[[], float]
    labels: Container[str] = ()
    done: int = 0
    began: float = 0.0
    before: int = 0
    totals: dict[tuple[str, str, int], tuple[int, float]] = attrs.field(factory=dict)
    texts: dict[tuple[str, Text, int], list[int]] = attrs.field(factory=dict)
    baselines: dict[str, str] = attrs.field(factory=dict)

    def start(self) -> None:
        """Count the time from here."""
        self.began, self.before = self.now(), self.done

    def add(self, lap: Lap) -> None:
        self.done += 1
        for record in lap.records:
            self.baselines[record.contender] = record.baseline
            key = (record.contender, record.prompt, record.repeat)
            tokens, seconds = self.totals.get(key, (0, 0.0))
            self.totals[key] = (tokens + record.decode_tokens, seconds + record.decode_seconds)
            self.texts[record.contender, text_of(record), record.repeat] = record.content

    def time_left(self) -> str:
        """The time left, from the pace of the laps of this run."""
        measured = self.done - self.before
        if not measured or self.done >= self.total:
            return ""
        return f"{duration((self.now() - self.began) / measured * (self.total - self.done))} left"

    def speedups(self) -> str:
        """``NAME 1.43×`` of the contenders, of many the fastest; no figure for one whose text differs."""
        names = [name for name, baseline in self.baselines.items() if name != baseline]
        fastest = names if len(names) <= SHOWN else sorted(names, key=self._ratio, reverse=True)[:SHOWN]
        more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
        return ", ".join([*(f"{name} {self._speedup(name)}" for name in fastest), *more])

    def _speedup(self, name: str) -> str:
        if name not in self.labels and self._differs(name):
            return "has another text"
        ratio = self._ratio(name)
        return f"{ratio:.2f}×" if ratio else "-"

    def _ratio(self, name: str) -> float:
        """The speedup so far; 0 without one."""
        rate, plain = self._rate(name, name), self._rate(self.baselines[name], name)
        return rate / plain if rate and plain else 0.0

    def _differs(self, name: str) -> bool:
        """Whether a text differs from that of its baseline, where that has finished."""
        own_texts = [(key, tokens) for key, tokens in self.texts.items() if key[0] == name]
        return any(self.texts.get((self.baselines[name], *key[1:]), tokens) != tokens for key, tokens in own_texts)

    def _rate(self, of: str, beside: str) -> float:
        """Decoded tokens per second on what both have finished."""
        keys = [key for key in self.totals if key[0] == of and self._has(beside, key[1], key[2])]
        both = [self.totals[key] for key in keys if self.totals[key][1] > 0]
        seconds = sum(s for _, s in both)
        return sum(n for n, _ in both) / seconds if seconds else 0.0

    def _has(self, name: str, prompt: str, repeat: int) -> bool:
        return (name, prompt, repeat) in self.totals and (self.baselines[name], prompt, repeat) in self.totals


def duration(seconds: float) -> str:
    """``50 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
