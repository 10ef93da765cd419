"""Who sees whom when a sequence brings pending rows and drafts behind them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from spec_kernels.ops.attention import ancestor_mask, causal_mask


def tree_mask(start: int, pending: int, parents: Sequence[int]) -> Tensor:
    """bool [pending + K, start + pending + K]: pending rows are a chain, draft j sees its ancestors and itself.

    start: rows cached before. parents: [K], -1 is the last pending row.
    """
    rows = pending + len(parents)
    mask = causal_mask(rows, start + rows)
    mask[pending:, start + pending :] = ancestor_mask(parents)
    return mask
