"""Rows that are no drafts: evaluated with a step, read in ``rollback``, never kept, counted or shown to rules."""

from __future__ import annotations

import pytest
import torch

from spec_core import Compat, Draft, Needs, PluginError, Probes, Refused, Run, hookimpl
from spec_core.host import EngineModel, Host, Serves
from spec_core.testing import ToyRollback, ToyTarget
from spec_core.toolkit import evaluate
from tests.core.toys import Says

NEEDS = Needs(probes=4, trees=True, logits=True, hidden=frozenset({1}), final=True)


class Guesses:
    """Drafts two siblings, and probes what ``make(drafted)`` gives."""

    def __init__(self, make, drafts=True, needs=NEEDS) -> None:
        self.make, self.drafts, self.needs, self.read = make, drafts, needs, []

    @hookimpl
    def compat(self):
        return Compat(needs=self.needs, drafts={"deterministic"})

    @hookimpl
    def draft(self, step):
        for seq, _ in step.undrafted:
            if self.drafts:
                step.propose(seq, Draft([3, 4], parents=[-1, -1]))
            if step.probe_room(seq):
                step.probe(seq, self.make(step.part(seq).drafted))

    @hookimpl
    def rollback(self, step):
        for seq in step.verdicts:
            if (rows := step.probe_rows(seq)) is not None:
                self.read.append((list(seq.tokens), rows))
                assert len(step.logits(seq)) == 1 + step.part(seq).drafted


def dense(methods, **settings):
    return Run(ToyTarget(recurrent=False), methods, **settings)


def vector():
    return torch.linspace(-1, 1, 12, dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize("recurrent", [False, True])
def test_probes_change_no_text_and_no_count(recurrent, drafts, temperature):
    """With a vector among them, on a hybrid too, where a state must go back."""
    method = Guesses(lambda drafted: Probes([7, -1, 9], [-1, drafted, 0], {1: vector()}), drafts)
    target = ToyTarget(recurrent=recurrent)
    owner = ToyRollback() if recurrent else None
    run, plain = Run(target, [method], rollback=owner), Run(target)
    requests = [[1, 2, 3], [5, 6, 9, 9, 2]]
    texts = [
        [one.result for one in any_run.generate(requests, max_tokens=12, temperature=temperature, seed=4)]
        for any_run in (run, plain)
    ]

    assert [one.tokens for one in texts[0]] == [one.tokens for one in texts[1]]
    assert method.read
    assert (sum(one.stats["drafted"] for one in texts[0]) > 0) == drafts


def test_outputs_are_those_of_the_same_tokens_in_a_text():
    """Logits, hidden states and the state after the final norm."""
    method = Guesses(lambda drafted: Probes([7, 8], [-1, drafted]))
    run = dense([method])
    run.generate([1, 2, 3], max_tokens=6).result

    for text, rows in method.read:
        whole = evaluate(ToyTarget(recurrent=False), [*text, 7, 8], Needs(all_logits=True, hidden={1}, final=True))
        assert torch.equal(rows.logits, whole.logits[-2:])
        assert torch.equal(rows.hidden[1], whole.hidden[1][-2:])
        assert torch.equal(rows.final, whole.final[-2:])


def test_probes_may_follow_drafted_tokens():
    """Each after its own parent, also where another method extends the draft afterwards."""

    class Further(Says):
        @hookimpl
        def draft(self, step):
            for seq, _, leaf, _ in list(step.leaves)[:1]:
                step.extend(seq, Draft([6]), leaf)

    method = Guesses(lambda drafted: Probes([7, 8], [1, drafted]))
    run = dense([method, Further(extends=True)])
    run.generate([1, 2, 3], max_tokens=8).result

    assert run.stats.report()["drafted"] > 2
    for text, rows in method.read:
        whole = evaluate(ToyTarget(recurrent=False), [*text, 4, 7, 8], Needs(all_logits=True))
        assert torch.equal(rows.logits, whole.logits[-2:])


WRONG = {
    "5 rows are probed; 4 may be": lambda drafted: Probes([1] * 5),
    "0 rows are probed": lambda drafted: Probes([]),
    "1 parents for 2 probes": lambda drafted: Probes([1, 2], [-1]),
    "probe 1 has the parent 3": lambda drafted: Probes([1, 2], [-1, drafted + 1]),
    "probe 0 has the parent -2": lambda drafted: Probes([1], [-2]),
    "probe 0 has the id 48": lambda drafted: Probes([48]),
    "probe 0 has the id -1": lambda drafted: Probes([-1]),
    "probe 0 has the id 5": lambda drafted: Probes([5], embeds={0: vector()}),
    r"the vector of probe 0 is \[7\], floats \[12\] are needed": lambda drafted: Probes(
        [-1], embeds={0: torch.ones(7)}
    ),
    r"the vector of probe 0 is \[12\], floats": lambda drafted: Probes([-1], embeds={0: torch.ones(12).long()}),
    "the vector of probe 0 is not finite": lambda drafted: Probes([-1], embeds={0: vector() * torch.nan}),
    "a vector is given for probe 3 of 1": lambda drafted: Probes([5], embeds={3: vector()}),
    "ids and parents of probes must be integers": lambda drafted: Probes([0.5]),
    "probe needs Probes, got list": lambda drafted: [1, 2],
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_probes_are_the_plugins_error(message):
    """It is named, and with isolation the text is plain."""
    with pytest.raises(PluginError, match=rf"'guesses' failed in draft.*{message}"):
        dense([Guesses(WRONG[message])]).generate([1, 2], max_tokens=6).result
    isolated = dense([Guesses(WRONG[message])], on_error="isolate").generate([1, 2], max_tokens=6).result
    assert isolated.tokens == dense([]).generate([1, 2], max_tokens=6).result.tokens


def test_rows_are_reserved_for_all_methods_or_for_none():
    """The largest batch holds drafts and probes of all of them."""
    rooms = []

    class Asks(Says):
        @hookimpl
        def draft(self, step):
            rooms.extend(step.probe_room(seq) for seq, _ in step.undrafted)

    for most, expected in ((1 + 8 + 7, {4}), (1 + 8 + 6, {0})):
        rooms.clear()
        methods = [("one", Asks(needs=Needs(probes=4))), ("two", Says(needs=Needs(probes=3), drafts=()))]
        run = dense(methods, max_batched_tokens=most, draft_max=8)
        assert run.needs.probes == 7
        run.generate([1], max_tokens=20).result
        assert expected == {*rooms[:4]}


def test_a_vector_is_copied_when_it_is_probed():
    """A method may write into its buffer again."""
    buffers = []

    def make(drafted):
        buffers.append(vector())
        return Probes([-1], embeds={0: buffers[-1]})

    class Writes(Guesses):
        @hookimpl
        def draft(self, step):
            super().draft(step)
            for buffer in buffers:
                buffer.fill_(torch.nan)

    method = Writes(make)
    dense([method]).generate([1, 2], max_tokens=6).result
    assert all(bool(rows.logits.isfinite().all()) for _, rows in method.read)


def test_targets_and_engines_without_such_rows_refuse_by_name():
    """Before anything runs."""
    target = ToyTarget(recurrent=False)

    class Old(ToyTarget):
        probe_problem = "it is old"

    with pytest.raises(Refused, match="guesses adds rows to forwards that are no drafts, toy-0 cannot: it is old"):
        Run(Old(recurrent=False), [Guesses(lambda drafted: Probes([1]))])
    with pytest.raises(Refused, match="guesses adds rows to forwards that are no drafts"):
        Host(EngineModel(target.info), [Guesses(lambda drafted: Probes([1]))], Serves(logits=True, trees=True))
