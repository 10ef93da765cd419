"""Rotary position embedding: frequencies, their scalings, and the rotation in both pair layouts."""

from spec_kernels.ops.rope.frequencies import frequencies, llama3_factors, yarn
from spec_kernels.ops.rope.reference import Pairs, interleaved_order, rope

__all__ = ["Pairs", "frequencies", "interleaved_order", "llama3_factors", "rope", "yarn"]
