"""The first block behind the trunk, which predicts one token further, as a part of a target."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from spec_kernels.model.ops import Op
from spec_kernels.model.source import TensorSource, TensorSubset
from torch import Tensor

from spec_targets.description.config import Config
from spec_targets.runtime.decoder import nextn_layer
from spec_targets.runtime.rotation import tables
from spec_targets.runtime.weights import TensorMismatch, Weights, nextn


@attrs.frozen(eq=False)
class NextnLayer:
    """See ``spec_core.contract.target_parts.NextTokenLayer``. divisors: of the rotation, from the file."""

    config: Config
    source: TensorSubset
    interleaved: bool
    divisors: Tensor | None
    context: int
    problem: str | None = None

    @classmethod
    def of(cls, config: Config, weights: Weights, divisors: Tensor | None, context: int) -> NextnLayer:
        """The layer of a file, with the first fault in its tensors."""
        problem = nextn_problem(config, weights)
        source = TensorSubset(weights, () if problem else nextn(config, weights))
        return cls(config, source, weights.interleaved, divisors, context, problem)

    @property
    def names(self) -> frozenset[str]:
        """Names of its tensors."""
        return self.source.names

    @property
    def heads(self) -> tuple[int, int]:
        """Dimensions of an attention head, and how many of them rotate."""
        return self.config.head, self.config.rotary_dim

    def operations(self, source: TensorSource) -> Iterable[Op]:
        """Operations, from tensors of the layer and of a trunk."""
        return nextn_layer(self.config, source, self.interleaved)

    def rotation(self) -> tuple[Tensor, float]:
        """Radians per position of every rotated pair, float32 [pairs], and the factor of cos and sin."""
        return tables(self.config, self.divisors, self.context)[0]


def nextn_problem(config: Config, weights: Weights) -> str | None:
    """The first fault in the tensors of the first block after the trunk; None if there is none."""
    try:
        nextn(config, weights)
    except TensorMismatch as fault:
        return str(fault)
    return None
