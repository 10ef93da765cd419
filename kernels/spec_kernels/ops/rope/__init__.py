"""Rotary position embedding: frequencies, their scalings, and the rotation in both pair layouts."""

from spec_kernels.ops.rope.frequencies import frequencies, llama3_factors, yarn
from spec_kernels.ops.rope.reference import Pairs, interleaved, rope

__all__ = ["Pairs", "frequencies", "interleaved", "llama3_factors", "rope", "yarn"]
