"""The gated delta rule over chains, trees and several sequences, and the replay of what it recorded."""

from spec_kernels.ops.gated_delta.chunk import CHUNK
from spec_kernels.ops.gated_delta.reference import gated_delta, replay

__all__ = ["CHUNK", "gated_delta", "replay"]
