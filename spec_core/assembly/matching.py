"""Calls ``compat`` of every plugin and matches the answers, or refuses."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import attrs

from spec_core.assembly.construct import DEFAULT_RULE, PluginInstance
from spec_core.assembly.hooks import ask_compat
from spec_core.contract.kinds import GREEDY, unjudged_kinds
from spec_core.contract.target_parts import cache_reader, has_tensor, partial_problem, probe_problem
from spec_core.contract.values import Compat, TargetInfo
from spec_core.errors import FOREIGN, PluginError, Refused, SpecError, UsageError, nearest_names


def ask_all(chosen: Iterable[PluginInstance], target: Any) -> list[PluginInstance]:
    """Every plugin with its answer to ``compat``."""
    return [attrs.evolve(c, compat=_answer(c, target)) for c in chosen]


def refuse_unfit(answered: list[PluginInstance]) -> list[PluginInstance]:
    """Return the plugins if none refuses and no names clash. Raises Refused with all refusals together."""
    refusals = [(c.name, r) for c in answered for r in c.compat.refusals]
    if refusals:
        raise Refused(
            "\n".join(f"{name}: {r.reason}" for name, r in refusals),
            hint="\n  ".join(dict.fromkeys(r.hint for _, r in refusals)),
        )
    _check_names(answered)
    for c in answered:
        c.check()
    return answered


def _answer(plugin: PluginInstance, target: Any) -> Compat:
    try:
        answer = ask_compat(plugin.plugin, plugin.name, target)
    except SpecError:
        raise
    except FOREIGN as error:
        raise PluginError(plugin.name, "compat", error) from error
    if answer is not None and not isinstance(answer, Compat):
        raise UsageError(f"compat of {plugin.name} returned {type(answer).__name__}", hint="return a Compat, or None")
    return answer or Compat()


def _check_names(chosen: list[PluginInstance]) -> None:
    names = [c.name for c in chosen]
    for name in names:
        if name == DEFAULT_RULE:
            raise UsageError(f"the name {name!r} is reserved for the core's rule", hint="give the plugin another name")
        if names.count(name) > 1:
            raise UsageError(f"{name} is named twice", hint="name it once, or give the second another name in Python")


def check_owners(chosen: list[PluginInstance], states: frozenset[str]) -> None:
    """Check that every kind of target state has exactly one owner: drafts without one would make the text wrong."""
    for state in sorted(states):
        owners = [c.name for c in chosen if state in c.compat.owns]
        if len(owners) != 1:
            raise Refused(
                f"{' and '.join(owners) or 'no plugin'} would roll back the target's {state!r} state; "
                "it needs one owner",
                hint="choose one with --rollback NAME"
                if owners
                else "install a rollback plugin for it, or run without --method",
            )


def check_owned(chosen: Iterable[PluginInstance], states: frozenset[str]) -> None:
    """A kind of state that the target does not have is misspelt, or the owner is made for another target."""
    for c in chosen:
        for state in sorted(c.compat.owns - states):
            raise Refused(
                f"{c.name} owns {state!r} state, this target has none",
                hint=f"kinds of state of this target, nearest first: {nearest_names(state, states)}; "
                f"or run without {c.name}",
            )


def wants_probs(chosen: Iterable[PluginInstance]) -> bool:
    """Whether an active rule reads the rows that drafts were drawn from."""
    return any("sampled" in (c.compat.judges or ()) for c in chosen)


def drafted_proposals(chosen: list[PluginInstance]) -> dict[str, frozenset[str]]:
    """{plugin: kinds of proposal it may draft in this run}.

    A method that can draw from rows does so wherever a rule reads them: it drafts nothing ``unknown`` then, and if it
    declares ``greedy``, nothing deterministic for a request with a temperature.
    """
    reads_probs = wants_probs(chosen)
    return {
        c.name: _drawn_kinds(c.proposals) if reads_probs and "sampled" in c.proposals else c.proposals for c in chosen
    }


def _drawn_kinds(proposals: frozenset[str]) -> frozenset[str]:
    return proposals - {"unknown", *(("deterministic",) if GREEDY in proposals else ())}


def check_proposals(chosen: list[PluginInstance]) -> None:
    """Check that the rule judges every method's kinds of proposal. Raises Refused before anything runs."""
    rules = [c for c in chosen if "accept" in c.hooks and c.compat.judges is not None]
    drafted = drafted_proposals(chosen)
    for rule in rules:
        _check_mixed(rule, chosen, drafted)
        for method in chosen:
            if unfit := unjudged_kinds(drafted[method.name], rule.compat.judges or frozenset()):
                raise Refused(
                    f"rule {rule.name} judges the proposals {', '.join(sorted(rule.compat.judges or ()))}; "
                    f"{method.name} drafts {', '.join(sorted(unfit))}",
                    hint="leave --rule out (the default judges every proposal), "
                    f"or run {rule.name} without {method.name}",
                )


def _check_mixed(plugin: PluginInstance, chosen: list[PluginInstance], drafted: dict[str, frozenset[str]]) -> None:
    """Refuse drafts that are drawn in part only, unless the rule judges them."""
    if "mixed" in (plugin.compat.judges or ()):
        return
    for extender in (c for c in chosen if c.compat.extends):
        for other in chosen:
            kinds = product(drafted[other.name], drafted[extender.name])
            if other is not extender and any({"sampled", "deterministic"} == {*pair} for pair in kinds):
                raise Refused(
                    f"rule {plugin.name} judges no draft in which some tokens were drawn and others not; "
                    f"{extender.name} may extend what {other.name} drafts to one",
                    hint=f"run {extender.name} with extend=false, or leave --rule out (the default judges every draft)",
                )


def check_needs(chosen: list[PluginInstance], target: Any) -> None:
    """The target must have what plugins need: layers that exist, weights that it gives, trees if it accepts them."""
    _check_traces(chosen)
    for c in chosen:
        _check_weights(c, target)
        if c.compat.needs.trees and not target.info.trees:
            raise Refused(f"{c.name} drafts trees, {target.info.name} takes chains only", hint=f"run without {c.name}")
        wrong = [i for i in c.compat.needs.hidden if not 0 <= i <= target.info.layers]
        if wrong:
            raise Refused(
                f"{c.name} reads hidden states {wrong}, {target.info.name} has 0 to {target.info.layers}",
                hint="use a file made for this target, or let its Needs(hidden=...) name states that are there",
            )
        _check_cached(c, target)
        _check_partial(c, target)
        _check_probes(c, target)


def _check_weights(plugin: PluginInstance, target: Any) -> None:
    info: TargetInfo = target.info
    names = plugin.compat.needs.weights
    if info.tensors is None:
        missing = frozenset(name for name in names if not has_tensor(target, name))
        offered = "no such weights"
    else:
        missing, offered = names - info.tensors, ", ".join(sorted(info.tensors)) or "no weights"
    if missing:
        raise Refused(
            f"{plugin.name} reads the target's {', '.join(sorted(missing))}; {info.name} gives {offered}",
            hint=f"load the model with another target (spec plugins lists them), or run without {plugin.name}",
        )


def _check_cached(plugin: PluginInstance, target: Any) -> None:
    """Refuse blocks whose keys and values the target does not show."""
    blocks, reader = plugin.compat.needs.cached_layers, cache_reader(target)
    if blocks and reader is None:
        raise Refused(
            f"{plugin.name} reads keys and values of the target, {target.info.name} shows none of its cache",
            hint=f"load the model with another target (spec plugins lists them), or run without {plugin.name}",
        )
    wrong = sorted(i for i in blocks if reader is None or not 0 <= i < target.info.layers or reader.heads(i) is None)
    if wrong:
        raise Refused(
            f"{plugin.name} reads keys and values of the blocks {wrong}, which {target.info.name} has not",
            hint="use a file made for this target",
        )


def _check_partial(plugin: PluginInstance, target: Any) -> None:
    """Refuse a target that runs no parts of its model."""
    if plugin.compat.needs.partial and (problem := partial_problem(target)) is not None:
        raise Refused(
            f"{plugin.name} runs a part of the target's blocks, {target.info.name} cannot: {problem}",
            hint=f"load a dense model on a CPU, or run without {plugin.name}",
        )


def _check_probes(plugin: PluginInstance, target: Any) -> None:
    """Refuse a target that evaluates no rows but drafts."""
    if plugin.compat.needs.probes and (problem := probe_problem(target)) is not None:
        raise Refused(
            f"{plugin.name} adds rows to forwards that are no drafts, {target.info.name} cannot: {problem}",
            hint=f"load the model with another target or executor, or run without {plugin.name}",
        )


def _check_traces(chosen: list[PluginInstance]) -> None:
    """A forward records one kind of trace, so two plugins may not need different kinds, and only owners read it."""
    for c in chosen:
        if c.compat.needs.trace is not None and not c.compat.owns:
            raise Refused(
                f"{c.name} needs a trace of {c.compat.needs.trace} and owns no state: only an owner can read a trace",
                hint=f"leave trace out of the Needs of {c.name}, or declare in Compat(owns=...) what it rolls back",
            )
    traces = {c.compat.needs.trace: c.name for c in chosen if c.compat.needs.trace is not None}
    if len(traces) > 1:
        (one, first), (other, second) = sorted(traces.items())
        raise Refused(f"{first} needs a trace of {one}, {second} one of {other}", hint="run without one of them")
