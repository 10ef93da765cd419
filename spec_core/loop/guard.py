"""Between pluggy and a plugin: every hook implementation is wrapped once.

pluggy does not say which plugin returned a result, and one exception ends the whole call. With the wrapper, the step
knows which plugin is running, time is counted per plugin, and later plugins are called even after one raises.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from pluggy import HookimplMarker, PluginManager

from spec_core import hookspecs
from spec_core.assembly.construct import DEFAULT_RULE, TARGET, PluginInstance
from spec_core.assembly.hooks import implementations
from spec_core.contract.batch import Part
from spec_core.contract.draft_step import DraftStep
from spec_core.contract.fields import write
from spec_core.contract.hook_step import HOOKS, HookStep
from spec_core.contract.rows import Rows, Span
from spec_core.contract.sealed import seal_step, unseal_step
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.verified_step import AcceptStep, ProcessStep, RollbackStep
from spec_core.errors import FOREIGN, PluginError, as_exception

Failed = Callable[[str, str, Exception, Step], None]
Call = Callable[[Any], Any]
CLOSE = "close"
"""The last call of a plugin."""
TRUSTED = (DEFAULT_RULE, TARGET)
"""Plugins that make the text: a step is not sealed for them."""
VIEWS: dict[str, Any] = dict(zip(HOOKS, (DraftStep, AcceptStep, RollbackStep, ProcessStep), strict=True))
"""What each hook sees of a step."""


class Hooks:
    """The hooks of a run: its plugins, and how each hook calls them.

    failed: called when a plugin raises; a bound method, held weakly.
    call: {hook: function that calls every plugin that has it, with a step, or with rows}.
    learners: plugins that have ``process``. controllers: those among the plugins.
    """

    def __init__(self, plugins: Iterable[PluginInstance], failed: Failed) -> None:
        """pluggy calls the last registered plugin first, so plugins are registered in reverse."""
        self.manager = hookspecs.manager()
        failed, chosen_plugins = weak_callback(failed), list(plugins)
        self._shown: list[Any] = [None]
        self._views = {hook: view(None) for hook, view in VIEWS.items()}
        for view in self._views.values():
            write(view, "_shown", self._shown)
        self.controllers = frozenset(chosen.name for chosen in chosen_plugins if chosen.controls)
        for chosen in reversed(chosen_plugins):
            if not self.manager.has_plugin(chosen.name):
                self.manager.register(guard_plugin(chosen.plugin, chosen.name, failed, chosen.controls), chosen.name)
        self.manager.check_pending()
        self._bind()

    def _bind(self) -> None:
        """Bind the calls of each hook; repeated when a plugin is switched off."""
        self.call = {name: hook_broadcast(self.manager, name, self._views[name]) for name in HOOKS}
        self._without = {frozenset[str](): self.call}
        self.learners = frozenset(hook.plugin_name for hook in self.manager.hook.process.get_hookimpls())

    def calls_without(self, plugins: frozenset[str]) -> dict[str, Call]:
        """``call`` for a step in which these plugins are not asked."""
        calls = self._without.get(plugins)
        if calls is None:
            views = self._views
            calls = self._without[plugins] = {n: hook_broadcast(self.manager, n, views[n], plugins) for n in HOOKS}
        return calls

    def rows_of(self, step: Step, spans: Mapping[Sequence, Span]) -> Rows:
        """The argument of ``process``."""
        self._shown[0] = step
        return Rows(self._views["process"], spans)

    def end_views(self) -> None:
        """Show no step any more: plugins may have kept the views."""
        self._shown[0] = None

    def switch_off(self, name: str) -> None:
        """Stop calling this plugin."""
        self.manager.unregister(name=name)
        self._bind()


def close_plugins(plugins: Iterable[PluginInstance]) -> None:
    """Call ``Compat.close`` of every plugin. Raises PluginError for the first that failed, after all were called."""
    failures: list[PluginError] = []
    for chosen in plugins:
        try:
            if chosen.compat.close is not None:
                chosen.compat.close()
        except FOREIGN as error:  # a plugin may raise anything
            failures.append(PluginError(chosen.name, CLOSE, error))
            failures[-1].__cause__ = error
    if failures:
        raise failures[0]


class Proxy:
    """Carries the guarded hooks of one plugin. Compared by identity: two plugins may compare equal."""


def weak_callback(failed: Failed) -> Failed:
    """Call a method of the run without a reference to the run, which already refers to its plugins: no cycle."""
    method = weakref.WeakMethod(failed)  # type: ignore[type-var]

    def call(name: str, hook: str, error: Exception, step: Step) -> None:
        run = method()
        if run is not None:
            run(name, hook, error, step)

    return call


def guard_plugin(plugin: Any, name: str, failed: Failed, controls: bool = False) -> Any:
    """The object registered with pluggy for a plugin. controls: its draft hook is called before the methods'."""
    proxy = Proxy()
    trusted = name in TRUSTED
    for hook, (method, options) in implementations(plugin, name).items():
        if hook == "compat":
            continue
        call = _around if options["wrapper"] else _wrap
        marker = HookimplMarker(hookspecs.PROJECT)
        kinds = {kind: options[kind] for kind in ("wrapper", "tryfirst", "trylast")}
        kinds["tryfirst"] |= controls and hook == "draft"
        setattr(proxy, hook, marker(call(method, hook, name, failed, trusted), **kinds))
    return proxy


def _around(method: Callable[..., Any], hook: str, name: str, failed: Failed, trusted: bool) -> Callable[..., Any]:
    """Guard a hook wrapper, which runs before and after the other plugins. If it raises, their work is kept."""
    takes_argument = bool(inspect.signature(method).parameters)

    def ask(argument: Any) -> Generator[None, Any, Any]:
        step: Step = (argument.step if hook == "process" else argument)._shown[0]
        step.plugin, step.current_sequence = name, None
        try:
            with _hold_seal(step, trusted):
                around = method(argument) if takes_argument else method()
                next(around)
        except FOREIGN as error:
            failed(name, hook, as_exception(error), step)
            return (yield)
        result = yield
        step.plugin, step.current_sequence = name, None
        try:
            with _hold_seal(step, trusted):
                around.send(result)
                around.close()
                raise RuntimeError("a wrapper must yield exactly once")
        except StopIteration:
            pass
        except FOREIGN as error:
            failed(name, hook, as_exception(error), step)
        return result

    def of_step(step: HookStep) -> Generator[None, Any, Any]:
        return (yield from ask(step))

    def of_rows(rows: Rows) -> Generator[None, Any, Any]:
        return (yield from ask(rows))

    return of_rows if hook == "process" else of_step


@contextmanager
def _hold_seal(step: Step, trusted: bool) -> Iterator[None]:
    """The step as a plugin reads it, while the block runs."""
    if trusted:
        yield
        return
    seal_step(step)
    try:
        yield
    finally:
        unseal_step(step)


def _wrap(method: Callable[..., Any], hook: str, name: str, failed: Failed, trusted: bool) -> Callable[..., None]:
    takes_argument = bool(inspect.signature(method).parameters)
    label = f"{hook}.{name}"

    def call_method(view: HookStep, argument: Any) -> None:
        step = view._shown[0]
        step.plugin, step.current_sequence = name, None
        began = perf_counter()
        try:
            if trusted:
                method(argument) if takes_argument else method()
                return
            seal_step(step)
            try:
                method(argument) if takes_argument else method()
            finally:
                unseal_step(step)
        except FOREIGN as error:
            failed(name, hook, as_exception(error), step)
        finally:
            step.seconds[label] = step.seconds.get(label, 0.0) + perf_counter() - began

    if hook == "process":
        return lambda rows: call_method(rows.step, rows)
    return lambda step: call_method(step, step)


def hook_broadcast(manager: PluginManager, name: str, view: HookStep, without: frozenset[str] = frozenset()) -> Call:
    """How a run calls a hook: one implementation after the other, in pluggy's order. view: what they see of the step;
    rows bring their own. without: plugins left out.

    With a wrapper among them, pluggy makes the calls; without one, a loop does, as pluggy's overhead exceeds the cost
    of the core's own hooks.
    """
    hook = manager.subset_hook_caller(name, [p for n, p in manager.list_name_plugin() if n in without])
    implementations, shown = hook.get_hookimpls(), view._shown
    wrapped = any(implementation.wrapper for implementation in implementations)
    calls = tuple(implementation.function for implementation in reversed(implementations))

    def call(step: Step) -> None:
        shown[0] = step
        for one in calls:
            one(view)

    def call_with_rows(rows: Rows) -> None:
        for one in calls:
            one(rows)

    def call_wrapped(step: Step) -> None:
        shown[0] = step
        hook(step=view)

    if wrapped:
        return (lambda rows: hook(rows=rows)) if name == "process" else call_wrapped
    return call_with_rows if name == "process" else call


def affected_parts(name: str, hook: str, step: Step) -> list[Part]:
    """The parts whose state is unknown when an owner of state, or the core's own rule, raises in this hook."""
    if name == DEFAULT_RULE:
        return [p for p in step.parts if p.decides and p.verdict is None]
    if hook == "rollback":
        return [p for p in step.parts if p.verdict is not None]
    return step.parts


def unregister_all(manager: PluginManager) -> None:
    """Break a manager's reference cycle, which would keep plugins alive until the garbage collector runs."""
    for name, _ in manager.list_name_plugin():
        manager.unregister(name=name)
