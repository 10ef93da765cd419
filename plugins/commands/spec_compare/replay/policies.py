"""Policies that are replayed: an installed controller, the one of the recording, or a rule for the length of drafts."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import attrs

from spec_compare.records.header import ContenderFacts, TargetFacts
from spec_core import Compat, DraftPlan, DraftStep, Limit, TargetInfo, hookimpl
from spec_core.commands import construct_plugin, find_plugin, hooks_of, import_plugin, parse_method
from spec_core.errors import UsageError


@attrs.define(eq=False)
class Longest:
    """Drafts of at most ``length`` tokens."""

    length: int

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        step.plan(DraftPlan(dict.fromkeys(step.methods, Limit(self.length))))


@attrs.define(eq=False)
class MinChance:
    """Drafts end before the first token whose path is accepted with a smaller chance, by the method's own estimate."""

    chance: float

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        step.plan(DraftPlan(dict.fromkeys(step.methods, Limit(price=self.chance))))


@attrs.frozen(eq=False)
class Policy:
    """A chooser of draft lengths. recorded: the controller of the recording, whose choices are compared."""

    name: str
    plugin: Any
    recorded: bool = False


@attrs.frozen(eq=False)
class RecordedTarget:
    """Facts about the target of a recording, for ``compat`` and ``load`` of a controller. It computes nothing."""

    info: TargetInfo


def target_of(facts: TargetFacts) -> Any:
    """A RecordedTarget. Numbers of layers and of tokens are not recorded: they are 0."""
    exact: Any = (facts.exact or "").partition(":")[0]
    return RecordedTarget(
        TargetInfo(
            name=facts.name,
            vocab=0,
            width=0,
            layers=0,
            context=facts.context,
            vocab_id=facts.vocab_id,
            dtype=facts.dtype,
            device=facts.device,
            family=facts.family,
            exact=exact,
        )
    )


def recorded_policy(contender: ContenderFacts) -> Policy | None:
    """The controller that recorded this contender, with its settings; None without one.

    Raises UsageError for more than one: their choices cannot be distinguished.
    """
    if not contender.controllers:
        return None
    if len(contender.controllers) > 1:
        raise UsageError(
            f"{contender.name} was recorded with {len(contender.controllers)} controllers", hint="record it with one"
        )
    name = contender.controllers[0]
    settings = {
        key.removeprefix(f"{name}."): setting.value
        for key, setting in contender.settings.items()
        if key.startswith(f"{name}.")
    }
    return Policy(name, create_policy(name, settings), recorded=True)


def controller(spec: str) -> Policy:
    """Create the policy of a controller, ``NAME`` or ``NAME:key=value``."""
    name, settings = parse_method(spec)
    return Policy(spec, create_policy(name, settings))


def create_policy(name: str, settings: Mapping[str, Any]) -> Any:
    """A controller. Raises UsageError for one that reads what no trace has."""
    cls = import_plugin(find_plugin(name, ("control",)))
    reads = sorted({"accept", "process"} & set(hooks_of(cls)))
    if reads:
        raise UsageError(
            f"{name} implements {', '.join(reads)}: rows and logits are not recorded",
            hint="replay controllers that have the hooks draft and rollback only",
        )
    return construct_plugin(cls, settings, name)


def load_policy(policy: Policy, target: Any) -> Policy:
    """The policy after its ``compat`` and ``load``. Raises UsageError if it refuses."""
    answer = _answer(policy.plugin, target)
    if answer.refusals:
        raise UsageError(f"{policy.name}: {answer.refusals[0].reason}", hint=answer.refusals[0].hint)
    if answer.load is not None:
        answer.load(target)
    return policy


def _answer(plugin: Any, target: Any) -> Compat:
    """The policy's answer to ``compat``, which may name the target or not."""
    if not hasattr(plugin, "compat"):
        return Compat()
    named = bool(inspect.signature(plugin.compat).parameters)
    return (plugin.compat(target) if named else plugin.compat()) or Compat()
