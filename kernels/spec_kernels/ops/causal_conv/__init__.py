"""Depthwise causal convolution over the last few tokens, with a window that is remembered."""

from spec_kernels.ops.causal_conv import reference
from spec_kernels.ops.dispatch import by_device

causal_conv = by_device(reference.causal_conv)

__all__ = ["causal_conv"]
