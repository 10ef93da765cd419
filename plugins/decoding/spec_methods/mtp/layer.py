"""The NextN layers in a run. The target describes their operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spec_kernels.drafting import Model, PairChain, PairLayer, TensorSubset

from spec_core.toolkit import NextTokenLayer


def draft_layers(layers: Sequence[NextTokenLayer], trunk: Any) -> PairLayer | PairChain:
    """Draft steps from the layers of a file: a single layer drafts all tokens, of several each drafts its own.

    trunk: of the target, whose embedding and output matrix are used if a layer has none of its own.
    """
    steps = [draft_layer(layer, trunk) for layer in layers]
    return steps[0] if len(steps) == 1 else PairChain(steps)


def draft_layer(layer: NextTokenLayer, trunk: Any) -> PairLayer:
    """A draft step: pairs of a hidden state and the token after it, to a state and logits.

    The hidden state is the target's after its final norm; after a drafted token, a layer's own is used in its place.
    """
    source = TensorSubset(layer.source, layer.names, trunk.source)
    model = Model(tuple(layer.operations(source)), *layer.rotation())
    return PairLayer(trunk.with_layers(model, source), "hidden")
