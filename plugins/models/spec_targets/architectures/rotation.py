"""The rotary tables of a model: one for heads that attend to everything, another where some differ."""

from __future__ import annotations

from spec_kernels.model.rotary import RotaryTable
from torch import Tensor

from spec_targets.architectures.config import Config
from spec_targets.architectures.rope import Scaling, rope_frequencies

MAX_POSITIONS = 1 << 17
"""A larger context is reduced to this, unless it was requested."""


def first_table(config: Config, divisors: Tensor | None, context: int) -> tuple[Tensor | None, float]:
    """The table of heads that attend to everything; None and 1 if no head rotates."""
    rotations = tables(config, divisors, context)
    return rotations[0][:2] if rotations else (None, 1.0)


def tables(config: Config, divisors: Tensor | None, context: int) -> list[RotaryTable]:
    """The table of heads that attend to everything, and that of heads with a window if they differ, or of queries that
    are scaled by position; none if no head rotates. context: the positions that were requested, 0: the model's own."""
    if config.unrotated:
        return []
    length = context or min(config.context, MAX_POSITIONS)
    scaling = config.scaling
    rotations = [RotaryTable(*rope_frequencies(config.rotary_dim, config.rope_base, scaling, divisors, length))]
    if config.local_base:
        rotated = config.local_head or config.rotary_dim
        rotations.append(RotaryTable(*rope_frequencies(rotated, config.local_base, Scaling(), None)))
    if scaling.growth:
        rotations.append(rotations[0]._replace(growth=scaling.growth, period=scaling.original))
    return rotations
