"""The gated delta rule over chains, trees and several sequences, and the replay of what it recorded."""

from spec_kernels.ops.dispatch import by_device
from spec_kernels.ops.gated_delta import reference
from spec_kernels.ops.gated_delta.chunk import CHUNK

gated_delta = by_device(reference.gated_delta)
replay = by_device(reference.replay)

__all__ = ["CHUNK", "gated_delta", "replay"]
