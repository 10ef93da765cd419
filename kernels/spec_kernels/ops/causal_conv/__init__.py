"""Depthwise causal convolution over the last few tokens, with a window that is remembered."""

from spec_kernels.ops.causal_conv.reference import causal_conv

__all__ = ["causal_conv"]
