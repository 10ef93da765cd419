"""Root mean square normalisation."""

from spec_kernels.ops.dispatch import by_device
from spec_kernels.ops.rms_norm import reference

rms_norm = by_device(reference.rms_norm)

__all__ = ["rms_norm"]
