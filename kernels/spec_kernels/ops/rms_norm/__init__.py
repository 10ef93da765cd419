"""Root mean square normalisation."""

from spec_kernels.ops.rms_norm.reference import rms_norm

__all__ = ["rms_norm"]
