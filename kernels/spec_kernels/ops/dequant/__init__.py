"""Quantised blocks of GGUF files to float32, bit for bit."""

from spec_kernels.ops.dequant.reference import TYPES, QuantType, dequantize

__all__ = ["TYPES", "QuantType", "dequantize"]
