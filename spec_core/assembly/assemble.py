"""Assembles the plugins that a user chose, and checks them before any weight is read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from spec_core.assembly.choices import NO_CONTROL, choose_methods
from spec_core.assembly.construct import DEFAULT_RULE, TARGET, PluginInstance, create_plugin
from spec_core.assembly.discovery import PLUGIN_KINDS, discover_plugins
from spec_core.assembly.matching import ask_all, check_needs, check_owned, check_owners, check_proposals, refuse_unfit
from spec_core.errors import FOREIGN, PluginError, Refused, SpecError, UsageError, nearest_names

log = logging.getLogger("spec_core")
PluginSettings = Mapping[str, Mapping[str, Any]]


def load_weights(plugins: Iterable[PluginInstance], target: Any) -> None:
    """Call ``Compat.load`` of every plugin, in the user's order."""
    for c in plugins:
        _load(c, target)


def _load(plugin: PluginInstance, target: Any) -> None:
    if plugin.compat.load is None:
        return
    try:
        plugin.compat.load(target)
    except SpecError:
        raise
    except FOREIGN as error:
        raise PluginError(plugin.name, "load", error) from error


def check_plugins(
    target: Any, methods: Iterable[Any], rule: Any, rollback: Any, plugin_settings: PluginSettings, control: Any = None
) -> list[PluginInstance]:
    """The plugins of a run in the user's order: methods, rule, owners of state, and the target itself. Reads no weight.

    Raises Refused with all refusals together.
    """
    _check_given(plugin_settings)
    choice = choose_methods(target, methods, plugin_settings, control)
    control = choice.control
    for note in choice.notes:
        log.info("%s", note)
    chosen = [create_plugin(spec, plugin_settings) for spec in choice.methods]
    if rule is not None and rule != DEFAULT_RULE:
        chosen.append(create_plugin(rule, plugin_settings, ("rule",)))
    chosen.append(PluginInstance(TARGET, target))
    if rollback is not None:
        chosen.append(create_plugin(rollback, plugin_settings, ("rollback",)))
    answered = ask_all(chosen, target)
    if control is not None and control != NO_CONTROL:
        answered = _add_controller(answered, target, control, plugin_settings)
    plugins = refuse_unfit(answered)
    drafting = any(c.proposals for c in plugins)
    if drafting:
        plugins += _found_owners(plugins, target, plugin_settings)
        check_owners(plugins, target.info.states)
    check_owned(plugins, target.info.states)
    check_proposals(plugins)
    check_needs(plugins, target)
    return plugins


def _add_controller(
    answered: list[PluginInstance], target: Any, control: Any, plugin_settings: PluginSettings
) -> list[PluginInstance]:
    """Put the controller of the settings first, if something drafts and no controller was named as a method."""
    controller = create_plugin(control, plugin_settings, ("control",))
    if any(c.controls for c in answered) or not any(c.proposals for c in answered):
        return answered
    return [*ask_all([controller], target), *answered]


def _check_given(plugin_settings: PluginSettings) -> None:
    """Check that every plugin with settings is installed, whether it is used or not. Raises UsageError."""
    known = {entry.name for entry in discover_plugins(PLUGIN_KINDS)} if plugin_settings else set()
    for name in plugin_settings:
        if name not in known:
            raise UsageError(
                f"settings are given for {name!r}, no plugin of that name is installed",
                hint=f"installed: {nearest_names(name, known)}; "
                f"a plugin instance takes its settings in its constructor",
            )


def _found_owners(plugins: list[PluginInstance], target: Any, plugin_settings: PluginSettings) -> list[PluginInstance]:
    """The installed owners that accept this target, for states without an owner. If several fit, the user must choose.

    Raises Refused with every reason if none accepts it.
    """
    owned = frozenset().union(*(c.compat.owns for c in plugins))
    missing = target.info.states - owned
    if not missing:
        return []
    able, reasons, mends = [], [], []
    for entry in discover_plugins(["rollback"]):
        answer = _asked_alone(entry.name, target, plugin_settings)
        if isinstance(answer, SpecError):
            reasons.append(answer.reason if entry.name in answer.reason else f"{entry.name}: {answer.reason}")
        elif answer.compat.refusals:
            reasons += [f"{entry.name}: {refusal.reason}" for refusal in answer.compat.refusals]
            mends += [refusal.hint for refusal in answer.compat.refusals if answer.compat.owns & missing]
        elif answer.compat.owns & missing:
            able.append(answer)
    if not able:
        raise _ownerless(missing, reasons, mends)
    _log(able, reasons)
    return refuse_unfit(able)


def _asked_alone(name: str, target: Any, plugin_settings: PluginSettings) -> PluginInstance | SpecError:
    """An installed owner with its ``compat``, or its error: an owner that fails here is skipped, others may fit."""
    try:
        return ask_all([create_plugin(name, plugin_settings, ("rollback",))], target)[0]
    except SpecError as error:
        return error


def _ownerless(missing: frozenset[str], reasons: list[str], mends: list[str]) -> Refused:
    states = " and ".join(map(repr, sorted(missing)))
    return Refused(
        "\n".join([f"no plugin owns the target's {states} state; it needs one owner", *reasons]),
        hint="\n  ".join([*dict.fromkeys(mends), "install a rollback plugin for it, or run without --method"]),
    )


def _log(able: list[PluginInstance], reasons: list[str]) -> None:
    for c in able:
        log.info("%s owns the target's %s state", c.name, ", ".join(sorted(c.compat.owns)))
    for reason in reasons:
        log.info("not used: %s", reason)
