"""What a hook sees of a step: one view for each hook, made once per run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import spec_core
from spec_core import AcceptStep, Draft, DraftStep, HookStep, PluginError, ProcessStep, RollbackStep, Run, hookimpl
from spec_core.errors import PhaseError
from spec_core.testing import ToyTarget

VIEWS = {"draft": DraftStep, "accept": AcceptStep, "rollback": RollbackStep, "process": ProcessStep}
PAGE = Path(__file__).parents[2] / "docs" / "contract.md"


class Repeats:
    """Drafts the last token again."""

    @hookimpl
    def draft(self, step):
        for seq, _ in step.undrafted:
            step.propose(seq, Draft(seq.tokens[-1:]))


class Keeps:
    """Keeps what every hook was given."""

    def __init__(self) -> None:
        self.seen: dict[str, list[object]] = {hook: [] for hook in VIEWS}

    @hookimpl
    def draft(self, step):
        self.seen["draft"].append(step)

    @hookimpl
    def accept(self, step):
        self.seen["accept"].append(step)

    @hookimpl
    def rollback(self, step):
        self.seen["rollback"].append(step)

    @hookimpl
    def process(self, rows):
        self.seen["process"].append(rows.step)


def names(view):
    return {name for name in dir(view) if name[0] != "_"}


def test_a_run_makes_each_view_once():
    keeps = Keeps()
    with Run(ToyTarget(recurrent=False), [keeps, Repeats()]) as run:
        assert len(run.generate([1, 2], max_tokens=9).result.tokens) == 9

    for hook, view in VIEWS.items():
        assert len(keeps.seen[hook]) > 3
        assert len({id(one) for one in keeps.seen[hook]}) == 1
        assert type(keeps.seen[hook][0]) is view


@pytest.mark.parametrize("hook", VIEWS)
def test_a_view_kept_over_its_step_says_that_it_is_over(hook):
    keeps = Keeps()
    with Run(ToyTarget(recurrent=False), [keeps, Repeats()]) as run:
        run.generate([1, 2], max_tokens=3).result
    kept = keeps.seen[hook][0]

    for read in (lambda: kept.target, lambda: kept.parts, lambda: kept.plugin):
        with pytest.raises(PhaseError, match="this step is over"):
            read()


@pytest.mark.parametrize("hook", ["rollback", "process"])
def test_a_view_kept_for_a_later_hook_cannot_write(hook):
    """Its names are those of its own hook, so that the call itself must be refused."""

    class Late:
        @hookimpl
        def draft(self, step):
            self.kept = step

        def _use(self):
            if hasattr(self, "kept"):
                self.kept.propose(self.kept.parts[0].seq, Draft([1]))

    Late.later = hookimpl(lambda self: self._use(), specname=hook)
    with pytest.raises(PluginError, match=rf"step\.propose belongs to the hook 'draft'; this is '{hook}'"):
        Run(ToyTarget(recurrent=False), [Late(), Repeats()]).generate([1, 2], max_tokens=5).result


def test_a_name_of_no_hook_is_missing_as_any_attribute():
    keeps = Keeps()

    class Asks:
        @hookimpl
        def draft(self, step):
            keeps.seen["draft"].append((hasattr(step, "propos"), hasattr(step, "decide"), hasattr(step, "propose")))

    Run(ToyTarget(recurrent=False), [Asks()]).generate([1, 2], max_tokens=3).result
    assert set(keeps.seen["draft"]) == {(False, False, True)}


def test_the_page_of_the_contract_lists_the_names_of_every_view():
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", PAGE.read_text("utf-8"), re.M)
    listed = {title: set(re.findall(r"`(\w+)`", cell)) for title, cell in rows}

    assert listed["all (`HookStep`)"] == names(HookStep)
    for view in VIEWS.values():
        assert listed[f"`{view.__name__}`"] == names(view) - names(HookStep)
        assert view.__name__ in spec_core.__all__
