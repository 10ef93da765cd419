"""A run: one target, some plugins, and the loop. ``_step`` is the loop of the paper."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, reduce
from operator import or_
from pathlib import Path
from time import perf_counter
from typing import Any, overload

from spec_core.assembly.construct import DEFAULT_RULE, PluginInstance, planners_of
from spec_core.assembly.description import Description
from spec_core.assembly.matching import drafted_proposals, wants_probs
from spec_core.contract.fields import write
from spec_core.contract.layout import lay_out_batch
from spec_core.contract.request import Emitted, Request, Result
from spec_core.contract.sequence import Sequence, Slot
from spec_core.contract.step import Step
from spec_core.contract.step_record import StepRecord
from spec_core.contract.target import Target
from spec_core.contract.values import Needs
from spec_core.errors import FOREIGN, PluginError, SequencesFailed, UsageError, as_exception
from spec_core.loop.calls import NO_PLUGINS, Calls
from spec_core.loop.commit import commit_tokens, cut_verdicts, events_of, read_logprobs
from spec_core.loop.constrain import constrain_choices
from spec_core.loop.coupled import Coupled
from spec_core.loop.fair_lock import FairLock
from spec_core.loop.generation import Generation, Queued
from spec_core.loop.guard import Hooks, affected_parts, close_plugins, unregister_all
from spec_core.loop.outputs import Outputs
from spec_core.loop.prepared import Prepared, prepare_plugins
from spec_core.loop.request.admission import sequence
from spec_core.loop.request.arguments import all_of, check_alone, is_prompt_list, request_of, split_keywords
from spec_core.loop.schedule import Scheduler, plan
from spec_core.loop.slots import Slots
from spec_core.loop.stats import Stats
from spec_core.settings.tables import RunSettings
from spec_core.toolkit.finalizers import close_on_collect, defer_finalizers
from spec_core.toolkit.plan_follower import PlanFollower, own_time_on

log = logging.getLogger("spec_core")
Prompt = Request | str | list[int] | list[dict[str, Any]]
Prompts = list[Prompt] | list[Request] | list[str] | list[list[int]] | list[list[dict[str, Any]]] | tuple[Prompt, ...]
"""Listed separately: for a type checker, a list of requests is not a list of prompts."""


class Run:
    """Generate texts with one target and some methods, all running sequences in every step.

    It may be used from several threads: their calls take effect between two steps.
    It is a context manager: the end of ``with Run(...) as run`` closes it. A run that is garbage collected also
    frees its memory.

    :param target: a target of ``spec_core.load``, a location, what ``describe`` returned, or what ``prepare`` returned;
        then plugins are not given again.
    :param methods: in the order in which they are called: names, ``"name=FILE"``, ``(name, settings)``,
        ``(name, instance)``, instances.
    :param rule: an acceptance rule; the default is lossless and seed-coupled.
    :param rollback: the owner of recurrent state, where several are installed.
    :param plugin_settings: ``{plugin: {field: value}}`` for plugins given by name.
    :param control: a controller's name, unless one is among ``methods``; ``"fixed"`` means none.
    :param settings: a RunSettings; keywords override its fields.
    :param keywords: fields of RunSettings; with a location, also of LoadSettings (``device``, ``threads``, ...).

    Raises UsageError, or Refused with every plugin's refusal, before a weight is read.
    """

    def __init__(
        self,
        target: Target | Description | Prepared | str | Path,
        methods: Iterable[Any] = (),
        rule: Any = None,
        rollback: Any = None,
        plugin_settings: Mapping[str, Mapping[str, Any]] | None = None,
        settings: RunSettings | None = None,
        control: Any = None,
        **keywords: Any,
    ) -> None:
        self.settings, loading = split_keywords(settings, keywords)
        rule = None if isinstance(rule, Coupled) else rule
        with defer_finalizers():
            if isinstance(target, Prepared):
                check_alone(methods, rule, rollback, plugin_settings, control, loading)
            else:
                target = prepare_plugins(target, methods, rule, rollback, plugin_settings, control, **loading)
            self.target, self.plugins = target.open()
        rules = [c for c in self.plugins if "accept" in c.hooks]
        self.needs = reduce(or_, (c.compat.needs for c in self.plugins), Needs(choices=not rules))
        self.proposals = drafted_proposals(self.plugins)
        self.drafters = frozenset(name for name, kinds in self.proposals.items() if kinds)
        lossy = next((c.compat.lossy for c in self.plugins if c.compat.lossy), None)
        steers = next((c.compat.steers for c in self.plugins if c.compat.steers), None)
        reports = {c.name: c.compat.report for c in self.plugins if c.compat.report is not None}
        self.stats = Stats(lossy=lossy, steers=steers, exact=self.target.info.exactness, reports=reports)
        self.closed = False
        self._owners = frozenset({DEFAULT_RULE, *(c.name for c in self.plugins if c.compat.owns)})
        self._hooks = Hooks([*self.plugins, PluginInstance(DEFAULT_RULE, Coupled())], self._handle_failure)
        self._outputs = Outputs(self.stats)
        learners = tuple(c.name for c in self.plugins if "process" in c.hooks)
        sharing = frozenset(c.name for c in self.plugins if c.compat.shares)
        kept = self.settings.cache_tokens
        slots = Slots(
            self.settings.max_sequences,
            self.settings.reuse,
            learners,
            sharing,
            kept,
            "recurrent" in self.target.info.states,
        )
        self._scheduler = Scheduler(self.target, slots, self._outputs.finish)
        self._private = any(c.compat.noise == "private" for c in self.plugins)
        self._new_step = partial(
            Step,
            self.target,
            self.proposals,
            self._owners,
            frozenset(c.name for c in self.plugins if c.compat.extends),
            probing={c.name: c.compat.needs.probes for c in self.plugins if c.compat.needs.probes},
            wants_probs=wants_probs(self.plugins),
            trees=self.needs.trees,
            private=self._private,
        )
        self._observers: list[Callable[[Step], None]] = []
        self._follower = PlanFollower(
            self._hooks.controllers, own_time_on(self.target.info.device), planners_of(self.plugins)
        )
        self._calls = Calls(self.plugins, self._hooks, self.needs)
        self._lock = FairLock()
        self._stepping = False
        self._steps = 0
        self._last_record: StepRecord | None = None
        self._memory = close_on_collect(self, self.target, slots)
        weakref.finalize(self, unregister_all, self._hooks.manager).atexit = False

    # the loop

    def _step(self) -> list[Emitted]:
        began = perf_counter()
        self._scheduler.admit()
        step = self._plan(began)  # which sequences run, pending rows, budgets
        if not step.parts:
            return []
        calls = self._calls.of(step, self._follower.following)
        calls.draft(step)  # in the user's order
        self._follower.take(step)
        if not self._verify(step, calls.needs):  # one forward: pending tokens and drafts of all
            return self._close(step, [])
        if step.constrained:
            constrain_choices(step)  # the tokens that are allowed at every row
        calls.accept(step)  # kept path, and the token after it
        cut_verdicts(step)  # cut at stop and limit
        read_logprobs(step)
        calls.rollback(step)  # every owner of state
        spans = commit_tokens(step, calls.learners)  # committed rows only
        events = events_of(step)
        calls.process(step, spans)
        self._outputs.deliver(events)
        self._count(step)
        return self._close(step, events)

    def _plan(self, began: float) -> Step:
        follower = self._follower
        step = self._new_step(number=self._steps, last_record=self._last_record, records=follower.records, began=began)
        self._steps += 1
        follower.begin(self._scheduler.running)
        drafters = NO_PLUGINS if follower.plain else self.drafters
        running = self._scheduler.running
        step = plan(running, self.target, self.settings, drafters, step)
        if len(step.parts) < len(running):
            step.absent = tuple({*running} - {part.seq for part in step.parts})
        follower.apply(step)
        return step

    def _verify(self, step: Step, needs: Needs) -> bool:
        """The target's one forward. If it raises, this step's sequences, or those it names, fail; the run goes on."""
        step.phase = "verify"
        step.batch = lay_out_batch(step, needs, self.target.info.row_device)
        began = perf_counter()
        try:
            step.output = self.target.forward(step.batch, needs)
        except SequencesFailed as failed:  # the others are evaluated in the next step
            for seq, error in failed.errors.items():
                seq.finish, seq.error = "error", error
        except FOREIGN as error:
            for part in step.parts:
                part.seq.finish, part.seq.error = "error", as_exception(error)
        step.seconds["verify"] = perf_counter() - began
        step.forwards["target"] = 1
        step.rows["target"] = step.batch.tokens.numel()
        return step.output is not None

    def _count(self, step: Step) -> None:
        """Add the step to the statistics, then call the observers, whose own time does not count as the step's."""
        self.stats.add(step)
        whole = perf_counter() - step.began
        self._last_record = step.record = self._follower.end(step, whole, step.seconds, step.rows["target"])
        for on_step in self._observers:
            on_step(step)

    def _close(self, step: Step, events: list[Emitted]) -> list[Emitted]:
        self._scheduler.after(step)
        if step.failures:
            raise step.failures[0]
        return events

    def step(self) -> list[Emitted]:
        """Run one step for all running sequences; returns their events. Raises UsageError from within a step."""
        with self._lock:
            self._not_within_a_step("step")
            self._stepping = True
            try:
                return self._step()
            except BaseException as error:
                self._scheduler.fail_running(error)
                raise
            finally:
                self._stepping = False
                self._hooks.end_views()

    def _not_within_a_step(self, asked: str) -> None:
        if self._stepping:
            hint = f"call {asked}, or read a text, outside of hooks"
            raise UsageError(f"{asked} was called from within a step", hint=hint)

    def __iter__(self) -> Iterator[Emitted]:
        """Events of all sequences until none runs or waits."""
        while self.busy:
            yield from self.step()

    # requests

    def submit(self, request: Prompt, **keywords: Any) -> Sequence:
        """Queue a request; it joins at the next step. Takes the arguments of ``generate``. Raises UsageError."""
        return self._queue(self._make_sequence(request, keywords))

    def _make_sequence(self, request: Any, keywords: Mapping[str, Any]) -> Sequence:
        always = frozenset(c.name for c in self.plugins) - self.drafters
        full_request = request_of(request, keywords)
        controllers = frozenset(c.name for c in self.plugins if c.controls)
        readers, off = {c.name: c.compat.request_values for c in self.plugins}, self.stats.switched_off
        return sequence(full_request, self.target, always, self.drafters, off, self._private, controllers, readers)

    def _queue(self, seq: Sequence, queued: Queued | None = None) -> Sequence:
        with self._lock:
            if self.closed:
                raise UsageError("the run is closed", hint="make a new Run; it may use the same target")
            if queued is not None:
                self._outputs.queued[seq] = queued
            self._scheduler.add(seq)
        return seq

    def cancel(self, seq: Sequence) -> None:
        """End a sequence now; within a step, at the end of that step or the next. Emitted tokens are kept."""
        with self._lock:
            if seq.finish is None:
                write(seq, "finish", "cancelled")
                if not self._stepping:
                    self._scheduler.release()

    @overload
    def generate(self, request: Prompt, **keywords: Any) -> Generation: ...

    @overload
    def generate(self, request: Prompts, **keywords: Any) -> list[Generation]: ...

    def generate(self, request: Any = None, **keywords: Any) -> Generation | list[Generation]:
        """An iterator over the events of one request; ``.result`` is the Result once it is exhausted.

        request: a Request; a text; token ids; messages, a list of ``{"role": ..., "content": ...}``, formatted with
        the model's chat template; or a list of any of these, which returns a list of Generations in the same order
        that run together. keywords: fields of Request, or of Sampling (``temperature=0.8``), for all requests. All
        prompts of a list share one seed: equal prompts give equal texts, unless their ``noise_stream`` differs.

        Raises UsageError; if one prompt of a list is wrong, nothing is generated.
        """
        if request is None:
            request = keywords.pop("prompt", None)
        if not is_prompt_list(request):
            return self._generation(self._make_sequence(request, keywords))
        return [self._generation(seq) for seq in all_of(request, lambda one: self._make_sequence(one, keywords))]

    def _generation(self, seq: Sequence) -> Generation:
        queued = Queued()
        return Generation(self, self._queue(seq, queued), queued)

    def take(self, seq: Sequence) -> Result:
        """The result of a finished sequence that was submitted; it can be taken once.

        Raises the error that ended it, its own or that of its step. An interruption (Ctrl-C) raises nothing here:
        ``finish_reason`` is "error", and the text is what was generated so far.
        """
        return self._outputs.take(seq)

    def close(self) -> None:
        """Free all memory of this run in the target and in plugins. A closed run cannot be reopened.

        Running and waiting sequences end as cancelled: their iterators stop, and ``take`` returns their text so far.
        ``submit`` and ``generate`` then raise UsageError; statistics stay. Waits for a step that another thread runs;
        raises UsageError from within a step. A second call does nothing. ``Compat.close`` of every plugin is called
        last; raises PluginError if one fails, after all were called.
        """
        with self._lock:
            self._not_within_a_step("close")
            if self.closed:
                return
            self.closed = True
            self._scheduler.cancel_all()
            self._memory.detach()
            self._scheduler.slots.close(self.target)
            close_plugins(c for c in self.plugins if c.name not in self.stats.switched_off)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _drop(self, seq: Sequence) -> None:
        self._scheduler.drop(seq)

    def observe(self, on_step: Callable[[Step], None]) -> None:
        """Call ``on_step(step)`` at the end of every step, after the step is counted."""
        with self._lock:
            self._observers.append(on_step)

    @property
    def waiting(self) -> list[Sequence]:
        """Sequences that wait for a slot, in the order in which they will start."""
        return list(self._scheduler.waiting)

    @property
    def running(self) -> list[Sequence]:
        """Sequences that have a slot, in the order in which they got it."""
        return list(self._scheduler.running)

    @property
    def free_slots(self) -> tuple[Slot, ...]:
        """Slots of finished sequences, whose rows later ones may continue; the least recently used first."""
        return tuple(self._scheduler.slots.free)

    @property
    def results(self) -> dict[Sequence, Result]:
        """Results that wait for ``take``."""
        return self._outputs.results

    @property
    def busy(self) -> bool:
        """Whether a sequence runs or waits."""
        return bool(self._scheduler.waiting or self._scheduler.running)

    # failures

    def _handle_failure(self, name: str, hook: str, error: Exception, step: Step) -> None:
        """A plugin raised. An owner of state cannot be replaced: its sequences fail. Others follow ``on_error``.

        A run does not need its controller, which is switched off: methods draft by their own settings.
        """
        failure = PluginError(name, hook, error, step.current_sequence.name if step.current_sequence else "")
        failure.__cause__ = error
        if self.settings.on_error == "raise" and name not in self._follower.planners:
            step.failures.append(failure)
        elif name in self._owners:
            for part in affected_parts(name, hook, step):
                part.seq.finish, part.seq.error = "error", failure
        else:
            log.warning("%s; it is switched off for this run", failure.reason)
            self.stats.switched_off[name] = failure.reason
            self._hooks.switch_off(name)
            self._follower.forget(name)
            self.drafters -= {name}
