"""A failing target ends the sequences of its step; a user's mistake does not end a run."""

from __future__ import annotations

import math

import pytest
import torch
from toys import Breaks, finish, finish_checked, ones, plain, requests

from spec_core import Request, Run, Sampling, UsageError
from spec_core.testing import ToyRollback, ToyTarget

# the target


@pytest.mark.parametrize("on_error", ["raise", "isolate"])
@pytest.mark.parametrize("at", [1, 2, 5])
def test_a_forward_that_raises_fails_only_that_steps_sequences(at, on_error):
    """The sequences release their slots; waiting and later requests run."""
    run = Run(Breaks(at), [ones()], rollback=ToyRollback(), max_sequences=2, on_error=on_error)
    seqs = [run.submit(r) for r in requests(5)]

    finish_checked(run)

    assert [s.finish for s in seqs[:2]] == ["error"] * 2
    for seq in seqs[:2]:
        with pytest.raises(RuntimeError, match="device lost"):
            run.take(seq)
    assert [plain(r).tokens for r in requests(5)[2:]] == [run.take(s).tokens for s in seqs[2:]]


def test_a_forward_that_raises_reaches_the_iterator():
    """Events that were emitted come first, then the error."""
    run = Run(Breaks(4))
    got = []
    with pytest.raises(RuntimeError, match="device lost"):
        for event in run.generate([1, 2, 3], max_tokens=9):
            got.append(event.token)

    assert plain(Request([1, 2, 3], max_tokens=3)).tokens == got


def test_a_target_without_memory_fails_the_request_it_has_none_for():
    """Others run on, and the next request is tried again."""

    class Small(ToyTarget):
        def open(self, seq, want):
            if seq.name == "1":
                raise MemoryError("no room for another slot")
            return super().open(seq, want)

    run = Run(Small(), max_sequences=2)
    seqs = [run.submit(r) for r in requests(4)]
    finish(run)

    with pytest.raises(MemoryError):
        run.take(seqs.pop(1))
    others = [r for r in requests(4) if r.name != "1"]
    assert [plain(r).tokens for r in others] == [run.take(s).tokens for s in seqs]


def test_a_failed_sequence_leaves_no_slot_behind():
    """The memory of its slot is given back, not reused."""
    closed = []

    class Noting(Breaks):
        def close(self, seq):
            closed.append(seq.name)
            super().close(seq)

    run = Run(Noting(2, recurrent=False), max_sequences=1)
    first = run.submit([1, 2, 3, 4, 5], max_tokens=4, name="first")
    finish(run)
    result = run.generate([1, 2, 3, 4, 5], max_tokens=4, name="second").result

    assert (closed, first.finish, result.reused) == (["first"], "error", 0)


# a user's mistake ends no run


@pytest.mark.parametrize(
    "request_, message",
    [
        (Request([48], max_tokens=3), "outside the vocabulary"),
        (Request([-1], max_tokens=3), "outside the vocabulary"),
        (Request([], max_tokens=3), "prompt is empty"),
        (Request([1], sampling=Sampling(logit_bias={48: 1.0})), "logit bias for token 48"),
        (Request([1], sampling=Sampling(logit_bias={-1: 1.0})), "logit bias for token -1"),
        (Request([1], sampling=Sampling(logit_bias={1: math.inf})), "logit bias inf"),
        (Request([1], sampling=Sampling(logit_bias={1: math.nan})), "logit bias nan"),
        (Request([1], draft_max=-1), "draft_max = -1"),
        (Request([1], embeds={1: torch.zeros(12)}), "position 1, the prompt has 1"),
        (Request([1], embeds={-1: torch.zeros(12)}), "position -1"),
        (Request([-1], embeds={0: torch.zeros(13)}), r"shape \[13\]"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_requests_are_checked_before_they_join(request_, message):
    """Refused at ``submit``, with a hint; running requests are not affected."""
    run = Run(ToyTarget())
    other = run.submit([1, 2], max_tokens=4)
    run.step()

    with pytest.raises(UsageError, match=message) as error:
        run.submit(request_)
    assert error.value.hint

    finish(run)
    assert plain(Request([1, 2], max_tokens=4)).tokens == run.take(other).tokens


@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": "hot"},
        {"temperature": True},
        {"temperature": 10**400},
        {"temperature": torch.tensor(0.5)},
        {"top_p": None},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"top_k": -1},
        {"top_k": 2.5},
        {"top_k": True},
        {"repetition_penalty": 0.0},
        {"presence_penalty": math.inf},
        {"logprobs": -1},
        {"logprobs": 1.5},
    ],
    ids=str,
)
def test_sampling_settings_are_checked_where_they_are_made(setting):
    """Out of range or of another kind: refused with the name of the setting."""
    with pytest.raises(UsageError, match=next(iter(setting))):
        Sampling(**setting)


def test_a_cancelled_request_that_waits_leaves_at_once():
    """It does not wait for a slot."""
    run = Run(ToyTarget(), max_sequences=1)
    first, _, third = (run.submit([i], max_tokens=6) for i in range(3))
    run.step()
    run.cancel(third)
    run.step()

    assert first.finish is None
    assert (run.results[third].finish_reason, run.results[third].tokens) == ("cancelled", [])
