"""The gated delta rule and Mamba-2's over chains, trees and several sequences, and the replay of their records."""

from spec_kernels.ops.dispatch import by_device
from spec_kernels.ops.gated_delta import reference
from spec_kernels.ops.gated_delta.chunk import CHUNK

gated_delta = by_device(reference.gated_delta)
replay = by_device(reference.replay)
scan = reference.scan  # plain torch on every device

__all__ = ["CHUNK", "gated_delta", "replay", "scan"]
