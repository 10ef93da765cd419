"""Compile every kernel for a CUDA device that need not be there, and run none. A script: TRITON_INTERPRET must be 0.

Prints one line per kernel: name, dtype, bytes of shared memory. Arguments: the compute capability, times 10, and
``choices`` or ``blocks`` to compile only the kernels that choose tokens, or those of all types of quantised blocks.

``--table FILE`` writes what the kernels of a decoding step take instead, at the sizes of Qwen3-8B, as JSON: for every
type and card of ``gpu_table``, or for those that follow, as ``90 Q4_K``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import triton
from spec_kernels.gpu.block_conv import convolve_block
from spec_kernels.gpu.choice.adjustment import adjust_rows
from spec_kernels.gpu.choice.description import CHANGE_FIELDS, COPY_FIELDS, FIELDS
from spec_kernels.gpu.choice.kernels import Tiles, choose_rows
from spec_kernels.gpu.clusters import BestClusters, find_best_clusters, mask_clusters
from spec_kernels.gpu.delta import RecordedRows
from spec_kernels.gpu.drafting import CHAIN_FIELDS, Following, Scores, choose_drafts
from spec_kernels.gpu.embedding import embed
from spec_kernels.gpu.executor import Gpu
from spec_kernels.gpu.forms import FLOATS, FORMS, Form
from spec_kernels.gpu.launch import capability
from spec_kernels.gpu.layout import FIELDS as LAYOUT_FIELDS
from spec_kernels.gpu.layout import Size
from spec_kernels.gpu.mixture import Lines, multiply_experts, multiply_gated_experts, sort_lines
from spec_kernels.gpu.pool import CacheShape, Pool
from spec_kernels.gpu.products import Room, multiply, multiply_gated, parts_of, room_sizes
from spec_kernels.gpu.recurrence import StateSize
from spec_kernels.gpu.relative import add_relative
from spec_kernels.gpu.repack import Matrix
from spec_kernels.gpu.routing import route_into, route_sigmoid_into
from spec_kernels.gpu.scores import Attention, Sums, attend
from spec_kernels.model.build import Builder
from spec_kernels.model.channel_delta import channel_delta
from spec_kernels.model.latent import latent_attention, latent_heads
from spec_kernels.model.ops import Add, Attend, Embed, Linear, Model, Norm, Op, Rotate, Scan, Store
from spec_kernels.model.rotary import RotaryTable
from spec_kernels.model.shapes import (
    BlockShape,
    ConvShape,
    DeltaShape,
    HeadShape,
    LatentShape,
    RecurrentShape,
    ScanShape,
)
from spec_kernels.model.source import ShapeRecorder
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.dense_shapes import QWEN3_8B, TINY, DenseShape, RandomWeights, dense_model

ROWS = 8
VOCAB = 151936
META = torch.device("meta")
SHARED_BYTES = {80: 166912, 89: 101376, 90: 232448, 120: 101376}
"""Shared memory that a program may have, by compute capability."""


class Absent:
    """A triton driver with a compile target but without a device."""

    def __init__(self, capability: int) -> None:
        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        """A number for each target, as a kernel is compiled once for every device."""
        return self.target.arch

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
        most = SHARED_BYTES.get(driver.active.get_current_target().arch, max(SHARED_BYTES.values()))
        if binary.metadata.shared > most:
            raise AssertionError(f"{kernel.__name__} needs {binary.metadata.shared} bytes of shared memory of {most}")
        print(kernel.__name__, (binary.asm["ptx"].count("bf16") and "bfloat16") or "float32", binary.metadata.shared)

    return compile_kernel


def like_forwards(shape: DenseShape, dtype: torch.dtype) -> None:
    """Every launch of a prompt and of steps of a dense model, on tensors without memory."""
    source = RandomWeights(replace(shape, layers=1), dtype, "meta")
    model, device = dense_model(source.of, source), torch.device("meta")
    executor = Gpu(model, source, dtype, device, 4096)
    for rows in (1, 8, 16, 64, 512):
        executor.compile(Size(rows, 4, 8, -1, -1, tree=rows == 8))
    executor.cache(300).compact(100, [100, 120])


class Required:
    """A source of whatever a recorder asks for, without optional tensors."""

    def shape(self, name: str) -> None:
        return None

    def type(self, name: str) -> str:
        return "BF16"


def like_hybrids() -> None:
    """Every launch of prompts and steps of gated delta nets in the sizes of Qwen3.5-9B and Kimi Linear, of Mamba-2 in
    the sizes of Nemotron-3-Nano, and of a short convolution in the sizes of LFM2-2.6B."""
    delta = DeltaShape(16, 32, 128, 128, 4, tiled=True)
    like_recurrent(4096, delta, lambda b: b.at("blk.0.", 0).delta(delta, apart=True))
    channels = DeltaShape(32, 32, 128, 128, 4, by_channel=True)
    like_recurrent(2304, channels, lambda b: channel_delta(b.at("blk.0.", 0), channels, 1e-6))
    scan = ScanShape(8, 64, 128, 64, 4)
    like_recurrent(2688, scan, lambda b: mamba2(b.at("blk.0.", 0), scan))
    conv = ConvShape(2048, 3)
    like_recurrent(2048, conv, lambda b: b.at("blk.0.", 0).short_conv(conv))


def mamba2(b: Builder, s: ScanShape) -> Iterator[Op]:
    """A layer of Mamba-2 with a norm of groups."""
    weights = b.matrix("mix", (s.channels, 2688)), b.matrix("step", (s.value_heads, 2688))
    yield Linear("h", ("mix", "step"), weights, (None, None))
    small = [torch.ones(s.value_heads) for _ in range(3)]
    yield Scan("mix", "step", "o", s, torch.ones(s.kernel, s.channels), torch.ones(s.channels), *small, layer=0)
    yield Norm("o", "o", torch.ones(s.value_width), 1e-5, groups=s.key_heads)
    yield b.onto("o", "ssm_out", (2688, s.value_width), residual=True)


def like_attention() -> None:
    """Attention of Gemma 4 26B, with a window and without one, of MiniMax-M2, whose norms are of whole rows, and over
    the latents of GLM-4.7-Flash and DeepSeek-V3."""
    local, wide = (HeadShape(16, 8, 256, 256, 1.0, window=1024), HeadShape(16, 2, 512, 512, 1.0, table=1))
    like_anchored_windows(local)
    latent = LatentShape(512, 64, 128, 128, queries=768)
    few, many = (latent_heads(heads, latent, rotary_dim=64) for heads in (20, 128))
    norms = HeadShape(48, 8, 128, 64, 128**-0.5)
    for shape, parts in ((local, ("k", "v")), (wide, ("k",)), (norms, None), (few, None), (many, None)):
        source = ShapeRecorder(Required())
        b = Builder(BlockShape(2816, shape, 1e-6), source)
        table = b.matrix("token_embd.weight", (1024, 2816))
        b = b.at("blk.0.", 0)
        if shape.latent:
            layer = [*latent_attention(b, latent, 1e-6)]
        elif parts is None:
            layer = [*whole_norms(b, shape)]
        else:
            layer = [*b.attention(norms=True, biases=False, residual=False, parts=parts, value_norm=True)]
        operations = [
            Embed("x", table), b.norm("x", "h", "attn_norm.weight"), *layer, b.norm("h", "h", "post.weight"),
            Add("x", "h", "x", 0.5), *b.output_ops("output_norm.weight", table),
        ]  # fmt: skip
        turns = torch.ones(shape.rotary_dim // 2)
        model = Model(tuple(operations), turns, local=RotaryTable(turns, 1.0))
        executor = Gpu(model, source, torch.bfloat16, torch.device("meta"), 4096)
        for rows in (1, 8, 64):
            executor.compile(Size(rows, 4, 8, -1, -1, tree=rows == 8))
        executor.compile(Size(64, 4, 8, -1, -1, False, pairs=len(turns), mutual=True))
        executor.cache(300).compact(100, [100, 120])


def like_anchored_windows(shape: HeadShape) -> None:
    """Attention whose windows end at the first row of a block, also after first places."""
    empty, pool = partial(torch.empty, device="meta"), Pool((CacheShape.of(shape),), 4096, torch.bfloat16, META)
    rows, q = empty(16, LAYOUT_FIELDS, dtype=torch.int32), empty(16, shape.heads, shape.dim, dtype=torch.bfloat16)
    sums = Sums(empty(8, 16, shape.heads, shape.dim), *(empty(8, 16, shape.heads) for _ in range(2)))
    for one in (shape, replace(shape, lead=4)):
        how = Attention(one, pool, 0, causal=False, sinks=None, tree=False, anchored=True)
        attend(q, rows, rows, rows, sums, how, torch.empty_like(q))


def whole_norms(b: Builder, shape: HeadShape) -> Iterator[Op]:
    """Attention whose queries and keys have norms over all heads."""
    yield b.projection(("q", "k", "v"), False)
    yield Norm("q", "q", torch.ones(shape.q_width), 1e-6)
    yield Rotate("q", shape)
    yield Norm("k", "k", torch.ones(shape.kv_width), 1e-6)
    yield Rotate("k", shape)
    yield Store("k", "v", shape, 0)
    yield Attend("q", "a", shape, 0)
    yield b.onto("a", "attn_output", (2816, shape.q_width), residual=False)


def like_recurrent(width: int, shape: RecurrentShape, layer: Callable[[Builder], Iterable[Op]]) -> None:
    """Every launch of prompts and steps of a recurrent layer."""
    source, device = ShapeRecorder(Required()), torch.device("meta")
    b = Builder(BlockShape(width, HeadShape(16, 4, 256, 64, 256**-0.5), 1e-6), source)
    table = b.matrix("token_embd.weight", (1024, width))
    operations = [
        Embed("x", table), b.norm("x", "h", "blk.0.attn_norm.weight"), *layer(b),
        *b.output_ops("output_norm.weight", table),
    ]  # fmt: skip
    executor = Gpu(Model(tuple(operations)), source, torch.bfloat16, device, 4096)
    for rows, runs, recorded in ((1, 0, False), (8, 0, True), (256, 16, False)):
        executor.compile(Size(rows, 4, 8, -1, -1, rows == 8, StateSize(min(rows, 4), runs, 2, recorded)))
    pool = executor.states()
    RecordedRows(torch.empty(1, ROWS, shape.record_bytes // 4, device=device)).replay(pool, pool.take()[0], [0, 1])


def like_block_drafters() -> None:
    """What blocks of DFlash2 and DSpine add to attention, in the sizes of Qwen3-8B's heads."""
    empty = lambda *shape, dtype=torch.bfloat16: torch.empty(shape, dtype=dtype, device="meta")
    whole = lambda *shape: empty(*shape, dtype=torch.int32)
    rows, x, floats = whole(16, LAYOUT_FIELDS), empty(16, 4096), partial(empty, dtype=torch.float32)
    convolve_block(rows, x, floats(16, 2 * 256), floats(2, 4096), x)
    convolve_block(rows, x, None, floats(2, 4096), x)
    add_relative(x, x, x)
    scores, best = empty(1, VOCAB), BestClusters.empty(1, VOCAB, 16, torch.device("meta"))
    find_best_clusters(scores, best)
    mask_clusters(floats(1, VOCAB), scores, best, floats(1, VOCAB))


def like_blocks(form: Form, dtype: torch.dtype) -> None:
    """Products with matrices in blocks, few and many rows, and rows of a table."""
    empty = lambda *shape, dtype=dtype: torch.empty(shape, dtype=dtype, device="meta")
    down, both = (Matrix.empty(form, n, k, dtype, torch.device("meta")) for n, k in ((4096, 12288), (24576, 4096)))
    for rows in (16, 64):
        multiply(empty(rows, down.k), down, empty(parts_of(down), rows, down.n, dtype=torch.float32))
        parts, tiles = room_sizes(both, rows)
        room = Room(empty(parts, dtype=torch.float32).view(-1, rows, both.n), empty(tiles, dtype=torch.int32))
        multiply_gated(empty(rows, both.k), both, empty(rows, both.n // 2), "silu_glu", room)
    embed(torch.empty(ROWS, dtype=torch.int32), both, empty(ROWS, both.k, dtype=torch.float32), 1.0)


def like_routes() -> None:
    """Choices of experts."""
    weights, chosen = torch.empty(ROWS, 8), torch.empty(ROWS, 8, dtype=torch.int64)
    route_into(weights, chosen, torch.empty(ROWS, 512), True, 1.0)
    route_into(weights, chosen, torch.empty(ROWS, 128), True, 1.0, torch.empty(128))
    route_sigmoid_into(weights, chosen, torch.empty(ROWS, 256), torch.empty(256), True, 1.0, 8, 4)


def like_experts(form: Form, dtype: torch.dtype) -> None:
    """Products of a mixture of 128 experts, few lines and many."""
    empty = lambda *shape, dtype=dtype: torch.empty(shape, dtype=dtype, device="meta")
    up, down = (
        Matrix.empty(form, n, k, dtype, torch.device("meta")) for n, k in ((128 * 768, 2048), (128 * 2048, 768))
    )
    for rows in (ROWS, 512):
        lines = Lines.empty(rows, 8, 128, torch.device("meta"))
        sort_lines(lines)
        multiply_gated_experts(empty(rows, up.k), lines, (up, up), None, empty(8 * rows, 768), "silu_glu")
        multiply_experts(empty(8 * rows, down.k), lines, down, None, empty(8, rows, 2048, dtype=torch.float32))


def like_drafts(dtype: torch.dtype) -> None:
    """The choices of a chain, also of tokens with other numbers and of layers that store nothing."""
    integers = lambda *shape: torch.empty(shape, dtype=torch.int32)
    described = integers(ROWS, 8), integers(ROWS, 8), integers(ROWS, CHAIN_FIELDS)
    scores = Scores.empty(ROWS, VOCAB, torch.device("cpu"))
    ids = torch.empty(VOCAB, dtype=torch.int64)
    for following in (Following(*described, None), Following(*described, ids, stays=True)):
        for depth in (1, 2):
            logits, tokens = torch.empty(ROWS, VOCAB, dtype=dtype), integers(ROWS)
            choose_drafts(logits, scores, following, depth, tokens, torch.empty(ROWS))


def like_choices(dtype: torch.dtype) -> None:
    """The choice of tokens from logits of a target's dtype, and the adjustment of rows."""
    integers = lambda *shape: torch.empty(shape, dtype=torch.int32)
    logits, copies = torch.empty(ROWS, VOCAB, dtype=dtype), torch.empty(ROWS, VOCAB)
    copied, changes, masks = integers(ROWS, COPY_FIELDS), integers(500, CHANGE_FIELDS), integers(ROWS, VOCAB // 32)
    adjust_rows(logits, copies, copied, changes, masks)
    tiles = Tiles.empty(ROWS, VOCAB, torch.device("cpu"))
    choose_rows(logits, copies, integers(ROWS, FIELDS), tiles, integers(2, ROWS))


def write_table(file: Path, chosen: list[str]) -> None:
    """Compile a decoding step of every type for every card; write what its kernels take.

    The figures of the prototype, which are of no code here, stay in the file.
    """
    from tests.kernels import gpu_table

    recorder = gpu_table.Recorder(JITFunction.run)
    JITFunction.run = recorder.function()
    cards = [int(of) for of in chosen if of.isdigit()] or gpu_table.CARDS
    types = [of for of in chosen if not of.isdigit()] or gpu_table.TYPES
    facts = {"triton": triton.__version__, "model": QWEN3_8B.name, "cards": {}}
    if file.exists():
        facts |= {"prototype": json.loads(file.read_text())["prototype"]}
    for card in cards:
        driver.set_active(Absent(card))
        capability.cache_clear()
        facts["cards"][card] = {
            kind: {rows: gpu_table.table_rows(recorder, kind, rows, card) for rows in gpu_table.ROWS} for kind in types
        }
        print(f"compiled for {card}", flush=True)
    file.write_text(gpu_table.format_table(facts))


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        write_table(Path(sys.argv[2]), sys.argv[3:])
        sys.exit()
    driver.set_active(Absent(int(sys.argv[1])))
    JITFunction.run = compile_only(JITFunction.run)
    if not sys.argv[2:]:
        like_forwards(QWEN3_8B, torch.bfloat16)
        like_forwards(TINY, torch.float32)
        like_hybrids()
        like_attention()
        like_experts(FLOATS, torch.bfloat16)
        like_drafts(torch.float32)
        like_routes()
        like_block_drafters()
    if "choices" not in sys.argv[2:]:
        for type in FORMS if "blocks" in sys.argv[2:] else ("Q8_0", "Q4_K", "Q6_K"):
            like_blocks(FORMS[type], torch.bfloat16)
            like_experts(FORMS[type], torch.bfloat16)
        like_blocks(FORMS["Q4_K"], torch.float32)
    if "blocks" not in sys.argv[2:]:
        like_choices(torch.float32)
        like_choices(torch.bfloat16)
