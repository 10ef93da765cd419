"""The order of plugins, and refusals before anything runs."""

from __future__ import annotations

import attrs
import pytest
from toys import Fixed, dense, finish, ones, plain

from spec_core import Compat, Draft, DraftPlan, Limit, Request, Run, UsageError, hookimpl
from spec_core.assembly.construct import PluginInstance
from spec_core.errors import PluginError
from spec_core.testing import DrafterConformance, ToyTarget, check_conformance

DENSE = {"recurrent": False}


def test_methods_are_asked_in_the_users_order():
    """Methods draft in the order in which they are named."""
    asked = []

    def noting(name):
        return name, Fixed(lambda step, seq, budget: asked.append(name))

    run = dense([noting("b"), noting("a"), noting("c")])
    list(run.generate([1], max_tokens=3))

    assert asked == ["b", "a", "c"]


def test_what_one_method_serves_the_next_no_longer_sees():
    """The first proposal is kept; later methods are offered the remaining sequences."""
    requests = [Request([i, i], max_tokens=6, name=f"{i}") for i in range(3)]
    first = Fixed(lambda step, seq, budget: Draft([1]) if seq.name == "1" else None)
    second = Fixed(lambda step, seq, budget: None)
    run = dense([("first", first), ("second", second)])
    for request in requests:
        run.submit(request)
    finish(run)

    assert {"0", "1", "2"} == {name for name, _ in first.asked}
    assert {"0", "2"} == {name for name, _ in second.asked}


def test_a_draft_carries_the_name_of_its_source():
    """Events have the source of an accepted token; the target's own tokens have none."""
    request = Request([1, 2, 3], max_tokens=9, name="a")
    text = [1, 2, 3, *plain(request, **DENSE).tokens]
    right = Fixed(lambda step, seq, budget: Draft(text[len(seq.tokens) :][: min(2, budget)]))
    run = dense([("mine", right)])

    sources = [event.source for event in run.generate(request)]

    assert sources == [None, "mine", "mine", None, "mine", "mine", None, "mine", None]


@pytest.mark.parametrize("marked", [True, False], ids=["tryfirst", "declared"])
def test_a_controller_is_asked_before_everybody(marked):
    """Plugins that draft nothing are called first, wherever they are named."""
    order = []

    class Control:
        @hookimpl
        def compat(self):
            return None if marked else Compat(drafts=())

        @hookimpl(tryfirst=marked)
        def draft(self, step):
            order.append("control")

    run = dense([("m", Fixed(lambda step, seq, budget: order.append("method"))), Control()])
    list(run.generate([1], max_tokens=3))

    assert order == ["control", "method"]


def test_a_controller_named_last_limits_what_the_others_draft():
    """After a method it would have no effect."""

    class Halves:
        @hookimpl
        def compat(self):
            return Compat(drafts=())

        @hookimpl
        def draft(self, step):
            step.plan(DraftPlan({"m": Limit(1)}))

    offered = []
    run = dense([("m", Fixed(lambda step, seq, budget: offered.append(budget))), Halves()])
    list(run.generate([1, 2], max_tokens=9))

    assert {1} == set(offered)


def test_an_entry_point_of_controllers_drafts_nothing():
    """The entry point group declares it; ``compat`` need not."""

    class Control:
        @hookimpl
        def draft(self, step):
            pass

    assert PluginInstance("c", Control(), kind="control").controls
    assert not PluginInstance("c", Control()).controls


def test_only_what_drafts_nothing_may_limit():
    """An undeclared controller would have no effect after a method, so it is refused in any position."""

    class Unsaid:
        @hookimpl
        def draft(self, step):
            step.plan(DraftPlan({"m": Limit(1)}))

    with pytest.raises(PluginError, match=r"'unsaid' failed in draft.* step\.plan is for controllers"):
        list(dense([Unsaid(), ("m", ones())]).generate([1, 2], max_tokens=4))


def test_spec_check_tells_a_controller_that_does_not_declare_itself():
    """After a method that always drafts it would never have an effect, and nothing of a run would show that."""

    class Unsaid:
        @hookimpl
        def draft(self, step):
            for _ in step.undrafted:
                step.plan(DraftPlan({"m": Limit(1)}))

    broken = [outcome.found for outcome in check_conformance(DrafterConformance, Unsaid) if outcome.result == "broken"]

    assert any("return Compat(drafts=()) from compat" in text for text in broken)


def test_a_controller_that_comes_last_is_refused():
    """No sequence is left for the controller to limit."""

    class Late:
        @hookimpl(trylast=True)
        def draft(self, step):
            pass

    with pytest.raises(UsageError, match="never drafts and its draft hook is marked trylast"):
        dense([("m", ones()), Late()])


@pytest.mark.parametrize("mark", ["tryfirst", "trylast", "wrapper"])
def test_a_drafter_that_would_jump_the_users_order_is_refused(mark):
    """Marked and drafting: refused at load."""

    class Jumps:
        @hookimpl
        def compat(self):
            return Compat(drafts={"deterministic"})

        if mark == "wrapper":

            @hookimpl(wrapper=True)
            def draft(self, step):
                return (yield)

        else:

            @hookimpl(**{mark: True})
            def draft(self, step):
                pass

    with pytest.raises(UsageError, match="overrides the user's order"):
        dense([Jumps()])


def test_a_marked_plugin_that_drafts_in_secret_fails():
    """A plugin with a ``tryfirst`` hook counts as a controller; a proposal of it is an error."""

    class Secret:
        @hookimpl(tryfirst=True)
        def draft(self, step):
            for seq, _ in step.undrafted:
                step.propose(seq, Draft([1]))

    with pytest.raises(PluginError, match="compat declared none"):
        list(dense([Secret(), ("other", ones())]).generate([1], max_tokens=3))


def test_a_controller_alone_makes_no_drafting_run():
    """Plugins that draft nothing need no owner of recurrent state: plain decoding."""

    class Control:
        @hookimpl(tryfirst=True)
        def draft(self, step):
            raise AssertionError("nobody may draft, so nobody is asked")

    result = Run(ToyTarget(), [Control()]).generate([1, 2], max_tokens=5).result

    assert plain(Request([1, 2], max_tokens=5)).tokens == result.tokens


def test_a_tracing_wrapper_is_no_drafter():
    """A wrapper is called around every turn; it does not turn plain decoding into a drafting run."""
    seen = []

    class Traces:
        @hookimpl(wrapper=True)
        def draft(self, step):
            seen.append("before")
            yield
            seen.append(sum(part.drafted for part in step.parts))

        @hookimpl(wrapper=True)
        def process(self, rows):
            return (yield)

    assert not Run(ToyTarget(), [Traces()]).drafters
    run = dense([("m", ones(2)), Traces()])
    list(run.generate([1], max_tokens=4))
    assert seen[:2] == ["before", 2]


def test_old_style_wrappers_are_refused():
    """One kind of wrapper is enough to guard."""

    class Old:
        @hookimpl(hookwrapper=True)
        def draft(self, step):
            yield

    with pytest.raises(UsageError, match="old-style"):
        dense([Old()])


def test_a_misspelt_hook_is_refused():
    """pluggy would ignore it; the message names the nearest hook."""

    class Misspelt:
        @hookimpl
        def proces(self, rows):
            pass

    with pytest.raises(UsageError, match="'proces', which is not a hook") as error:
        dense([Misspelt()])
    assert "hooks: process" in error.value.hint


@pytest.mark.parametrize("signature", ["self, rows", "self, step, seq", "self, **more", "self, steps"])
def test_wrong_argument_names_are_refused(signature):
    """A hook is called by keyword: an argument it does not have is a mistake, found at load."""
    scope = {"hookimpl": hookimpl}
    exec(f"class Wrong:\n @hookimpl\n def draft({signature}): pass", scope)

    with pytest.raises(UsageError, match="draft has no argument"):
        dense([scope["Wrong"]()])


def test_arguments_with_defaults_are_refused():
    """pluggy versions differ in who wins, the default or the caller."""

    class Default:
        @hookimpl
        def draft(self, step=None):
            pass

    with pytest.raises(UsageError, match="'step' of draft has a default"):
        dense([Default()])


def test_hooks_may_leave_arguments_out():
    """An implementation names only what it uses."""
    calls = []

    class Short:
        @hookimpl
        def compat(self):
            return Compat(drafts=())

        @hookimpl
        def draft(self):
            calls.append("draft")

        @hookimpl
        def process(self):
            calls.append("process")

    list(dense([Short(), ("m", ones())]).generate([1], max_tokens=3))

    assert {"draft", "process"} == set(calls)


@pytest.mark.parametrize("plugin", [Fixed, object(), attrs.make_class("Empty", [])()], ids=["class", "object", "empty"])
def test_a_plugin_without_hooks_is_refused(plugin):
    """A class instead of an instance, or a missing ``hookimpl``, is refused; it would run as plain decoding."""
    with pytest.raises(UsageError, match="implements no hook"):
        dense([("it", plugin)])


@pytest.mark.parametrize("name", ["coupled", "target"])
def test_the_cores_own_names_cannot_be_taken(name):
    """A plugin under such a name would silently not be registered, or stand in for the core."""
    with pytest.raises(UsageError, match=name):
        dense([(name, ones())])


def test_a_name_cannot_be_taken_twice():
    """Settings, statistics and requests speak of plugins by name."""
    with pytest.raises(UsageError, match="m is named twice"):
        dense([("m", ones()), ("m", ones())])


def test_equal_instances_may_run_together():
    """Two of one class, under two names."""
    run = dense([("one", ones()), ("two", ones())])

    assert {"one", "two"} == run.drafters


def test_a_compat_of_another_type_is_refused():
    """The message says who returned what."""

    class Odd:
        @hookimpl
        def compat(self):
            return {"owns": "attention"}

    with pytest.raises(UsageError, match="compat of odd returned dict"):
        dense([Odd()])


# owners
