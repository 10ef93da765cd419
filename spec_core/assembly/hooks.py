"""The hooks that a plugin implements, with their options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from spec_core import hookspecs
from spec_core.errors import UsageError, nearest_names
from spec_core.hookspecs import PROJECT

HOOKS = ("compat", "draft", "accept", "rollback", "process")
ARGUMENTS = {hook: tuple(inspect.signature(getattr(hookspecs, hook)).parameters) for hook in HOOKS}
MARK = f"{PROJECT}_impl"


def hooks_of(cls: type) -> list[str]:
    """Hooks that a plugin's class implements, in the order of the contract; nothing is checked."""
    return [hook for hook in HOOKS if hasattr(getattr(cls, hook, None), MARK)]


def implementations(plugin: Any, name: str) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """{hook: (bound method, options)} of everything marked ``@hookimpl``. Raises UsageError for an unknown hook."""
    hooks = {}
    kind = plugin if inspect.ismodule(plugin) else type(plugin)
    for attribute in dir(kind):
        # Read from the class: a property of the instance may need what is not loaded yet.
        options = getattr(getattr(kind, attribute, None), MARK, None)
        if isinstance(options, dict):
            method = getattr(plugin, attribute)
            hook = options.get("specname") or attribute
            _check(method, hook, name)
            _check_kind(method, options, hook, name)
            hooks[hook] = (method, options)
    return hooks


def _check(method: Callable[..., Any], hook: str, name: str) -> None:
    """Refuse a misspelt hook or argument, which pluggy would ignore or report late."""
    if hook not in HOOKS:
        raise UsageError(
            f"plugin {name!r} implements {hook!r}, which is not a hook", hint=f"hooks: {nearest_names(hook, HOOKS)}"
        )
    allowed = ARGUMENTS[hook]
    for parameter in inspect.signature(method).parameters.values():
        if parameter.name not in allowed:
            raise UsageError(
                f"plugin {name!r}: {hook} has no argument {parameter.name!r}", hint=f"it may name: {', '.join(allowed)}"
            )
        if parameter.default is not parameter.empty:
            raise UsageError(
                f"plugin {name!r}: argument {parameter.name!r} of {hook} has a default",
                hint="remove it: pluggy versions differ in whether the default or the caller wins",
            )


def _check_kind(method: Callable[..., Any], options: dict[str, Any], hook: str, name: str) -> None:
    """Refuse a generator or coroutine, whose body would never run, without an error."""
    if options["hookwrapper"]:
        raise UsageError(f"plugin {name!r}: {hook} is an old-style hookwrapper", hint="use @hookimpl(wrapper=True)")
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise UsageError(f"plugin {name!r}: {hook} is async, but hooks are not awaited", hint="remove async")
    if inspect.isgeneratorfunction(method) and not options["wrapper"]:
        raise UsageError(
            f"plugin {name!r}: {hook} yields but is not a wrapper, so its body would never run",
            hint="remove the yield, or mark it @hookimpl(wrapper=True)",
        )
    if options["wrapper"] and not inspect.isgeneratorfunction(method):
        raise UsageError(f"plugin {name!r}: the wrapper {hook} never yields", hint="yield exactly once")


def ask_compat(plugin: Any, name: str, target: Any) -> Any:
    """The plugin's own answer, or None if it does not implement ``compat``."""
    implementation = implementations(plugin, name).get("compat")
    if implementation is None:
        return None
    method, _ = implementation
    return method(target) if inspect.signature(method).parameters else method()
