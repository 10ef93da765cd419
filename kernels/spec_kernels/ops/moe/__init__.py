"""Mixture of experts: choice of experts, and the sum of what they say."""

from spec_kernels.ops.dispatch import by_device
from spec_kernels.ops.moe import reference

experts = by_device(reference.experts)
route = by_device(reference.route)
route_sigmoid = by_device(reference.route_sigmoid)

__all__ = ["experts", "route", "route_sigmoid"]
