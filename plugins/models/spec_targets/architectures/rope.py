"""The rotary angles of a model: its frequencies, with the scaling of its file."""

from __future__ import annotations

import math
from typing import Literal

import attrs
from spec_kernels.ops.rope import frequencies, yarn
from torch import Tensor, arange, tensor

from spec_core.errors import UsageError


@attrs.frozen
class Scaling:
    """Scaling of rotary positions beyond the trained context.

    ``linear`` divides positions by factor; ``yarn`` (Peng et al., 2309.00071) slows slow frequencies only and scales
    cos and sin; ``longrope`` (Ding et al., 2402.13753) divides each frequency by its own number, one of ``long`` in a
    context longer than ``original`` and one of ``short`` in others; ``proportional`` turns only the share ``factor``
    of the pairs, the first ones; llama3's scaling is given as divisors instead.
    whole: the ends of yarn's ramp are rounded to whole pairs. attention: a further factor of cos and sin. growth: of
    queries, with the period ``original``, see ``RotaryTable``.
    """

    kind: Literal["none", "linear", "yarn", "longrope", "proportional"] = "none"
    factor: float = 1.0
    original: int = 0
    fast: float = 32.0
    slow: float = 1.0
    attention: float = 1.0
    whole: bool = True
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()
    growth: float = 0.0

    def check(self, base: float, pairs: int, where: str) -> None:
        """Raise UsageError for parameters that give no frequencies. pairs: that rotate, of a head."""
        for factors in (self.short, self.long):
            if self.kind == "longrope" and (len(factors) != pairs or not all(0 < x < math.inf for x in factors)):
                raise UsageError(
                    f"{where}: longrope has the factors {str(factors)[:60]}, {pairs} positive numbers were needed",
                    hint="the file is damaged; get it again",
                )
        numbers = (self.factor, self.fast, self.slow, self.attention)
        good = all(0 < x < math.inf for x in numbers) and 0 <= self.growth < math.inf
        if (
            not good
            or (self.kind == "yarn" and (self.original < 1 or base <= 1))
            or (self.growth and self.original < 1)
        ):
            raise UsageError(
                f"{where}: {self.kind} rope scaling by {self.factor} from {self.original} positions, beta {self.fast} "
                f"to {self.slow}, attention factor {self.attention}, base {base} gives no frequencies",
                hint="the file is damaged; get it again",
            )


def yarn_attention(factor: float, scale: float = 1.0) -> float:
    """Yarn's factor of cos and sin in a context that is ``factor`` times as long as the trained one."""
    return 0.1 * scale * math.log(max(1.0, factor)) + 1.0


def rope_frequencies(
    rotated: int, base: float, scaling: Scaling, divisors: Tensor | None, context: int = 0
) -> tuple[Tensor, float]:
    """Radians per position [rotated / 2] float32, and the factor of cos and sin.

    context: positions that the model is loaded with. Longrope follows it, not the length of a text: otherwise keys
    in a cache would not fit later ones.
    """
    theta = frequencies(rotated, base)
    if divisors is not None:
        theta = theta / divisors.float()
    if scaling.kind == "linear":
        return theta / scaling.factor, 1.0
    if scaling.kind == "proportional":
        return theta.index_fill(0, arange(int(len(theta) * scaling.factor), len(theta)), 0.0), 1.0
    if scaling.kind == "yarn":
        slowed = yarn(theta, base, scaling.factor, scaling.original, scaling.fast, scaling.slow, scaling.whole)
        return slowed, yarn_attention(scaling.factor) * scaling.attention
    if scaling.kind == "longrope":
        return theta / tensor(scaling.long if context > scaling.original else scaling.short), scaling.attention
    return theta, 1.0
