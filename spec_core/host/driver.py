"""The host: plugins' draft, rollback and process, in the order of a run, for a loop that an engine owns."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial, reduce
from itertools import count
from operator import or_
from typing import Any

from spec_core.assembly.assemble import load_weights
from spec_core.assembly.construct import planners_of
from spec_core.assembly.matching import drafted_proposals
from spec_core.contract.batch import Part
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.values import Draft, Needs
from spec_core.errors import PluginError, UsageError, quote_value
from spec_core.host.clock import Clock
from spec_core.host.engine import EngineModel, Serves, check_methods, plugin_view
from spec_core.host.progress import Progress, advance_constraint, output, verified_part
from spec_core.loop.calls import NO_PLUGINS
from spec_core.loop.commit import commit_tokens
from spec_core.loop.guard import Hooks, unregister_all
from spec_core.loop.request.admission import sequence
from spec_core.loop.request.arguments import request_of, split_keywords
from spec_core.loop.schedule import draft_limit, remaining_tokens
from spec_core.loop.stats import Stats
from spec_core.settings.tables import RunSettings
from spec_core.toolkit.plan_follower import PlanFollower

log = logging.getLogger("spec_core")


class Host:
    """Plugins in the loop of another engine, which decides what is accepted. Not for several threads at once.

    needs: what each ``Progress`` has to contain. stats: counts as in a run.

    :param model: what plugins know of the engine's model.
    :param methods: as in ``Run``: names, ``"name=FILE"``, ``(name, settings)``, instances; controllers too.
    :param serves: what the engine tells after a step.
    :param coupled: the engine chooses its tokens with the noise of ``step.noise``; else drafters get their own.
    :param plugin_settings: ``{plugin: {field: value}}`` for plugins given by name.
    :param settings: ``draft_max``, ``nodes_max`` and ``on_error`` apply; keywords override them.

    Raises UsageError, or Refused with everything that plugins need and the engine does not serve, before a weight is
    read.
    """

    def __init__(
        self,
        model: EngineModel,
        methods: Iterable[Any],
        serves: Serves | None = None,
        coupled: bool = False,
        plugin_settings: Mapping[str, Mapping[str, Any]] | None = None,
        settings: RunSettings | None = None,
        **keywords: Any,
    ) -> None:
        serves = serves or Serves()
        self.settings, loading = split_keywords(settings, keywords)
        if loading:
            raise UsageError(f"a host has no {', '.join(sorted(loading))}", hint="the engine loads its model itself")
        self.model = plugin_view(model, serves)
        self.plugins = check_methods(self.model, methods, serves, plugin_settings)
        load_weights(self.plugins, self.model)
        self.needs = reduce(or_, (c.compat.needs for c in self.plugins), Needs())
        self.proposals = drafted_proposals(self.plugins)
        self.drafters = frozenset(name for name, kinds in self.proposals.items() if kinds)
        reports = {c.name: c.compat.report for c in self.plugins if c.compat.report is not None}
        self.stats = Stats(exact=self.model.info.exactness, reports=reports)
        self._private = not coupled
        self._hooks = Hooks(self.plugins, self._handle_failure)
        self._sequences: dict[Hashable, Sequence] = {}
        self._asked: dict[Hashable, Part] = {}
        self._clock = Clock(PlanFollower(self._hooks.controllers, planners=planners_of(self.plugins)))
        self._numbers = count()
        self._observers: list[Callable[[Step], None]] = []
        self._new_step = partial(
            Step,
            self.model,
            self.proposals,
            frozenset(),
            frozenset(c.name for c in self.plugins if c.compat.extends),
            trees=self.needs.trees,
            private=self._private,
        )
        weakref.finalize(self, unregister_all, self._hooks.manager).atexit = False

    # requests

    def begin(self, key: Hashable, request: Any, **keywords: Any) -> None:
        """A request begins. key: its name in this host, until ``end``. request, keywords: as in ``Run.generate``.

        Raises UsageError for a request that does not fit the model, and for a key that is in use.
        """
        if key in self._sequences:
            raise UsageError(f"a request with the key {quote_value(key)} is running", hint="call end(key) first")
        always = frozenset(c.name for c in self.plugins) - self.drafters
        full_request = request_of(request, keywords)
        seq = sequence(full_request, self.model, always, self.drafters, self.stats.switched_off, self._private)
        seq.text, seq.number = None, next(self._numbers)
        self._sequences[key] = seq

    def end(self, key: Hashable) -> dict[str, Any]:
        """A request ends, for whatever reason; returns its statistics. Plugins' data about it are dropped."""
        seq = self._sequence(key)
        del self._sequences[key]
        self._asked.pop(key, None)
        return self.stats.close(seq).report()

    def _sequence(self, key: Hashable) -> Sequence:
        if key not in self._sequences:
            raise UsageError(f"no request has the key {quote_value(key)}", hint="call begin(key, prompt) first")
        return self._sequences[key]

    # steps

    def step(
        self,
        reported: Mapping[Hashable, Progress],
        budgets: Mapping[Hashable, int] | None = None,
        rows: int | None = None,
    ) -> dict[Any, Draft]:
        """The engine made a step: tell the plugins, and draft for the next step.

        reported: the requests of the step. budgets: {key: longest draft} where it is less than ``draft_max``. rows: of
        the engine's forward, if it evaluated more than what is reported. Returns {key: Draft} for the requests that
        plugins drafted for. Controllers take the time between two calls as that of the engine's step.

        Raises UsageError for progress that contradicts a draft or lacks what ``needs`` names, before a plugin is asked;
        a plugin's error only with ``on_error="raise"``.
        """
        self._learn(reported, rows)
        return self._draft(reported, budgets or {})

    def _learn(self, reported: Mapping[Hashable, Progress], rows: int | None) -> None:
        """Rollback and process for what the engine committed."""
        clock = self._clock
        step = self._new_step(number=clock.number, last_record=clock.last, records=clock.follower.records)
        for key, one in reported.items():
            step.add(verified_part(self._sequence(key), self._asked.get(key), one))
        step.output = output(step.parts, reported.values(), self.needs)
        step.forwards["target"] = 1
        step.rows["target"] = sum(len(part.pending) + part.drafted for part in step.parts)
        rows = step.rows["target"] if rows is None else rows
        self._pair(step, rows > step.rows["target"])
        for key, one in reported.items():
            self._asked.pop(key, None)
            advance_constraint(self._sequence(key), one.tokens)
        self._ask("rollback", step, step)
        spans = commit_tokens(step, self._hooks.learners - self._left_out)
        self._ask("process", step, self._hooks.rows_of(step, spans))
        clock.step_ended(step, rows)
        self._count(step)

    def _pair(self, step: Step, others: bool) -> None:
        """A step in which every sequence was asked for a draft is one step with those drafts, as in a run.

        others: the engine evaluated rows of others, so that its time says nothing about these.
        """
        drafts = self._clock.drafts
        step.drafting = not others and drafts is not None and all(part.budget for part in step.parts)
        if drafts is not None:
            step.priced = drafts.priced

    def _draft(self, reported: Mapping[Hashable, Progress], budgets: Mapping[Hashable, int]) -> dict[Any, Draft]:
        clock = self._clock
        step = self._new_step(number=clock.number, last_record=clock.last, records=clock.follower.records)
        parts = {key: self._share(key, budgets) for key, one in reported.items() if one.tokens}
        clock.follower.begin([part.seq for part in parts.values()])
        for part in parts.values():
            step.add(part)
        clock.follower.apply(step)
        if step.drafting and not clock.follower.plain:
            self._ask("draft", step, step)
            clock.follower.take(step)
            self._count(step)
        self._asked |= {key: part for key, part in parts.items() if part.budget}
        clock.step_began(step)
        self._hooks.end_views()
        return {key: part.draft for key, part in parts.items() if part.draft is not None}

    def _share(self, key: Hashable, budgets: Mapping[Hashable, int]) -> Part:
        """A sequence's share of a step in which it drafts."""
        seq = self._sequences[key]
        longest = min(draft_limit(seq, self.settings), remaining_tokens(seq, self.model.info.context) - 1)
        budget = max(0, min(longest, budgets.get(key, longest))) if self.drafters else 0
        nodes = max(budget, self.settings.nodes_max) if budget else 0
        return Part(seq, len(seq.tokens) - 1, seq.tokens[-1:], decides=True, budget=budget, nodes=nodes)

    @property
    def _left_out(self) -> frozenset[str]:
        """Plugins that are not called in a step that follows a plan."""
        return self._hooks.controllers if self._clock.follower.following else NO_PLUGINS

    def _ask(self, hook: str, step: Step, argument: Any) -> None:
        step.phase = hook
        self._hooks.calls_without(self._left_out)[hook](argument)
        if step.failures:
            raise step.failures[0]

    def _count(self, step: Step) -> None:
        self.stats.add(step)
        for on_step in self._observers:
            on_step(step)

    def observe(self, on_step: Callable[[Step], None]) -> None:
        """Call ``on_step(step)`` after each step of verified tokens and each step of drafts."""
        self._observers.append(on_step)

    def _handle_failure(self, name: str, hook: str, error: Exception, step: Step) -> None:
        """A plugin raised: it is switched off. With ``on_error="raise"`` the call raises, unless it is a controller."""
        failure = PluginError(name, hook, error, step.current_sequence.name if step.current_sequence else "")
        failure.__cause__ = error
        follower = self._clock.follower
        if self.settings.on_error == "raise" and name not in follower.planners:
            step.failures.append(failure)
            return
        log.warning("%s; it is switched off for this host", failure.reason)
        self.stats.switched_off[name] = failure.reason
        self._hooks.switch_off(name)
        follower.forget(name)
        self.drafters -= {name}
