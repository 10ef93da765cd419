"""Cost of steps of Gemma 4's E2B shape and of its assistant, with random weights.

    python benchmarks/gemma4.py [--type Q4_0] [--threads 1] [--rounds 7] [--depth 256] [--layers 35] [--tokens 64]

forward: T(1) and T(8), one sequence at that depth; assistant: a drafted token, in one native call; both in turns,
medians. Bytes: what a row of T(1) reads of weights, without the table of embeddings of each block, whose row is apart.
Break-even: accepted tokens of a draft of three that pay its cost. Texts: plain, the assistant with fixed and with
controlled lengths, at synthetic rates of acceptance.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import zlib
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_core.lazy import call_before_torch

call_before_torch()

import torch  # noqa: E402
from spec_kernels.model.build import Builder  # noqa: E402
from spec_kernels.model.source import ShapeRecorder  # noqa: E402
from spec_kernels.native import instruction_sets  # noqa: E402
from spec_methods import assistant  # noqa: E402
from spec_targets.architectures.config import Config  # noqa: E402
from spec_targets.architectures.decoder import decoder  # noqa: E402
from spec_targets.architectures.heads.assistant import Assistant  # noqa: E402
from spec_targets.architectures.heads.checkpoint import HeadCheckpoint  # noqa: E402
from spec_targets.architectures.rope import Scaling  # noqa: E402
from spec_targets.runtime.checkpoint import Checkpoint  # noqa: E402
from spec_targets.runtime.load import make_target  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.dense_shapes import random_blocks  # noqa: E402
from spec_core import Draft, Needs, Part, Request, Run, Sampling, Target, toolkit  # noqa: E402

VOCAB, PATTERN = 262144, 5
"""Tokens of the vocabulary; every fifth block attends to everything."""
ABSENT = ("output.", "bias", "exps", "ffn_gate_inp", "rope_f", "attn_qkv")
"""Parts of the names of tensors that an E2B file has not."""
TABLE = "per_layer_token_embd.weight"
DRAFT = 3


def text_config(layers: int, vocab: int) -> Config:
    """Sizes of E2B: 15 of 35 blocks have keys and values of their own, the others feed-forward of twice the width."""
    sharing = layers * 20 // 35
    return Config(
        arch="gemma4", name="Gemma 4 E2B, random", layers=layers, width=1536, heads=8, kv_heads=1, head=512, ff=6144,
        vocab=vocab, context=8192, eps=1e-6, rope_base=1e6, rotary_dim=512, scaling=Scaling("proportional", 0.25),
        scale=1.0, windows=windows(layers), local_base=1e4, local_head=256, local_kv_heads=1, sharing=sharing,
        ffs=(6144,) * (layers - sharing) + (12288,) * sharing, per_layer=256, logit_cap=30.0, embed_scale=1536**0.5,
    )  # fmt: skip


def windows(layers: int) -> tuple[int, ...]:
    return tuple(0 if (i + 1) % PATTERN == 0 or i + 1 == layers else 512 for i in range(layers))


def assistant_head(vocab: int) -> Assistant:
    """Sizes of E2B's assistant: 2,048 clusters, 32 of them are read."""
    config = Config(
        arch="gemma4", name="assistant, random", layers=4, width=256, heads=4, kv_heads=1, head=512, ff=2048,
        vocab=vocab, context=8192, eps=1e-6, rope_base=1e6, rotary_dim=512, scaling=Scaling("proportional", 0.25),
        scale=1.0, windows=(513, 513, 513, 0), local_base=1e4, local_head=256, local_kv_heads=1, sharing=4,
    )  # fmt: skip
    return Assistant(config, 1536, 2048, 32, torch.randperm(vocab))


class RandomFile:
    """Tensors of a description: matrices in blocks of one type, vectors of ones."""

    where, interleaved = "random weights", False

    def __init__(self, kind: str) -> None:
        self.kind, self.shapes = kind, {}

    def names(self) -> list[str]:
        return []

    def shape(self, name: str) -> tuple[int, ...] | None:
        return self.shapes.get(name, () if not any(part in name for part in ABSENT) else None)

    def type(self, name: str) -> str:
        shape = self.shapes[name]
        return self.kind if len(shape) > 1 and shape[-1] % 32 == 0 else "F32"

    def load(self, name: str) -> Tensor:
        shape = self.shapes[name]
        return torch.ones(shape) if len(shape) == 1 else torch.randn(shape) * shape[-1] ** -0.5

    def blocks(self, name: str) -> Tensor:
        seed = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        return random_blocks(self.kind, *self.shapes[name], seed)

    def nbytes(self, name: str) -> int:
        return self.blocks(name).numel()


def make_models(args: argparse.Namespace) -> tuple[Target, HeadCheckpoint]:
    config, head = text_config(args.layers, args.vocab), assistant_head(args.vocab)
    weights, own = RandomFile(args.type), RandomFile("Q8_0")
    recorder = ShapeRecorder(weights)
    decoder(config, recorder, False)
    weights.shapes = dict(recorder.wanted)
    recorder = ShapeRecorder(own)
    for _ in head.operations(Builder(head.config.block(False), recorder), {True: 0, False: 0}):
        pass
    own.shapes = dict(recorder.wanted)
    target = make_target(Checkpoint(config, weights), kernels="native", device="cpu", threads=args.threads)
    return target, HeadCheckpoint(head, own)


def row_bytes(target: Target, args: argparse.Namespace) -> dict[str, float]:
    """Megabytes of the weights that a row reads, of the table of embeddings of each block, and of one row of it."""
    sizes = {key[0][0]: tiles.nbytes * tiles.count for key, tiles in target.executor.arena.tiles.items()}
    table = sizes.pop(TABLE)
    return {"read": sum(sizes.values()) / 1e6, "table": table / 1e6, "row of the table": table / args.vocab / 1e6}


def time_forwards(target: Target, file: HeadCheckpoint, args: argparse.Namespace) -> dict[str, float]:
    """Median milliseconds of T(1), T(8) and a drafted token, in turns."""
    seq = toolkit.open_sequence(target)
    seq.tokens += [(7 * i) % args.vocab for i in range(args.depth)]
    toolkit.forward(target, [Part(seq, 0, list(seq.tokens), True)], Needs(final=True))
    with mock.patch.object(assistant, "load", lambda *_, **__: file):
        method = assistant.Assistant(file="random", p_min=0.0, draft_max=DRAFT)
        method.compat(target=target).load(target)
    memory = method.layer.memory()
    seconds: dict[str, list[float]] = {"T(1)": [], "T(8)": [], "drafted token": []}
    for _ in range(args.rounds):
        for name, rows in (("T(1)", 1), ("T(8)", 8)):
            draft = Draft(list(range(1, rows))) if rows > 1 else None
            start = perf_counter()
            output = toolkit.forward(
                target, [Part(seq, args.depth - 1, seq.tokens[-1:], True, draft=draft)], Needs(final=True)
            ).output
            seconds[name].append(perf_counter() - start)
        memory.take(args.depth - 1, [5], output.final[:1].clone(), {})
        memory.rows = method.reader.rows(seq, args.depth)
        limits = toolkit.DraftLimits(DRAFT, DRAFT, 1, 0.0, frozenset())
        start = perf_counter()
        method.layer.draft([memory.pairs()], [limits])
        seconds["drafted token"].append((perf_counter() - start) / DRAFT)
    return {name: 1e3 * statistics.median(values[1:]) for name, values in seconds.items()}


def time_texts(target: Target, file: HeadCheckpoint, args: argparse.Namespace) -> dict[str, float]:
    """Tokens per second of runs at synthetic acceptance, in turns; medians."""
    method = ("assistant", {"file": "random", "p_min": 0.0, "draft_max": DRAFT})
    rates = f"{args.rate},{args.rate**2},{args.rate**3}"
    forms: dict[str, dict[str, Any]] = {
        "plain": {},
        "fixed": {"methods": [method], "rule": ("synthetic", {"rates": tuple(map(float, rates.split(",")))})},
    }
    forms["auto"] = forms["fixed"] | {"control": "auto"}
    speeds: dict[str, list[float]] = {name: [] for name in forms}
    request = Request([3, 1, 4, 1, 5], max_tokens=args.tokens, ignore_eos=True, sampling=Sampling(temperature=0.0))
    with mock.patch.object(assistant, "load", lambda *_, **__: file):
        for _ in range(args.turns):
            for name, settings in forms.items():
                run = Run(target, **settings)
                start = perf_counter()
                text = run.generate(request).result
                speeds[name].append(len(text.tokens) / (perf_counter() - start))
    return {name: statistics.median(values) for name, values in speeds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", default="Q4_0")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--depth", type=int, default=256)
    parser.add_argument("--layers", type=int, default=35)
    parser.add_argument("--vocab", type=int, default=VOCAB)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.3)
    args = parser.parse_args()
    target, file = make_models(args)
    torch.set_num_threads(args.threads)
    times = time_forwards(target, file, args)
    cost = times["T(8)"] - times["T(1)"]
    verify = times["T(1)"] + cost * DRAFT / 7 + DRAFT * times["drafted token"]
    result = {
        "model": "Gemma 4 E2B's shape, random weights", "type": args.type, "threads": args.threads,
        "isa": instruction_sets()[0], "milliseconds": times, "megabytes": row_bytes(target, args),
        "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "break_even_accepted": verify / times["T(1)"] - 1,
        "rate": args.rate, "tokens_per_second": time_texts(target, file, args) if args.turns else {},
    }  # fmt: skip
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
