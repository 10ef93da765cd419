"""Between pluggy and a plugin: every hook implementation is wrapped once.

pluggy's results are anonymous and one exception ends a broadcast. Wrapped, the step knows who is asking, time is
counted per plugin, and one plugin's exception withholds nothing from the next.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from time import perf_counter
from typing import Any

from pluggy import HookimplMarker

from spec_core import hookspecs
from spec_core.errors import UsageError, nearest
from spec_core.hookspecs import PROJECT
from spec_core.step import Step
from spec_core.values import Rows

HOOKS = ("compat", "draft", "accept", "rollback", "process")
STEP_HOOKS = HOOKS[1:]
MARK = f"{PROJECT}_impl"

Failed = Callable[[str, str, Exception, Step], None]


def implementations(plugin: Any, name: str) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """{hook: (bound method, options)} of everything marked ``@hookimpl``. Raises UsageError for an unknown hook."""
    found = {}
    kind = plugin if inspect.ismodule(plugin) else type(plugin)
    for attribute in dir(kind):
        # Asked of the class: a property of the plugin may read what is not loaded yet.
        options = getattr(getattr(kind, attribute, None), MARK, None)
        if isinstance(options, dict):
            method = getattr(plugin, attribute)
            hook = options.get("specname") or attribute
            _check(method, hook, name)
            _check_kind(method, options, hook, name)
            found[hook] = (method, options)
    return found


def _check(method: Callable[..., Any], hook: str, name: str) -> None:
    """A misspelt hook or argument would be silent otherwise."""
    if hook not in HOOKS:
        raise UsageError(
            f"plugin {name!r} implements {hook!r}, which is no hook", mend=f"hooks: {nearest(hook, HOOKS)}"
        )
    allowed = list(inspect.signature(getattr(hookspecs, hook)).parameters)
    for parameter in inspect.signature(method).parameters.values():
        if parameter.name not in allowed:
            raise UsageError(
                f"plugin {name!r}: {hook} has no argument {parameter.name!r}", mend=f"it may name: {', '.join(allowed)}"
            )
        if parameter.default is not parameter.empty:
            raise UsageError(
                f"plugin {name!r}: argument {parameter.name!r} of {hook} has a default",
                mend="remove it: pluggy versions differ in whether the default or the caller wins",
            )


def _check_kind(method: Callable[..., Any], options: dict[str, Any], hook: str, name: str) -> None:
    """A body that yields or awaits is not run by calling it: nothing would happen, and nobody would hear of it."""
    if options["hookwrapper"]:
        raise UsageError(f"plugin {name!r}: {hook} is an old-style hookwrapper", mend="mark it @hookimpl(wrapper=True)")
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise UsageError(f"plugin {name!r}: {hook} is async, and nobody awaits it", mend="remove async")
    if inspect.isgeneratorfunction(method) and not options["wrapper"]:
        raise UsageError(
            f"plugin {name!r}: {hook} yields and is no wrapper: its body would never run",
            mend="remove the yield, or mark it @hookimpl(wrapper=True)",
        )
    if options["wrapper"] and not inspect.isgeneratorfunction(method):
        raise UsageError(f"plugin {name!r}: the wrapper {hook} never yields", mend="yield once: the others' turn")


class Proxy:
    """Carries the guarded hooks of one plugin. Compared by identity: two plugins may look alike."""


def guarded(plugin: Any, name: str, failed: Failed, controls: bool = False) -> Any:
    """What is registered with pluggy in the plugin's place. controls: its draft hook is asked before the methods'."""
    proxy = Proxy()
    for hook, (method, options) in implementations(plugin, name).items():
        if hook == "compat":
            continue
        call = _around if options["wrapper"] else _wrap
        marker = HookimplMarker(PROJECT)
        kinds = {kind: options[kind] for kind in ("wrapper", "tryfirst", "trylast")}
        kinds["tryfirst"] |= controls and hook == "draft"
        setattr(proxy, hook, marker(call(method, hook, name, failed), **kinds))
    return proxy


def _around(method: Callable[..., Any], hook: str, name: str, failed: Failed) -> Callable[..., Any]:
    """A wrapper: it sees the other plugins' turns begin and end. If it raises, theirs are not lost."""
    takes_argument = bool(inspect.signature(method).parameters)

    def ask(step: Step, argument: Any) -> Generator[None, Any, Any]:
        step.asking, step.about = name, None
        try:
            around = method(argument) if takes_argument else method()
            next(around)
        except Exception as error:
            failed(name, hook, error, step)
            return (yield)
        result = yield
        step.asking, step.about = name, None
        try:
            around.send(result)
            around.close()
            raise RuntimeError("a wrapper yields once")
        except StopIteration:
            pass
        except Exception as error:
            failed(name, hook, error, step)
        return result

    def of_step(step: Step) -> Generator[None, Any, Any]:
        return (yield from ask(step, step))

    def of_rows(rows: Rows) -> Generator[None, Any, Any]:
        return (yield from ask(rows.step, rows))

    return of_rows if hook == "process" else of_step


def _wrap(method: Callable[..., Any], hook: str, name: str, failed: Failed) -> Callable[..., None]:
    takes_argument = bool(inspect.signature(method).parameters)
    label = f"{hook}.{name}"

    def ask(step: Step, argument: Any) -> None:
        step.asking, step.about = name, None
        began = perf_counter()
        try:
            method(argument) if takes_argument else method()
        except Exception as error:
            failed(name, hook, error, step)
        finally:
            step.seconds[label] = step.seconds.get(label, 0.0) + perf_counter() - began

    if hook == "process":
        return lambda rows: ask(rows.step, rows)
    return lambda step: ask(step, step)


def ask_compat(plugin: Any, name: str, target: Any) -> Any:
    """The plugin's own answer, or None where it does not implement ``compat``."""
    found = implementations(plugin, name).get("compat")
    if found is None:
        return None
    method, _ = found
    return method(target) if inspect.signature(method).parameters else method()
