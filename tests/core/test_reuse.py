"""A new request reuses the rows of an earlier one, as far as they are certain to be equal."""

from __future__ import annotations

import pytest
import torch
from toys import DRAFTERS, Watcher, assert_state, drafter, finish, finish_checked, plain, sampling_keywords, texts

from spec_core import Compat, Request, Run, StashKey, hookimpl
from spec_core.contract.fields import field_of
from spec_core.testing import ToyRollback, ToyTarget

DENSE = {"recurrent": False}


def dense(methods=(), **settings) -> Run:
    return Run(ToyTarget(**DENSE), methods=methods, **settings)


def turn(run: Run, prompt: list[int], **more):
    seq = run.submit(Request(prompt, **more))
    finish_checked(run)
    return seq, run.take(seq)


@pytest.mark.parametrize("kind", [None, *DRAFTERS])
def test_a_second_turn_reuses_the_rows_of_the_first_and_equals_fresh(kind):
    """The conversation goes on after prompt and answer; c equal rows, c - 1 of them are reused."""
    first = Request([1, 2, 3, 4], max_tokens=9, name="a", **sampling_keywords(1))
    answer = plain(first, **DENSE).tokens
    second = Request([1, 2, 3, 4, *answer, 7, 7], max_tokens=9, name="b", **sampling_keywords(2))
    known = texts([first, second], **DENSE)
    run = dense([drafter(kind, known)] if kind else [])

    turn(run, first.prompt, max_tokens=9, name="a", **sampling_keywords(1))
    seq, result = turn(run, second.prompt, max_tokens=9, name="b", **sampling_keywords(2))

    # 4 + 9 tokens, the last never evaluated: 12 equal rows, and the last of them has another next token
    assert result.reused == 11
    assert known["b"] == seq.tokens


@pytest.mark.parametrize("changed", range(1, 8))
def test_at_most_all_but_one_of_the_equal_rows_are_reused(changed):
    """The last equal row is followed by another token than before: a pair made from it would be stale."""
    prompt = [5, 6, 7, 8, 9, 10, 11, 12]
    run = dense()
    turn(run, prompt, max_tokens=3)
    other = [*prompt[:changed], 40, 41]

    _, result = turn(run, other, max_tokens=6)

    assert max(0, changed - 1) == result.reused
    assert plain(Request(other, max_tokens=6), **DENSE).tokens == result.tokens


def test_the_same_prompt_again_evaluates_its_last_token_again():
    """A prompt that the slot holds as a whole still decides: its last token is pending."""
    run = dense()
    turn(run, [5, 6, 7, 8], max_tokens=5)

    _, result = turn(run, [5, 6, 7, 8], max_tokens=5)

    assert result.reused == 3
    assert plain(Request([5, 6, 7, 8], max_tokens=5), **DENSE).tokens == result.tokens


def test_the_slot_with_the_longest_equal_beginning_is_taken():
    """Three slots, three conversations: each continues on its own slot."""
    run = dense(max_sequences=3)
    prompts = [[i] * 6 for i in (1, 2, 3)]
    for prompt in prompts:
        run.submit(prompt, max_tokens=1)
    finish(run)

    for prompt in reversed(prompts):
        _, result = turn(run, [*prompt, 9], max_tokens=4)
        assert result.reused == 5


def test_the_least_recently_used_slot_goes_when_nothing_can_be_reused():
    """Four slots, three texts that nobody goes on with, two conversations in turns: every later turn reuses."""
    run = dense(max_sequences=4)
    for i in (10, 20, 30):
        turn(run, [i] * 6, max_tokens=3)
    talks = {1: [1] * 6, 2: [2] * 6}

    reused = []
    for at in range(8):
        talk = talks[1 + at % 2]
        seq, result = turn(run, talk, max_tokens=3)
        reused.append((result.reused, len(talk)))
        talk[:] = [*seq.tokens, 7]

    assert reused[:2] == [(0, 6), (0, 6)]
    assert all(rows == length - 3 for rows, length in reused[2:])  # all but the last answer's end and the new token


def test_of_equally_long_beginnings_the_least_recently_used_goes():
    """With the same prefix in every slot, the slot of the latest conversation is reused."""
    run = dense(max_sequences=2)
    system = [5, 6, 7, 8]
    run.submit([*system, 30, 31], max_tokens=2)
    talk = run.submit([*system, 1, 2, 3, 4], max_tokens=4)
    finish(run)

    _, third = turn(run, [*system, 40, 41], max_tokens=2)
    _, goes_on = turn(run, [*talk.tokens, 11], max_tokens=2)

    assert third.reused == len(system) - 1
    assert goes_on.reused == len(talk.tokens) - 2


def test_a_slot_is_used_again_for_a_different_text():
    """Neither rows nor plugin data of the previous text are visible."""
    key = StashKey()
    seen = []

    class Remembers:
        @hookimpl
        def process(self, rows):
            for seq, span in rows.by_sequence():
                seen.append((seq.name, span.start, seq.stash.get(key)))
                seq.stash[key] = seq.name

    run = dense([Remembers()], max_sequences=1)
    for name, prompt in (("a", [1, 2, 3]), ("b", [4, 5, 6, 7, 8, 9])):
        _, result = turn(run, prompt, max_tokens=3, name=name)
        assert plain(Request(prompt, max_tokens=3), **DENSE).tokens == result.tokens

    assert [s for s in seen if s[1] == 0] == [("a", 0, None), ("b", 0, None)]


def test_nothing_is_reused_behind_what_every_learner_has_seen():
    """A method that did not receive the rows of a request is not offered a sequence that reuses them."""

    class Learner(Watcher):
        @hookimpl
        def compat(self):
            return Compat(drafts={"deterministic"})

        @hookimpl
        def draft(self, step):
            return None

    learner = Learner(hidden=())
    run = dense([("learner", learner)])
    turn(run, [1, 2, 3, 4, 5], max_tokens=4)  # received
    seq, result = turn(run, [1, 2, 3, 9, 9, 9, 9], max_tokens=4, methods=())  # not received: 2 reused, seen falls to 2
    assert result.reused == 2

    seq, result = turn(run, [1, 2, 3, 9, 9, 9, 9], max_tokens=4)

    assert result.reused == 2
    assert [m["position"] for m in learner.received[seq]] == list(range(2, len(seq.tokens) - 1))
    _, without = turn(run, [1, 2, 3, 9, 9, 9, 9], max_tokens=4, methods=())
    assert without.reused == 6


def test_rows_of_a_reused_prefix_are_not_told_again():
    """Learners receive rows from the first new one on; their earlier rows are still valid."""
    watcher = Watcher(hidden=(0, 1))
    run = dense([watcher])
    turn(run, [1, 2, 3, 4, 5], max_tokens=2)

    seq, result = turn(run, [1, 2, 3, 4, 8, 8], max_tokens=3)

    assert result.reused == 3 == watcher.received[seq][0]["position"]
    watcher.check(run.target, seq)


def test_reuse_can_be_switched_off():
    """``reuse=False`` evaluates every prompt anew."""
    run = dense(reuse=False, max_sequences=1)
    for _ in range(2):
        _, result = turn(run, [1, 2, 3, 4], max_tokens=3)
        assert result.reused == 0


def test_rows_of_an_embedding_are_reused_for_an_equal_one_alone():
    """Rows before another embedding are reused, and all rows for the same one."""

    def embed(value):
        return torch.full((12,), value, dtype=torch.float64)

    run, reused = dense(), []
    for value in (0.1, 0.9, 0.9, 0.1):
        request = Request([1, 2, 3, -1, 5, 6], max_tokens=5, embeds={3: embed(value)})
        seq = run.submit(request)
        finish_checked(run)
        result = run.take(seq)
        assert plain(request, **DENSE).tokens == result.tokens
        reused.append(result.reused)
    assert reused == [0, 2, 5, 2]  # the second text took the slot of the first


def test_an_embedding_hides_the_token_it_stands_for():
    """A token id given beside an embedding is not what the row holds: another prompt must not reuse it."""
    run = dense()
    seq = run.submit(Request([1, 2, 3, 4, 5, 6], max_tokens=2, embeds={2: torch.ones(12, dtype=torch.float64)}))
    finish(run)

    assert seq.tokens[2] < -1
    assert [*seq.tokens[:2], *seq.tokens[3:6]] == [1, 2, 4, 5, 6]
    _, result = turn(run, [1, 2, 3, 4, 5, 6], max_tokens=6)
    assert result.reused == 1
    assert plain(Request([1, 2, 3, 4, 5, 6], max_tokens=6), **DENSE).tokens == result.tokens


def test_a_slot_whose_sequence_was_cancelled_can_be_reused():
    """Cancelled in the middle of its prompt: the rows that were evaluated are valid."""
    run = dense(prefill_chunk=2, draft_max=0)
    seq = run.submit([1, 2, 3, 4, 5, 6, 7, 8], max_tokens=4)
    run.step()
    run.step()
    run.cancel(seq)
    run.step()

    _, result = turn(run, [1, 2, 3, 4, 5, 6, 7, 8], max_tokens=4)

    assert result.reused == 3
    assert plain(Request([1, 2, 3, 4, 5, 6, 7, 8], max_tokens=4), **DENSE).tokens == result.tokens


class Policy:
    """Keeps the recurrent state every few positions."""

    @hookimpl
    def process(self, rows):
        for seq, _ in rows.by_sequence():
            field_of(seq.slot, "checkpoints")[seq.evaluated] = rows.step.target.checkpoint(seq)


@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_hybrid_reuses_up_to_its_largest_checkpoint(kind):
    """Recurrent state cannot be cut: reuse ends at the last place it was kept, and text and state are right."""
    first = Request([1, 2, 3, 4, 5, 6, 7, 8], max_tokens=6, name="a")
    second = Request([1, 2, 3, 4, 5, 6, 7, 9, 9], max_tokens=8, name="b")
    known = texts([first, second])
    run = Run(ToyTarget(), [drafter(kind, known), Policy()], rollback=ToyRollback(), prefill_chunk=3, draft_max=2)

    turn(run, first.prompt, max_tokens=6, name="a")
    seq, result = turn(run, second.prompt, max_tokens=8, name="b")

    assert (result.reused, known["b"]) == (6, seq.tokens)
    assert_state(run.target, seq)


def test_a_hybrid_without_checkpoints_begins_anew():
    """Without a checkpoint nothing is reused."""
    run = Run(ToyTarget(), [])
    turn(run, [1, 2, 3, 4], max_tokens=4)

    assert turn(run, [1, 2, 3, 4, 5], max_tokens=4)[1].reused == 0


def test_checkpoints_behind_the_reused_beginning_are_forgotten():
    """A state of another text's future must not be taken for one of this."""
    run = Run(ToyTarget(), [Policy()], prefill_chunk=3, draft_max=0, max_sequences=1)
    turn(run, [1, 2, 3, 4, 5, 6, 7], max_tokens=6)  # states kept at 3, 6, 7, 8, ...
    second = [1, 2, 3, 4, 5, 30, 31, 32, 33, 34]
    assert turn(run, second, max_tokens=2)[1].reused == 3  # at 3, 6, 9, 10: those at 7 and 8 were another text's

    _, result = turn(run, [*second[:9], 40, 41], max_tokens=8)

    assert result.reused == 6
    assert plain(Request([*second[:9], 40, 41], max_tokens=8)).tokens == result.tokens
