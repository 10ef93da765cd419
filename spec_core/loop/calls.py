"""Which plugins hear of a step, and what its forward returns for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_

import attrs

from spec_core.assembly.construct import PluginInstance
from spec_core.contract.batch import Part
from spec_core.contract.rows import Span
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.values import Needs
from spec_core.loop.guard import Hooks
from spec_core.loop.schedule import has_drafts, of_prompts

NO_PLUGINS: frozenset[str] = frozenset()


@attrs.frozen(eq=False)
class StepCalls:
    """The hooks of one step. A plugin that is switched off within the step is not called any more.

    left_out: plugins that are not called; undrafted: that are not called after the draft hook if no method drafted.
    without_rows: that do not read the committed rows. needs: what the forward returns. no_rules: plugins that are not
    called for drafts where no sequence may draft; None if no rule reads drafts.
    """

    hooks: Hooks
    left_out: frozenset[str]
    undrafted: frozenset[str]
    without_rows: frozenset[str]
    needs: Needs
    no_rules: frozenset[str] | None

    @property
    def learners(self) -> frozenset[str]:
        """Plugins that read the committed rows, with ``process``."""
        return self.hooks.learners - self.without_rows

    def draft(self, step: Step) -> None:
        """Call the draft hooks, in the user's order: where no sequence may draft, of rules alone."""
        if step.drafting:
            self._call("draft", self.left_out, step)
        elif self.no_rules is not None:
            self._call("draft", self.no_rules, step)

    def accept(self, step: Step) -> None:
        """Call the rules."""
        self._call("accept", self._left_out_after(step), step)

    def rollback(self, step: Step) -> None:
        """Call the owners of state, and methods that read verdicts."""
        self._call("rollback", self._left_out_after(step), step)

    def process(self, step: Step, spans: Mapping[Sequence, Span]) -> None:
        """Call those who read the committed rows. The caller raises failures, after the events are delivered."""
        step.phase = "process"
        self.hooks.calls_without(self.without_rows)["process"](self.hooks.rows_of(step, spans))

    def _left_out_after(self, step: Step) -> frozenset[str]:
        return self.left_out if has_drafts(step.parts) else self.undrafted

    def _call(self, hook: str, left_out: frozenset[str], step: Step) -> None:
        step.phase = hook
        self.hooks.calls_without(left_out)[hook](step)
        if step.failures:
            raise step.failures[0]


class Calls:
    """The hooks of a run, by which sequences a step has: each choice is made once, and kept.

    A method that serves none of them, and owns nothing, is not called, nor is what it alone reads computed. Controllers
    are not called in a step that follows a plan. A method that catches up is called where it drafts or reads a prompt.
    """

    def __init__(self, plugins: Iterable[PluginInstance], hooks: Hooks, needs: Needs) -> None:
        """needs: what all plugins need."""
        self._plugins, self._hooks, self._needs = list(plugins), hooks, needs
        self._catching_up = frozenset(chosen.name for chosen in self._plugins if catches_up(chosen))
        rules = frozenset(chosen.name for chosen in self._plugins if {"accept", "draft"} <= chosen.hooks)
        self._no_rules = frozenset(chosen.name for chosen in self._plugins) - rules if rules else None
        self._idle: dict[frozenset[str], frozenset[str]] = {}
        self._calls: dict[tuple[frozenset[str], bool, bool], StepCalls] = {}

    def of(self, step: Step, following: bool) -> StepCalls:
        """Who is called in a step. following: it follows a controller's plan."""
        key = self._idle_in(step.parts), following, of_prompts(step.parts)
        calls = self._calls.get(key)
        if calls is None:
            calls = self._calls[key] = self._choose(*key)
        return calls

    def _idle_in(self, parts: list[Part]) -> frozenset[str]:
        """Methods that serve none of these sequences, and own nothing."""
        served: frozenset[str] | None = None
        for part in parts:
            own = part.seq.methods
            if own is None:
                return NO_PLUGINS
            if own is not served:  # one sequence needs no union, and the hash is known
                served = own if served is None else served | own
        if served is None:
            return NO_PLUGINS
        names = self._idle.get(served)
        if names is None:
            methods = (c for c in self._plugins if c.proposals and not is_needed(c))
            names = self._idle[served] = frozenset(c.name for c in methods if c.name not in served)
        return names

    def _choose(self, idle: frozenset[str], following: bool, prompts: bool) -> StepCalls:
        catching_up = self._catching_up - idle
        left_out = idle | self._hooks.controllers if following else idle
        undrafted = left_out | catching_up
        without_rows = left_out if prompts else undrafted
        return StepCalls(self._hooks, left_out, undrafted, without_rows, self._read(idle), self._no_rules)

    def _read(self, idle: frozenset[str]) -> Needs:
        """What a forward returns where these methods read nothing."""
        if not idle:
            return self._needs
        others = reduce(or_, (c.compat.needs for c in self._plugins if c.name not in idle), Needs())
        return attrs.evolve(self._needs, hidden=others.hidden, final=others.final)


def is_needed(plugin: PluginInstance) -> bool:
    """Whether a plugin is called in every step, as it owns state or decides."""
    return bool(plugin.compat.owns) or "accept" in plugin.hooks


def catches_up(plugin: PluginInstance) -> bool:
    """Whether a plugin is a method that reads generated tokens with its next draft."""
    return plugin.compat.catches_up and bool(plugin.proposals) and not is_needed(plugin)
