"""Progress of a comparison: the time left and the speedups so far, on a clock that the test drives."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from spec_compare.measuring import progress as module
from spec_compare.measuring.progress import State, duration, progress
from spec_compare.records.record import Lap, Record, Steps


def lap(name: str, prompt: str, seconds: float, tokens: int = 11, baseline: str = "plain", text: int = 1) -> Lap:
    record = Record(
        name, prompt, "f", 0, 0, 5, [text] * tokens, "length", 1, seconds, 1 + seconds, 0, Steps(), baseline=baseline
    )
    return Lap(name, "f", 0, 1 + seconds, 0, {}, {}, {}, [record])


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


def test_the_time_left_follows_from_the_laps_of_this_run():
    """Laps of the interrupted run took no time in this one."""
    clock = Clock()
    state = State(10, clock)
    for _ in range(4):
        state.add(lap("plain", "a", 1))
    state.start()
    assert state.time_left() == ""
    clock.time = 20.0
    for _ in range(2):
        state.add(lap("plain", "a", 1))

    assert state.time_left() == "40 s left", "two of six remaining laps took 20 seconds"


@pytest.mark.parametrize(
    ("seconds", "message"), [(5, "5 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (12000, "3 h 20 min")]
)
def test_a_duration_has_the_unit_that_suits_it(seconds, message):
    assert duration(seconds) == message


def test_the_speedup_is_that_of_prompts_which_both_have_finished():
    state = State(9, Clock())
    for one in (lap("plain", "a", 4), lap("fast", "a", 2), lap("fast", "b", 100), lap("plain", "c", 100)):
        state.add(one)

    assert state.speedups() == "fast 2.00×"


def test_each_contender_has_its_own_baseline():
    state = State(9, Clock())
    for one in (lap("plain", "a", 4), lap("warm", "a", 9, baseline="warm"), lap("fast", "a", 3, baseline="warm")):
        state.add(one)

    assert state.speedups() == "fast 3.00×"


def test_a_contender_with_another_text_has_no_speedup_in_any_order():
    """The order of laps rotates: a lossy contender may come before plain decoding."""
    state = State(9, Clock(), labels=["lossy"])
    for one in (lap("lossy", "a", 1, text=9), lap("wrong", "a", 1, text=7), lap("fast", "a", 2), lap("plain", "a", 4)):
        state.add(one)

    assert state.speedups() == "lossy 4.00×, wrong has another text, fast 2.00×"


def test_a_terminal_shows_a_bar_with_both(monkeypatch):
    """Names are shown as they are, not as markup."""
    out = io.StringIO()
    monkeypatch.setattr(module, "is_terminal", lambda stream: True)
    monkeypatch.setattr(module, "Console", lambda stderr: Console(file=out, force_terminal=True, width=120))
    with progress(3) as on_lap:
        on_lap(lap("plain", "a", 4))
        on_lap(lap("[bold]", "a", 2))

    assert "[bold] 2.00×" in out.getvalue() and "2/3" in out.getvalue() and "left" in out.getvalue()
