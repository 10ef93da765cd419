"""Rows for ``process``: every committed row once, in order, with its next token and hidden states."""

from __future__ import annotations

import pytest
import torch
from toys import DRAFTERS, STRATEGIES, Watcher, drafter, finish, plain, sampling_keywords, texts, toy_run

from spec_core import Compat, Needs, Request, Run, hookimpl
from spec_core.errors import NotRequested
from spec_core.testing import ToyTarget
from tests.support.pairs import every_pair


def watch(kind: str, requests: list[Request], strategy: str = "snapshot", **settings):
    watcher = Watcher(hidden=(0, 1, 2))
    run = toy_run([drafter(kind, texts(requests)), watcher], strategy, **settings)
    seqs = [run.submit(r) for r in requests]
    finish(run)
    return watcher, run, seqs


@every_pair(chunk=[1, 3, 256], strategy=STRATEGIES, kind=DRAFTERS)
def test_every_row_is_told_once_with_fresh_hidden_states(chunk, strategy, kind):
    """With chunks, rewinding and trees: contiguous rows, right next tokens, states equal to a new forward's."""
    requests = [
        Request(list(range(2, 4 + 6 * i)), max_tokens=11, name=f"{i}", **sampling_keywords(i)) for i in range(3)
    ]

    watcher, run, seqs = watch(kind, requests, strategy, prefill_chunk=chunk, draft_max=3, max_batched_tokens=13)

    for seq in seqs:
        watcher.check(run.target, seq)


@pytest.mark.parametrize("kind", ["all-right", "none-right", "trees"])
def test_a_finishing_sequence_tells_all_rows_but_its_last(kind):
    """The last token is never evaluated; all rows before it are delivered, also in the last step."""
    requests = [Request([3, 1, 4], max_tokens=n, name=f"{n}") for n in (1, 2, 5, 9)]

    watcher, _, seqs = watch(kind, requests)

    for seq in seqs:
        assert list(range(len(seq.tokens) - 1)) == [m["position"] for m in watcher.received[seq]]


def test_chunks_of_a_prompt_are_told_as_they_come():
    """A learner receives a long prompt chunk by chunk, with the next token of each chunk's last row."""
    watcher = Watcher()
    run = Run(ToyTarget(), [watcher], prefill_chunk=4, draft_max=0)
    seq = run.submit(list(range(10)), max_tokens=1)
    received = []
    while run.busy:
        run.step()
        received.append(len(watcher.received[seq]))

    assert received == [4, 8, 10]
    assert [*range(1, 10), seq.tokens[10]] == [m["next"] for m in watcher.received[seq]]


def test_a_request_without_a_method_tells_it_nothing():
    """Rows go to the plugins that may draft for the sequence, and to all plugins that draft nothing."""
    request = Request([1, 2, 3], max_tokens=4, name="a")

    class Learner(Watcher):
        from spec_core import Compat, hookimpl

        @hookimpl
        def compat(self):
            return self.Compat(drafts={"deterministic"})

        @hookimpl
        def draft(self, step):
            assert not list(step.undrafted)

    learner, watcher = Learner(), Watcher()
    run = toy_run([("learner", learner), watcher])
    seq = run.submit(request, methods=())
    finish(run)

    assert seq not in learner.received
    assert seq in watcher.received


def test_needs_are_the_union_of_what_plugins_ask():
    """Two plugins with different needs: one forward gives each at least what it needs."""
    one, other = Watcher(hidden=(0,), final=False), Watcher(hidden=(2,), final=True)
    run = Run(ToyTarget(), [("one", one), ("other", other)])
    seq = run.submit([1, 2, 3], max_tokens=3)
    finish(run)

    assert {0, 2} == set(one.received[seq][0]["hidden"])
    one.check(run.target, seq)
    other.check(run.target, seq)


@pytest.mark.parametrize("all_logits", [False, True], ids=["deciding-rows", "all-rows"])
def test_logits_of_a_sequence_start_at_its_last_committed_token(all_logits):
    """``step.logits(seq)`` is [1+K, V] whether or not a plugin needs the logits of every row."""
    from spec_core import Compat, Needs, hookimpl

    seen = []

    class Reader:
        @hookimpl
        def compat(self):
            return Compat(needs=Needs(all_logits=all_logits), drafts=())

        @hookimpl
        def process(self, rows):
            for seq, _ in rows.by_sequence():
                part = rows.step.part(seq)
                if part.decides:
                    seen.append((1 + part.drafted, *rows.step.logits(seq).shape))
                    assert part.emitted[0] == int(rows.step.logits(seq)[0].argmax())

    requests = [Request(list(range(3 * i + 2)), max_tokens=8, name=f"{i}") for i in range(3)]
    run = toy_run([drafter("every-other-right", texts(requests)), Reader()], prefill_chunk=2, draft_max=2)
    seqs = [run.submit(r) for r in requests]
    finish(run)

    assert [plain(r).tokens for r in requests] == [run.take(s).tokens for s in seqs]
    assert seen and all(rows == got and vocab == 48 for rows, got, vocab in seen)


@pytest.mark.parametrize("chunk", [2, 3, 9], ids=lambda c: f"chunk-{c}")
def test_embedded_prompt_positions_are_delivered_as_next_embeds(chunk):
    """A prompt row passed as an embedding has token -1; the row before it gets the embedding, also across chunks."""
    embeds = {0: torch.ones(12, dtype=torch.float64), 3: torch.zeros(12, dtype=torch.float64) + 0.5}
    request = Request([-1, 2, 3, -1, 5], max_tokens=6, name="a", embeds=embeds)
    known = {"a": [-1, 2, 3, -1, 5, *plain(request).tokens]}
    for kind in DRAFTERS:
        watcher = Watcher(hidden=(0, 1, 2))
        run = toy_run([drafter(kind, known), watcher], "checkpoint", prefill_chunk=chunk, draft_max=1)
        seq = run.submit(request)
        finish(run)

        assert known["a"] == [max(token, -1) for token in seq.tokens]
        assert [m["embed"] is not None for m in watcher.received[seq][:5]] == [False, False, True, False, False]
        watcher.check(run.target, seq)


def test_hidden_states_that_nobody_asked_for_say_how_to_ask():
    """A missing hidden state of a span or of the output gives a message that names it, not a KeyError."""
    warnings = []

    class Reads:
        @hookimpl
        def compat(self):
            return Compat(needs=Needs(hidden={1}), drafts=())

        @hookimpl
        def process(self, rows):
            for _, span in rows.by_sequence():
                assert span.hidden[1] is not None and span.hidden.get(2) is None
                for read in (span.hidden, rows.step.output.hidden):
                    with pytest.raises(NotRequested) as error:
                        read[2]
                    warnings.append(str(error.value))

    Run(ToyTarget(), [Reads()]).generate([1, 2], max_tokens=1).result

    assert len(warnings) == 2
    assert warnings[0].startswith("hidden[2] was not requested (got 1)") and "Needs(hidden={2})" in warnings[0]
