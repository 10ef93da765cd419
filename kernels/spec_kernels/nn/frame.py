"""What all layers of one forward share: rotations, and where each sequence's rows go and look."""

from __future__ import annotations

import attrs
from torch import Tensor

from spec_kernels.nn.cache import KvCache


@attrs.frozen(eq=False)
class Place:
    """One sequence's rows: ``rows`` of the batch, cached from ``start`` on.

    mask: bool [groups * T, N], who sees whom, None where every row sees everything; causal: all rows, no cached ones.
    """

    cache: KvCache
    rows: slice
    start: int
    count: int
    mask: Tensor | None
    causal: bool = False


@attrs.frozen(eq=False)
class Frame:
    """cos [R, 1, D] and sin with the sign of the rotation, 1 and 0 where nothing turns; one place per sequence."""

    cos: Tensor
    sin: Tensor
    places: tuple[Place, ...]
