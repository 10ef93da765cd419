"""Attention of query rows over cached rows, and who may see whom."""

from spec_kernels.ops.attention import reference
from spec_kernels.ops.attention.reference import ancestor_mask, causal_mask
from spec_kernels.ops.dispatch import by_device

attention = by_device(reference.attention)

__all__ = ["ancestor_mask", "attention", "causal_mask"]
