"""A controller in the loop of another engine sees steps as in a run: drafts, what was accepted, and the time."""

from __future__ import annotations

from time import sleep

import pytest

from spec_core import Compat, DraftPlan, Limit, hookimpl
from spec_core.host import EngineModel, Host, Progress
from spec_core.testing import ToyTarget
from tests.support.fake_engine import FakeEngine, model_of

PROMPT = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
REST_SECONDS = 0.02


class Recorder:
    """A controller. asked, learned: its steps in draft and rollback; priced: what was asked for a price in them."""

    def __init__(self) -> None:
        self.asked, self.learned, self.priced = [], [], []

    @hookimpl
    def compat(self):
        return Compat(drafts=(), report=lambda: {"steps": len(self.learned)})

    @hookimpl
    def draft(self, step):
        self.asked.append((step.number, step.last_record))
        step.plan(DraftPlan({"ngram": Limit(price=0.01)}))

    @hookimpl
    def rollback(self, step):
        self.learned.append((step.number, step.drafting))
        self.priced.append(step.priced)


@pytest.fixture
def controller():
    return Recorder()


@pytest.fixture
def host(controller):
    """A request has begun, and its first token was chosen: the next one is 3."""
    host = Host(EngineModel(ToyTarget().info), [controller, "ngram"])
    host.begin("a", PROMPT, max_tokens=40, ignore_eos=True)
    return host


def test_a_step_is_one_step_from_asking_for_drafts_to_what_was_accepted(host, controller):
    host.step({"a": Progress((3,))})
    host.step({"a": Progress((4, 1, 9))})
    host.step({"a": Progress((2,))})

    assert controller.learned == [(0, False), (1, True), (2, True)]  # the first one was the prompt's
    assert [number for number, _ in controller.asked] == [1, 2, 3]
    assert controller.priced[1] == {"ngram"}
    assert host.stats.report()["reports"]["recorder"] == {"steps": 3}


def test_the_time_of_a_step_is_that_of_the_engine_and_of_the_plugins(host, controller):
    drafts = host.step({"a": Progress((3,))})
    sleep(REST_SECONDS)
    host.step({"a": Progress((4, 9))})

    (_, first), (_, before) = controller.asked
    rows = 1 + len(drafts["a"])
    assert first is None  # nobody was asked for drafts of the prompt's step
    assert (before.number, before.sequences, before.rows) == (1, 1, rows)
    assert REST_SECONDS <= before.seconds["verify"] < before.total_seconds
    assert {"draft.ngram", "process.ngram"} <= before.seconds.keys()
    assert "verify" not in host.stats.report()["seconds"]


def test_a_step_with_rows_of_others_says_nothing_about_drafts(host, controller):
    host.step({"a": Progress((3,))})
    host.step({"a": Progress((4, 9))}, rows=200)
    host.begin("b", PROMPT, max_tokens=40, ignore_eos=True)
    host.step({"a": Progress((1,)), "b": Progress((3,))})
    host.step({"a": Progress((1,)), "b": Progress((4,))})

    assert [drafting for _, drafting in controller.learned] == [False, False, False, True]


def test_the_controller_of_this_project_learns_from_an_engine():
    target = ToyTarget(context=512, recurrent=False)
    host = Host(model_of(target), ["ngram", "auto"])
    engine = FakeEngine(target, host)
    for key in ("a", "b"):
        engine.add(key, PROMPT, 200)
        engine.run()

    assert host.stats.report()["reports"]["auto"]["methods"]["ngram"]["steps"] > 0
