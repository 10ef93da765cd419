"""Names that stand for methods: which ones they are depends on the target, and a package's function decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from spec_core.assembly.construct import create_plugin
from spec_core.assembly.discovery import discover_plugins, find_plugin, import_plugin
from spec_core.assembly.matching import ask_all, check_needs, refuse_unfit
from spec_core.contract.method_choice import MethodChoice
from spec_core.errors import FOREIGN, PluginError, SpecError, UsageError
from spec_core.settings.named import parse_method, split_methods

NO_CONTROL = "fixed"
"""The name of what every run has without a controller: each method drafts as long as its own settings say."""
KIND = "choice"


@attrs.frozen
class ChosenMethods:
    """Methods with no name that stands for others, the controller, and the notes of the choices."""

    methods: tuple[Any, ...]
    control: Any
    notes: tuple[str, ...] = ()


def choose_methods(
    target: Any, methods: Iterable[Any], plugin_settings: Mapping[str, Any], control: Any = None
) -> ChosenMethods:
    """``a+b`` and ``a++b`` as their methods, and every name that stands for others as those for this target.

    A method that the user names too is not named twice.
    plugin_settings: settings by plugin name. Raises UsageError for a choice with settings, PluginError if one fails.
    """
    choices = {entry.name for entry in discover_plugins((KIND,))}
    plugins = {entry.name for entry in discover_plugins(("method", "control"))}
    chosen: list[Any] = []
    notes: list[str] = []
    methods = (*_one_by_one(tuple(methods), choices | plugins),)
    for spec in methods:
        if not isinstance(spec, str) or (name := parse_method(spec)[0]) not in choices - plugins:
            chosen.append(spec)
            continue
        choice = _ask(name, spec, target, plugin_settings)
        chosen += [one for one in choice.methods if one not in methods]
        notes += [choice.note] if choice.note else []
        control = choice.control if control in (None, NO_CONTROL) else control
    return ChosenMethods(tuple(chosen), control, tuple(notes))


def _one_by_one(methods: Iterable[Any], known: set[str]) -> Iterator[Any]:
    """``a+b`` and ``a++b`` as the methods that they name."""
    for method in methods:
        yield from split_methods(method, known) if isinstance(method, str) else (method,)


def _ask(name: str, spec: str, target: Any, plugin_settings: Mapping[str, Any]) -> MethodChoice:
    """The choice of one name."""
    if spec != name:
        raise UsageError(f"{spec}: {name} stands for methods and has no settings", hint=f"write --method {name}")
    choose = import_plugin(find_plugin(name, (KIND,)))
    try:
        choice = choose(target, _misfit_of(target, plugin_settings))
        if not isinstance(choice, MethodChoice):
            raise TypeError(f"it returned {choice!r:.60}, a MethodChoice is needed")
    except SpecError:
        raise
    except FOREIGN as error:  # a package's function may raise anything
        raise PluginError(name, "compat", error) from error
    return choice


def _misfit_of(target: Any, plugin_settings: Mapping[str, Any]) -> Callable[[Any], str | None]:
    """A function that receives a method and returns why the target does not run it, None if it does."""

    def explain_misfit(spec: Any) -> str | None:
        try:
            check_needs(refuse_unfit(ask_all([create_plugin(spec, plugin_settings)], target)), target)
        except SpecError as error:
            return error.reason
        return None

    return explain_misfit
