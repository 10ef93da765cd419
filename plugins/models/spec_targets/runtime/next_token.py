"""The blocks after the trunk, as parts of a target: every one predicts one token further."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from spec_kernels.model.ops import Op
from spec_kernels.model.source import TensorSource, TensorSubset
from torch import Tensor

from spec_targets.architectures.config import Config
from spec_targets.architectures.decoder import nextn_layer
from spec_targets.architectures.rotation import first_table
from spec_targets.runtime.weights import TensorMismatch, Weights, has_block, nextn


@attrs.frozen(eq=False)
class NextnLayer:
    """See ``spec_core.contract.target_parts.NextTokenLayer``.

    divisors: of the rotation, from the file. depth: how many such layers are before it.
    """

    config: Config
    source: TensorSubset
    interleaved: bool
    divisors: Tensor | None
    context: int
    problem: str | None = None
    depth: int = 0
    deeper: NextnLayer | None = None

    @classmethod
    def of(cls, config: Config, weights: Weights, divisors: Tensor | None, context: int, depth: int = 0) -> NextnLayer:
        """A layer of a file and the ones after it that the file has, each with the first fault in its tensors."""
        problem, names = None, {}
        try:
            names = nextn(config, weights, depth)
        except TensorMismatch as fault:
            problem = str(fault)
        source = TensorSubset(weights, names)
        after = depth + 1
        more = after < config.nextn and has_block(config.layers + after, weights)
        deeper = cls.of(config, weights, divisors, context, after) if more else None
        return cls(config, source, weights.interleaved, divisors, context, problem, depth, deeper)

    @property
    def names(self) -> frozenset[str]:
        """Names of its tensors."""
        return self.source.names

    @property
    def heads(self) -> tuple[int, int]:
        """Dimensions of an attention head, and how many of them rotate."""
        return self.config.head, self.config.heads_of(self.config.layers).rotary_dim

    @property
    def last_norms(self) -> tuple[str, ...]:
        """The readings of its last norm in public engines, that of the file's writer first."""
        return self.config.nextn_norms

    def with_last_norm(self, norm: str) -> NextnLayer:
        """The layer, and the layers after it, with one of ``last_norms``."""
        norms = (norm, *(other for other in self.last_norms if other != norm))
        deeper = self.deeper and self.deeper.with_last_norm(norm)
        return attrs.evolve(self, config=attrs.evolve(self.config, nextn_norms=norms), deeper=deeper)

    def operations(self, source: TensorSource) -> Iterable[Op]:
        """Operations, from tensors of the layer and of a trunk."""
        return nextn_layer(self.config, source, self.interleaved, self.depth)

    def rotation(self) -> tuple[Tensor | None, float]:
        """Radians per position of every rotated pair, float32 [pairs], and the factor of cos and sin."""
        return first_table(self.config, self.divisors, self.context)
