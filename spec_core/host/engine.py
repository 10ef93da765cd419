"""An engine as plugins see it: facts about its model, and what it gives to a host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import attrs
from torch import Tensor

from spec_core.assembly.assemble import check_plugins as check_plugins
from spec_core.assembly.construct import PluginInstance
from spec_core.contract.target import Tokenizer
from spec_core.contract.target_parts import NextTokenLayer
from spec_core.contract.values import Compat, TargetInfo
from spec_core.errors import Refused, UsageError
from spec_core.hookspecs import hookimpl


@attrs.frozen
class Serves:
    """What an engine gives to plugins: in each ``Progress``, in ``EngineModel.tensors``, in the requests of ``begin``.

    logits: rows of logits, of the last committed token and of each verified draft token. hidden: hidden states between
    blocks. final: the hidden state after the final norm. trees: drafts may branch. limits: drafts of any length up to
    the one allowed; without it a plugin that limits lengths is refused.
    weights: GGUF names of the weights that the engine shares, such as ``token_embd.weight``. constraints: requests have
    the constraint that the engine enforces. predictions: requests have predictions.
    """

    logits: bool = False
    hidden: bool = False
    final: bool = False
    trees: bool = False
    limits: bool = True
    weights: frozenset[str] = attrs.field(default=frozenset(), converter=frozenset, kw_only=True)
    constraints: bool = attrs.field(default=False, kw_only=True)
    predictions: bool = attrs.field(default=False, kw_only=True)

    def __str__(self) -> str:
        """What is served, in words, for refusals."""
        return ", ".join(["tokens", *(what for name, what in WORDS.items() if getattr(self, name))])


WORDS = {
    "logits": "rows of logits",
    "hidden": "hidden states between blocks",
    "final": "the hidden state after the final norm",
    "trees": "drafts that branch",
    "weights": "weights",
    "constraints": "constraints of requests",
    "predictions": "predictions of requests",
}
"""Fields of Serves, and of Needs, in words."""


@attrs.define(eq=False)
class EngineModel:
    """The model that an engine runs, in the place of a Target: plugins read ``info``, ``tokenizer`` and ``tensor``.

    info: ``trees`` is replaced by what the engine serves. tensors: name -> weight as in ``Target.tensor``, for draft
    heads that use the embedding or the output matrix; None if the engine shares none. next_token_layer: of the model's
    file, see ``spec_core.contract.target_parts``.
    """

    info: TargetInfo
    tokenizer: Tokenizer | None = None
    tensors: Callable[[str], Tensor] | None = None
    next_token_layer: NextTokenLayer | None = None

    def tensor(self, name: str) -> Tensor:
        """A weight by its GGUF name. Raises KeyError if the engine does not share it."""
        if self.tensors is None:
            raise KeyError(name)
        return self.tensors(name)

    def forward(self, *_: Any) -> NoReturn:
        """Raises UsageError: the engine runs its model itself."""
        raise UsageError(
            f"a plugin called forward of {self.info.name}, which another engine runs",
            hint="use a target of this project's own loop for that plugin",
        )

    @hookimpl
    def compat(self) -> Compat:
        """The engine rolls its own state back."""
        return Compat(owns=self.info.states)


def check_methods(
    model: EngineModel,
    methods: Iterable[Any],
    serves: Serves | None = None,
    plugin_settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[PluginInstance]:
    """The plugins with their answers to ``compat``, from metadata alone: what ``Host`` does before it reads weights.

    Arguments as of ``Host``. Raises UsageError, or Refused with everything that plugins need and the engine does not
    serve.
    """
    named, serves = [methods] if isinstance(methods, str) else list(methods), serves or Serves()
    plugins = check_plugins(plugin_view(model, serves), named, None, None, plugin_settings or {})
    refuse_needs(plugins, serves)
    return plugins


def plugin_view(model: EngineModel, serves: Serves) -> Any:
    """The model as plugins see it: it takes trees if the engine does."""
    return attrs.evolve(model, info=attrs.evolve(model.info, trees=serves.trees))


def refuse_needs(plugins: Iterable[PluginInstance], serves: Serves) -> None:
    """Raise Refused with everything that plugins need and the engine does not serve."""
    plugins = [c for c in plugins if not isinstance(c.plugin, EngineModel)]
    reasons = [f"{c.name}: {reason}" for c in plugins for reason in unmet_needs(c, serves)]
    if reasons:
        hint = "run it in this project's own loop, or leave it out: see which engine serves what in the documentation"
        raise Refused("\n".join(reasons), hint=hint)


def unmet_needs(plugin: PluginInstance, serves: Serves) -> Iterator[str]:
    """What one plugin needs and an engine does not serve."""
    needs = plugin.compat.needs
    if "accept" in plugin.hooks:
        yield "it decides which drafts are accepted; this engine decides itself"
    if plugin.controls and not serves.limits:
        yield "it limits the lengths of drafts; this engine asks for one length"
    if needs.runs_target:
        yield "it evaluates sequences of its own on the target; this engine runs its model alone"
    if needs.partial:
        yield "it runs rows through a part of the target's blocks; this engine runs its model alone"
    if needs.cached_layers:
        yield "it reads keys and values of the target; this engine shows none"
    if needs.all_logits:
        yield "it reads logits of all rows of a prompt; this engine does not give them"
    for name, what in WORDS.items():
        if getattr(needs, name) and not getattr(serves, name):
            yield f"it needs {what}{_which(getattr(needs, name))}; this engine serves {serves}"
    if serves.weights and (missing := needs.weights - serves.weights):
        yield f"it needs weights{_which(missing)}; this engine shares{_which(serves.weights)}"


def _which(needed: bool | frozenset[Any]) -> str:
    """Blocks of hidden states, or names of weights."""
    return "" if isinstance(needed, bool) else f" ({', '.join(map(str, sorted(needed)))})"
