"""Cost of a draft of a block head with random weights: its parts in milliseconds, for each kind and number of threads.

    python benchmarks/block_drafts.py [--size qwen3-4b] [--type Q8_0] [--threads 1 2] [--rounds 5]

qwen3-4b: five layers of Qwen3-4B's shape and blocks of 8; pico: two of width 128, 4,096 tokens. The target has one
layer of the same shape; embedding and output matrix are the target's. Every draft is as long as its block allows.

forward: of the block. a token: of the sequential part, from rows to a draft; share: of the forward. draft: the whole
hook. ``one call``: chains, or trees with ``--width``, whose tokens a native call chooses; ``token by token``: in
Python. Both take turns; medians of processor time over all drafts but the first of each turn.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import statistics
import sys
import zlib
from collections import defaultdict
from pathlib import Path
from time import process_time
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_core.lazy import call_before_torch

call_before_torch()

import torch  # noqa: E402
from spec_kernels.native import instruction_sets  # noqa: E402
from spec_methods.block_drafters import drafter  # noqa: E402
from spec_methods.block_drafters.trees import BlockTree  # noqa: E402
from spec_targets.architectures.config import Config  # noqa: E402
from spec_targets.architectures.heads.checkpoint import HeadCheckpoint  # noqa: E402
from spec_targets.architectures.heads.head import Head  # noqa: E402
from spec_targets.runtime.checkpoint import Checkpoint  # noqa: E402
from spec_targets.runtime.load import make_target  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.dense_shapes import DenseShape, RandomBlocks, random_blocks  # noqa: E402
from spec_core import Request, Run, Sampling, Target  # noqa: E402
from spec_core.toolkit import TokenDrafter  # noqa: E402

SIZES = {
    "qwen3-4b": DenseShape("Qwen3-4B", 5, 2560, 32, 8, 128, 9728, 151936, tied=True),
    "pico": DenseShape("pico", 2, 128, 4, 2, 32, 384, 4096, tied=True),
}
RANK = {"qwen3-4b": 256, "pico": 64}
BLOCK = 8
KINDS: dict[str, dict[str, Any]] = {
    "dflash": {},
    "dspark": {"anchor": True, "markov": True, "confidence": True},
    "dflash2": {"conv_taps": 2, "conv_groups": 16, "selector": True, "candidates": 8},
    "dspine": {"transfer": True, "message": 128, "candidates": 8},
}


class HeadBlocks:
    """Random matrices of a head in quantised blocks; vectors of ones, small ones in its confidence."""

    where = "random head"

    def __init__(self, head: Head, kind: str) -> None:
        self.shapes, self.kind = head.tensor_shapes(), kind

    def names(self) -> list[str]:
        return list(self.shapes)

    def shape(self, name: str) -> tuple[int, ...] | None:
        return self.shapes.get(name)

    def type(self, name: str) -> str:
        floats = "conf" in name or "conv" in name or "selector" in name or len(self.shapes[name]) == 1
        return "F32" if floats else self.kind

    def load(self, name: str) -> Tensor:
        shape = self.shapes[name]
        return torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=numbers(name)) * shape[-1] ** -0.5

    def blocks(self, name: str) -> Tensor:
        if self.type(name) == "F32":
            return self.load(name).view(torch.uint8)
        return random_blocks(self.kind, *self.shapes[name], numbers(name))

    def nbytes(self, name: str) -> int:
        return self.blocks(name).numel()


def numbers(name: str) -> torch.Generator:
    """Random numbers of a tensor, equal at every reading."""
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def head_of(kind: str, shape: DenseShape, rank: int) -> Head:
    """A head of this kind with sizes of a model. rank: of its sequential part."""
    facts = dict(KINDS[kind])
    facts |= {part: rank for part in ("markov", "selector", "transfer") if facts.get(part)}
    if facts.get("confidence"):
        facts["confidence"] = shape.width + rank
    return Head(
        kind, "random", "nobody", shape.width, shape.width, 1, shape.heads, shape.kv_heads, shape.dim, shape.inner,
        shape.layers, 1e-6, 4096, 1e6, shape.vocab, shape.vocab, ids=(1,), certain=True, qk_norm=True, block=BLOCK,
        mask=0, windows=(0,) * shape.layers, causal=(False,) * shape.layers, **facts,
    )  # fmt: skip


def one_layer(shape: DenseShape, type: str, threads: int) -> Target:
    """The target: one layer of the shape."""
    config = Config(
        arch="qwen3", name=f"{shape.name}, one layer", layers=1, width=shape.width, heads=shape.heads,
        kv_heads=shape.kv_heads, head=shape.dim, ff=shape.inner, vocab=shape.vocab, context=4096, eps=1e-6,
        rope_base=1e6, rotary_dim=shape.dim,
    )  # fmt: skip
    source = RandomBlocks(shape, {"": type}, "cpu")
    source.names = list
    return make_target(Checkpoint(config, source), kernels="native", device="cpu", threads=threads)


def time_calls(owner: Any, name: str, seconds: dict[str, list[float]]) -> Any:
    """A patch of a method that records the duration of every call."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def call(*args: Any, **more: Any) -> Any:
        start = process_time()
        result = method(*args, **more)
        seconds[name].append(process_time() - start)
        return result

    return mock.patch.object(owner, name, call)


def measure(target: Target, head: Head, args: argparse.Namespace, whole: bool) -> tuple[float, float, float]:
    """Median milliseconds of the forward, of a token of the sequential part, and of a draft. whole: in one call."""
    seconds: dict[str, list[float]] = defaultdict(list)
    drafted: list[int] = []
    owners = (drafter.BlockDrafter, "draft"), (drafter.Layers, "blocks"), (drafter.Layers, "learn")
    with contextlib.ExitStack() as patches:
        for owner, name in owners:
            patches.enter_context(time_calls(owner, name, seconds))
        file = HeadCheckpoint(head, HeadBlocks(head, args.type))
        patches.enter_context(mock.patch.object(drafter, "load", lambda *_, **__: file))
        if not whole:
            patches.enter_context(mock.patch.object(TokenDrafter, "limits", lambda *_: None))
            patches.enter_context(mock.patch.object(BlockTree, "whole", lambda *_: None))
        run = Run(target, [(head.kind, {"file": "random", "p_min": 0.0, "width": args.width})])
        run.observe(lambda step: drafted.extend(part.drafted for part in step.parts if part.drafted))
        sampling = Sampling(temperature=args.temperature)
        request = Request([3, 1, 4], max_tokens=args.tokens, ignore_eos=True, sampling=sampling)
        text = run.generate(request).result
    assert len(text.tokens) == args.tokens
    learn = seconds["learn"][1::2]  # every draft learns before it and the step after it
    rest = [d - b - at for d, b, at in zip(seconds["draft"][-len(drafted) :], seconds["blocks"], learn, strict=False)]
    middle = lambda values: 1e3 * statistics.median(values[1:])
    return middle(seconds["blocks"]), middle(rest) / statistics.median(drafted), middle(seconds["draft"])


def table(target: Target, kind: str, threads: int, args: argparse.Namespace) -> None:
    """Print the lines of a kind of head."""
    head = head_of(kind, SIZES[args.size], RANK[args.size])
    forms = {"one call": True, "token by token": False}
    turns = [{name: measure(target, head, args, whole) for name, whole in forms.items()} for _ in range(args.rounds)]
    for name in forms:
        forward, token, draft = (statistics.median(turn[name][i] for turn in turns) for i in range(3))
        print(
            f"{kind:8}{threads} threads  {name:15}{forward:9.2f}{token:9.3f}{token / forward:8.1%}{draft:9.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="qwen3-4b")
    parser.add_argument("--type", default="Q8_0")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--width", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    shape = SIZES[args.size]
    target = one_layer(shape, args.type, 1)
    print(f"{shape.name} {args.type}, {instruction_sets()[0]}, milliseconds")
    print(f"{'':33}{'forward':>9}{'a token':>9}{'share':>8}{'draft':>9}")
    for kind in args.kinds:
        for threads in args.threads:
            torch.set_num_threads(threads)
            table(target, kind, threads, args)


if __name__ == "__main__":
    main()
