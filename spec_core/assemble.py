"""From what the user named to the plugins of a run, asked and matched before any weight is read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from spec_core.accept import RULE, Coupled
from spec_core.discovery import PLUGIN_KINDS, discover
from spec_core.errors import PluginError, SpecError, UsageError, nearest
from spec_core.manager import (
    Chosen,
    admitted,
    asked,
    check_laws,
    check_needs,
    check_owners,
    make,
)

log = logging.getLogger("spec_core")
Given = Mapping[str, Mapping[str, Any]]


def assemble(target: Any, methods: Iterable[Any], rule: Any, rollback: Any, given: Given) -> list[Chosen]:
    """The plugins of a run in the user's order: methods, rule, owners of state, the target itself.

    Raises Refused with all refusals together. Weights are read last, once everything is clean.
    """
    plugins = check(target, methods, rule, rollback, given)
    for c in plugins:
        _load(c, target)
    return plugins


def _load(chosen: Chosen, target: Any) -> None:
    if chosen.compat.load is None:
        return
    try:
        chosen.compat.load(target)
    except SpecError:
        raise
    except Exception as error:
        raise PluginError(chosen.name, "load", error) from error


def check(target: Any, methods: Iterable[Any], rule: Any, rollback: Any, given: Given) -> list[Chosen]:
    """The same, without reading a weight."""
    _check_given(given)
    chosen = [make(spec, given) for spec in methods]
    if rule is not None and rule != RULE and not isinstance(rule, Coupled):
        chosen.append(make(rule, given, ("rule",)))
    chosen.append(Chosen("target", target))
    if rollback is not None:
        chosen.append(make(rollback, given, ("rollback",)))
    plugins = admitted(asked(chosen, target))
    drafting = any(c.laws for c in plugins)
    if drafting:
        plugins += _found_owners(plugins, target, given)
        check_owners(plugins, target.info.states)
    check_laws(plugins)
    check_needs(plugins, target)
    return plugins


def _check_given(given: Given) -> None:
    """Settings are for plugins that are installed, in use or not. Raises UsageError."""
    known = {entry.name for entry in discover(PLUGIN_KINDS)} if given else set()
    for name in given:
        if name not in known:
            raise UsageError(
                f"settings are given for {name!r}, no plugin of that name is installed",
                mend=f"installed: {nearest(name, known)}; an instance has its settings already",
            )


def _found_owners(plugins: list[Chosen], target: Any, given: Given) -> list[Chosen]:
    """The only installed owner of a state kind that has none yet; with several the user must choose."""
    owned = frozenset().union(*(c.compat.owns for c in plugins))
    missing = target.info.states - owned
    if not missing:
        return []
    installed = asked((make(entry.name, given, ("rollback",)) for entry in discover(["rollback"])), target)
    able = [c for c in installed if c.compat.owns & missing]
    for c in able:
        log.info("%s owns the target's %s state", c.name, ", ".join(sorted(missing)))
    return admitted(able)
