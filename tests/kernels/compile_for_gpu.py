"""Compile every kernel for a CUDA device that need not be there, and run none. A script: TRITON_INTERPRET must be 0.

Prints one line per kernel: name, dtype, bytes of shared memory. Arguments: the compute capability, times 10, and
``choices`` to compile only the kernels that choose tokens.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from spec_kernels.gpu.choice.adjustment import adjust_rows
from spec_kernels.gpu.choice.description import CHANGE_FIELDS, COPY_FIELDS, FIELDS
from spec_kernels.gpu.choice.kernels import Tiles, choose_rows
from spec_kernels.gpu.executor import Gpu
from spec_kernels.gpu.layout import Size
from spec_kernels.ops.attention.triton import attention
from spec_kernels.ops.causal_conv.triton import causal_conv
from spec_kernels.ops.gated_delta.triton import gated_delta, replay
from spec_kernels.ops.lineage import Lineage
from spec_kernels.ops.moe.triton import experts, route, route_sigmoid
from spec_kernels.ops.rms_norm.triton import rms_norm
from spec_kernels.ops.rope.triton import rope
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.dense_shapes import QWEN3_8B, TINY, DenseShape, RandomWeights, dense_model

ROWS = 8
VOCAB = 151936


class Absent:
    """A triton driver with a compile target but without a device."""

    def __init__(self, capability: int) -> None:
        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_only(run):
    """``JITFunction.run`` that stops before the launch."""

    def compile_kernel(kernel, *args, grid, warmup, **kwargs):
        binary = run(kernel, *args, grid=grid, warmup=True, **kwargs)
        # A product of float32 matrices is made of such instructions.
        matrices = "tl.dot" in kernel.src
        if not matrices and not kwargs.get("enable_fp_fusion", True) and "fma." in binary.asm["ptx"]:
            raise AssertionError(f"{kernel.__name__} rounds a product and a sum once, and must round each")
        print(kernel.__name__, (binary.asm["ptx"].count("bf16") and "bfloat16") or "float32", binary.metadata.shared)

    return compile_kernel


def like_layers(dtype: torch.dtype) -> None:
    """What layers compute in the model's own dtype."""
    empty = lambda *shape: torch.empty(shape, dtype=dtype)
    rms_norm(empty(ROWS, 2048), torch.empty(2048), 1e-6)
    rope(empty(ROWS, 16, 256), torch.arange(ROWS), torch.empty(32), "halves")
    cached = empty(999, 2, 256)
    attention(empty(ROWS, 16, 256), cached, cached, torch.ones(ROWS, 999, dtype=torch.bool), 1.0)
    route(empty(ROWS, 512), 10, True)
    route_sigmoid(empty(ROWS, 256), torch.empty(256), 8, True, groups=8, groups_used=4)
    chosen = torch.arange(ROWS * 10).view(ROWS, 10)
    gate = torch.empty(512, 512, 2048, dtype=dtype, device="meta")
    experts(empty(ROWS, 2048), torch.ones(ROWS, 10), chosen, gate, gate, gate.mT)


def like_recurrences() -> None:
    """Rows alone and a run, in float32."""
    rows = ROWS + 64
    lineage = Lineage(list(range(-1, rows - 1)), [0] * rows, [-1] * (rows - 1) + [0], [0], [(0, 64)])
    heads, states, key_of = torch.empty(rows, 16, 128), torch.empty(3, 32, 128, 128), torch.arange(32) // 2
    values, rates = torch.empty(rows, 32, 128), torch.empty(rows, 32)
    gated_delta(heads, heads, values, rates, rates, states, lineage, key_of)
    replay(states, heads, values, rates, key_of, [0, 1, 2], 0, 1)
    causal_conv(torch.empty(rows, 8192), torch.empty(4, 8192), torch.empty(3, 3, 8192), lineage)


def like_forwards(shape: DenseShape, dtype: torch.dtype) -> None:
    """Every launch of a prompt and of steps of a dense model, on tensors without memory."""
    source = RandomWeights(replace(shape, layers=1), dtype, "meta")
    model, device = dense_model(source.of, source), torch.device("meta")
    executor = Gpu(model, source, dtype, device, 4096)
    for rows in (1, 8, 16, 64, 256):
        executor.compile(Size(rows, 4, 8, -1, -1, tree=rows == 8))
    executor.cache(300).compact(100, [100, 120])


def like_choices(dtype: torch.dtype) -> None:
    """The choice of tokens from logits of a target's dtype, and the adjustment of rows."""
    integers = lambda *shape: torch.empty(shape, dtype=torch.int32)
    logits, copies = torch.empty(ROWS, VOCAB, dtype=dtype), torch.empty(ROWS, VOCAB)
    copied, changes, masks = integers(ROWS, COPY_FIELDS), integers(500, CHANGE_FIELDS), integers(ROWS, VOCAB // 32)
    adjust_rows(logits, copies, copied, changes, masks)
    tiles = Tiles.empty(ROWS, VOCAB, torch.device("cpu"))
    choose_rows(logits, copies, integers(ROWS, FIELDS), tiles, integers(2, ROWS))


if __name__ == "__main__":
    driver.set_active(Absent(int(sys.argv[1])))
    JITFunction.run = compile_only(JITFunction.run)
    if "choices" not in sys.argv[2:]:
        like_layers(torch.float32)
        like_layers(torch.bfloat16)
        like_recurrences()
        like_forwards(QWEN3_8B, torch.bfloat16)
        like_forwards(TINY, torch.float32)
    like_choices(torch.float32)
    like_choices(torch.bfloat16)
