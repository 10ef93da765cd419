"""The gated delta rule and Mamba-2's over chains, trees and several sequences, and the replay of their records."""

from spec_kernels.ops.gated_delta.chunk import CHUNK
from spec_kernels.ops.gated_delta.reference import gated_delta, replay_rows, scan

__all__ = ["CHUNK", "gated_delta", "replay_rows", "scan"]
