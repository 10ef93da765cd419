"""The NextN layer in a run. The target describes its operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spec_kernels.model.ops import Model
from spec_kernels.model.pairs import PairLayer
from spec_kernels.model.source import Only


class Layer(PairLayer):
    """Draft step: pairs of the target's hidden state and the token after it, to a state and logits.

    The hidden state is the target's after its final norm; after a drafted token, the layer's own is used in its place.
    """

    def __init__(self, facts: Mapping[str, Any], trunk: Any) -> None:
        """facts: ``operations``, ``source`` and ``rotations`` of ``info.extras["nextn"]``. trunk: of the target, whose
        embedding and output matrix are used if the layer has none of its own."""
        source = Only(facts["source"].source, facts["source"].names, trunk.source)
        model = Model(facts["operations"](source), *facts["rotations"]())
        super().__init__(trunk.another(model, source), "hidden")
