"""Steps in which nobody drafts, and methods that are dropped from a sequence, as a controller says."""

from __future__ import annotations

import attrs
import pytest

from spec_core import Compat, Draft, Needs, PluginError, Request, Run, hookimpl
from spec_core.testing import ToyTarget
from spec_core.testing.toy import ToyTarget as Toy

REQUEST = Request([3, 1, 4], max_tokens=30)


@attrs.define(eq=False)
class Method:
    """Notes the steps in which its hooks are called."""

    calls: dict[str, list[int]] = attrs.field(factory=lambda: {"draft": [], "rollback": [], "process": []})
    needs: Needs = Needs()
    catches_up: bool = False

    @hookimpl
    def compat(self):
        return Compat(needs=self.needs, catches_up=self.catches_up)

    @hookimpl
    def draft(self, step):
        self.calls["draft"].append(step.number)
        for seq, _ in step.undrafted:
            step.propose(seq, Draft([1]))

    @hookimpl
    def rollback(self, step):
        self.calls["rollback"].append(step.number)

    @hookimpl
    def process(self, rows):
        self.calls["process"].append(rows.step.number)


@attrs.define(eq=False)
class Controller:
    """act: called with each step in the draft hook. asked, rolled: steps in which its hooks were called.

    passed: what it could read of steps since the last call.
    """

    act: object
    asked: list[int] = attrs.field(factory=list)
    rolled: list[int] = attrs.field(factory=list)
    passed: list[list[int]] = attrs.field(factory=list)

    @hookimpl
    def compat(self):
        return Compat(drafts=())

    @hookimpl
    def draft(self, step):
        self.asked.append(step.number)
        self.passed.append([spent.number for spent in step.records])
        self.act(step)

    @hookimpl
    def rollback(self, step):
        self.rolled.append(step.number)


def rests(step):
    """Rest in the third step and no other."""
    if step.number == 2:
        step.rest(5)


def rest_with_others(step):
    if step.number == 2:
        step.rest(5, joining=True)


def run_of(act, *requests, method=None, **settings):
    method, controller = method or Method(), Controller(act)
    run = Run(ToyTarget(recurrent=False), [("method", method), controller], **settings)
    results = [generated.result.tokens for generated in run.generate(list(requests))]
    assert results == [Run(ToyTarget(recurrent=False)).generate(request).result.tokens for request in requests]
    return method, controller


def test_nobody_is_asked_for_drafts_in_a_rest():
    method, controller = run_of(rests, REQUEST)

    assert method.calls["draft"][:4] == controller.asked[:4] == [1, 2, 8, 9]
    assert controller.rolled[:5] == [0, 1, 2, 8, 9]
    assert method.calls["process"][:9] == method.calls["rollback"][:9] == list(range(9))
    assert controller.passed[:5] == [[], [1], [2, 6, 7], [8], [9]]


def test_a_method_that_says_so_is_not_called_at_all_in_a_rest():
    method, _ = run_of(rests, REQUEST, method=Method(catches_up=True))

    assert method.calls["draft"][:4] == method.calls["rollback"][:4] == [1, 2, 8, 9]
    assert method.calls["process"] == [0]


def test_a_method_that_catches_up_is_called_after_the_draft_hook_only_for_drafts_and_prompts():
    class Seldom(Method):
        @hookimpl
        def draft(self, step):
            self.calls["draft"].append(step.number)
            for seq, _ in step.undrafted:
                if step.number % 3 == 0:
                    step.propose(seq, Draft([1]))

    method, _ = run_of(lambda step: None, REQUEST, method=Seldom(catches_up=True))

    assert method.calls["draft"][:8] == list(range(1, 9))
    assert method.calls["rollback"][:3] == [3, 6, 9]
    assert method.calls["process"] == [0]


def test_rows_of_a_prompt_are_delivered_in_a_rest_even_to_a_method_that_need_not_be_called():
    """What it reads then is not missing from the first draft."""
    run = Run(ToyTarget(recurrent=False), [("method", method := Method(catches_up=True)), Controller(rest_with_others)])
    run.submit(REQUEST)
    for _ in range(4):
        run.step()
    run.submit(Request([2, 7, 1], max_tokens=9))
    list(run)

    assert method.calls["process"] == [0, 4]


def test_a_plugin_that_judges_is_called_in_a_rest_whatever_it_says():
    """Without its verdicts there would be no text."""

    class Judging(Method):
        @hookimpl
        def accept(self, step):
            self.calls.setdefault("accept", []).append(step.number)

    method, _ = run_of(rests, REQUEST, method=Judging(catches_up=True))

    assert method.calls["accept"][:9] == method.calls["process"][:9] == list(range(9))


def test_a_sequence_that_joins_ends_a_rest_if_a_method_serves_it():
    run = Run(ToyTarget(recurrent=False), [("method", method := Method()), Controller(rests)])
    run.submit(REQUEST)
    for _ in range(4):
        run.step()
    run.submit(Request([2, 7, 1], max_tokens=9))
    list(run)

    assert method.calls["draft"][:3] == [1, 2, 4]


def test_a_sequence_that_joins_does_not_end_a_rest_that_is_meant_for_it_too():
    run = Run(ToyTarget(recurrent=False), [("method", method := Method()), Controller(rest_with_others)])
    run.submit(REQUEST)
    for _ in range(4):
        run.step()
    joined = run.submit(Request([2, 7, 1], max_tokens=9))
    list(run)

    assert joined.wants("method")
    assert method.calls["draft"][:3] == [1, 2, 8]


def test_a_sequence_that_joins_a_rest_without_a_method_is_not_served_by_it():
    def rest_without(step):
        if step.number == 2:
            step.rest(5, without=["method"])

    run = Run(ToyTarget(recurrent=False), [("method", method := Method()), Controller(rest_without)])
    run.submit(REQUEST)
    for _ in range(4):
        run.step()
    joined = run.submit(Request([2, 7, 1], max_tokens=9))
    list(run)

    assert not joined.wants("method")
    assert method.calls["draft"][:3] == [1, 2, 8]


@pytest.mark.parametrize("joining", [False, True])
def test_a_sequence_that_joins_and_wants_no_control_ends_every_rest_and_is_served(joining):
    def rest_for_all(step):
        if step.number == 2:
            step.rest(5, without=["method"], joining=joining)

    run = Run(ToyTarget(recurrent=False), [("method", method := Method()), Controller(rest_for_all)])
    first = run.submit(Request([3, 1, 4], max_tokens=4))
    list(run)
    joined = run.submit(Request([2, 7, 1], max_tokens=9, control=False))
    list(run)

    assert first.finish == joined.finish == "length"
    assert joined.wants("method")
    assert method.calls["draft"][:5] == [1, 2, 5, 6, 7]


def test_a_rest_needs_all_sequences():
    """One that wants no control drafts as it likes."""
    method, _ = run_of(rests, REQUEST, attrs.evolve(REQUEST, control=False))

    assert method.calls["draft"][:6] == [1, 2, 3, 4, 5, 6]


def test_a_dropped_method_is_not_called_and_its_hidden_states_are_not_computed(monkeypatch):
    def drops(step):
        if step.number == 3:
            for part in step.parts:
                step.drop(part.seq, "method")

    asked = []
    forward = Toy.forward
    monkeypatch.setattr(Toy, "forward", lambda self, batch, needs: asked.append(needs) or forward(self, batch, needs))

    method, _ = run_of(drops, REQUEST, method=Method(needs=Needs(hidden={0}, final=True)))

    assert method.calls["draft"] == [1, 2, 3]
    assert max(method.calls["process"]) == max(method.calls["rollback"]) == 3
    with_hidden = [bool(needs.hidden) and needs.final for needs in asked[:8]]
    assert with_hidden == [True] * 4 + [False] * 4


def test_a_dropped_method_serves_the_next_request_which_reuses_only_what_it_has_seen():
    def drops(step):
        if step.number == 3:
            step.drop(step.parts[0].seq, "method")

    method = Method()
    run = Run(ToyTarget(recurrent=False), [("method", method), Controller(drops)], max_sequences=1)
    first = run.generate(REQUEST).result.tokens
    calls = len(method.calls["draft"])
    second = run.submit(Request([3, 1, 4, *first[:20]], max_tokens=5))
    list(run)

    assert len(method.calls["draft"]) > calls
    assert 3 <= second.reused < 10


@pytest.mark.parametrize("call", [lambda step: step.rest(3), lambda step: step.drop(step.parts[0].seq, "other")])
def test_only_controllers_may_say_so(call):
    class Rests(Method):
        @hookimpl
        def draft(self, step):
            call(step)

    run = Run(ToyTarget(recurrent=False), [("method", Rests()), ("other", Method())], on_error="isolate")
    run.generate(REQUEST).result

    assert "is for controllers" in run.stats.switched_off["method"]


@pytest.mark.parametrize(
    "act",
    [lambda step: step.rest(-1), lambda step: step.hold(-1, 0.0, 0.0), lambda step: step.hold(1, 0.0, 0.0, rest=-1)],
    ids=["rest", "hold", "rest after hold"],
)
def test_fewer_steps_than_none_are_refused(act):
    """They would never be over."""
    run = Run(ToyTarget(recurrent=False), [("method", Method()), Controller(act)])
    with pytest.raises(PluginError, match="-1 steps: a number of steps is 0 or more"):
        run.generate(REQUEST).result
