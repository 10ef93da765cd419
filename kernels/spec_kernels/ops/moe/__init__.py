"""Mixture of experts: choice of experts, and the sum of what they say."""

from spec_kernels.ops.moe.reference import experts, route_rows, route_sigmoid

__all__ = ["experts", "route_rows", "route_sigmoid"]
