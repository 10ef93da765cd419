"""Rotary position embedding: frequencies, their scalings, and the rotation in both pair layouts."""

from spec_kernels.ops.dispatch import by_device
from spec_kernels.ops.rope import reference
from spec_kernels.ops.rope.frequencies import frequencies, llama3_factors, yarn
from spec_kernels.ops.rope.reference import Pairs, interleaved_order

rope = by_device(reference.rope)

__all__ = ["Pairs", "frequencies", "interleaved_order", "llama3_factors", "rope", "yarn"]
