"""The rotary tables of a model: one for heads that attend to everything, one for those with a window if they differ."""

from __future__ import annotations

from torch import Tensor

from spec_targets.architectures.config import Config
from spec_targets.architectures.rope import Scaling, rope_frequencies

MAX_POSITIONS = 1 << 17
"""A larger context is reduced to this, unless it was requested."""


def first_table(config: Config, divisors: Tensor | None, context: int) -> tuple[Tensor | None, float]:
    """The table of heads that attend to everything; None and 1 if no head rotates."""
    return next(iter(tables(config, divisors, context)), (None, 1.0))


def tables(config: Config, divisors: Tensor | None, context: int) -> list[tuple[Tensor, float]]:
    """Radians per position of every pair of a head, and the factor of cos and sin: of heads that attend to everything,
    and of those with a window if they differ; none if no head rotates. context: the positions that were requested, 0:
    the model's own."""
    if config.unrotated:
        return []
    length = context or min(config.context, MAX_POSITIONS)
    rotations = [rope_frequencies(config.rotary_dim, config.rope_base, config.scaling, divisors, length)]
    if config.local_base:
        rotated = config.local_head or config.rotary_dim
        rotations.append(rope_frequencies(rotated, config.local_base, Scaling(), None))
    return rotations
