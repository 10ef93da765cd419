"""The NextN layer in a run. The target describes its operations."""

from __future__ import annotations

from typing import Any

from spec_kernels.model.ops import Model
from spec_kernels.model.pairs import PairLayer
from spec_kernels.model.source import TensorSubset

from spec_core.toolkit import NextTokenLayer


class Layer(PairLayer):
    """Draft step: pairs of the target's hidden state and the token after it, to a state and logits.

    The hidden state is the target's after its final norm; after a drafted token, the layer's own is used in its place.
    """

    def __init__(self, layer: NextTokenLayer, trunk: Any) -> None:
        """trunk: of the target, whose embedding and output matrix are used if the layer has none of its own."""
        source = TensorSubset(layer.source, layer.names, trunk.source)
        model = Model(tuple(layer.operations(source)), *layer.rotation())
        super().__init__(trunk.with_layers(model, source), "hidden")
