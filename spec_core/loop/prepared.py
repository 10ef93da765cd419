"""A run in two steps: checked from metadata, then loaded. Every plugin is made once, and asked for ``compat`` once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from spec_core.assembly.assemble import check_plugins, load_weights
from spec_core.assembly.choices import ChosenMethods, choose_methods
from spec_core.assembly.construct import PluginInstance
from spec_core.assembly.description import Description, describe
from spec_core.assembly.matching import ask_all
from spec_core.contract.target import Target
from spec_core.contract.values import TargetInfo
from spec_core.errors import UsageError

LATER = ("exact", "exact_why", "kernels", "threads", "weight_bytes", "row_bytes", "step_bytes")
"""Facts of a target that may be known only after its weights are read; no answer to ``compat`` depends on them."""


@attrs.define(eq=False)
class Prepared:
    """A run whose plugins have accepted the target's metadata. No weight was read. It can be loaded once.

    target: described, or complete if it was passed so. plugins: with their answers, in the order of calls.
    notes: on names that stand for methods: which ones they are for this target, and why.
    """

    target: Target
    plugins: list[PluginInstance]
    notes: tuple[str, ...] = ()
    _description: Description | None = None
    _check: Callable[[Target], list[PluginInstance]] | None = None
    _start: Callable[..., Any] | None = None
    _loaded: bool = attrs.field(default=False, init=False)

    def load(self, settings: Any = None, **keywords: Any) -> Any:
        """The run. settings, keywords: as for ``Run``. Reads the weights of the target, then of the plugins."""
        assert self._start is not None
        return self._start(self, settings=settings, **keywords)

    def open(self) -> tuple[Target, list[PluginInstance]]:
        """The target and the plugins with their weights. Plugins are asked again only if other facts were found.

        Raises UsageError at the second call: the plugins belong to the first run.
        """
        if self._loaded:
            raise UsageError("this run was loaded already, and its plugins belong to it", hint="call prepare again")
        self._loaded = True
        target, plugins = self.target, self.plugins
        if self._description is not None and self._check is not None:
            target = self._description.load()
            plugins = self._with_target(target) if _same_facts(target, self.target) else self._check(target)
        load_weights(plugins, target)
        return target, plugins

    def _with_target(self, target: Target) -> list[PluginInstance]:
        """The plugins, with the complete target in place of the described one."""
        return [
            ask_all([attrs.evolve(c, plugin=target)], target)[0] if c.plugin is self.target else c for c in self.plugins
        ]


def prepare_plugins(
    target: Target | Description | str | Path,
    methods: Iterable[Any] = (),
    rule: Any = None,
    rollback: Any = None,
    plugin_settings: Mapping[str, Mapping[str, Any]] | None = None,
    control: Any = None,
    **loading: Any,
) -> Prepared:
    """Check a run from metadata: its arguments are ``Run``'s; ``loading`` are fields of LoadSettings.

    target: a description lets several runs share one model. Raises UsageError, or Refused with every plugin's refusal.
    No weight is read before ``load`` of the result.
    """
    named = [methods] if isinstance(methods, str) else list(methods)
    settings = plugin_settings or {}

    def accept(target: Target, methods: ChosenMethods) -> list[PluginInstance]:
        return check_plugins(target, methods.methods, rule, rollback, settings, methods.control)

    if isinstance(target, (str, Path)):
        target, loading = describe(target, **loading), {}
    if loading:
        raise UsageError(
            f"{', '.join(sorted(loading))} can be set only when a model is loaded; this one is loaded already",
            hint="pass it to load(), or pass the model's location to Run instead of the target",
        )
    if isinstance(target, Description):
        described = target.target
        choice = choose_methods(described, named, settings, control)
        return Prepared(described, accept(described, choice), choice.notes, target, lambda of: accept(of, choice))
    if not hasattr(target, "info"):
        raise UsageError(
            f"Run was called with {target!r:.40}, which is not a model",
            hint="pass the location of a model, or a target that load(...) returned",
        )
    choice = choose_methods(target, named, settings, control)
    return Prepared(target, accept(target, choice), choice.notes)


def _same_facts(a: Target, b: Target) -> bool:
    """Whether plugins would answer alike for both."""
    return _facts(a.info) == _facts(b.info)


def _facts(info: TargetInfo) -> TargetInfo:
    defaults = attrs.fields_dict(TargetInfo)
    values: dict[str, Any] = {name: defaults[name].default for name in LATER}
    return attrs.evolve(info, **values)
