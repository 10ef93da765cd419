"""Attention of query rows over cached rows, and who may see whom."""

from spec_kernels.ops.attention.reference import ancestor_mask, attention, causal_mask

__all__ = ["ancestor_mask", "attention", "causal_mask"]
