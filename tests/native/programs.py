"""Random models for the native program: architectures, sizes and types drawn, rows in any company held against each
other and against the reference. Seconds for the suite; for long in tests/campaigns/soak.py.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import attrs
import torch
from spec_kernels import native
from spec_kernels.model.shapes import ConvShape, DeltaShape, Experts, IndexShape, LatentShape, ScanShape, StreamShape
from spec_kernels.model.source import bytes_of
from spec_kernels.native.executor import Native, Options
from spec_kernels.ops.dequant import TYPES, dequantize
from spec_targets.architectures import OURS, family_of
from spec_targets.architectures.config import Config
from spec_targets.architectures.rope import Scaling
from spec_targets.runtime.checkpoint import Checkpoint
from spec_targets.runtime.load import make_target
from spec_targets.runtime.weights import trunk_shapes
from torch import Tensor

from spec_core import Draft, Target
from tests.targets.drive import forward, part, sequence

FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}
SCALES = {"Q8_0": (0,), "Q4_0": (0,), "Q5_0": (0,), "Q6_K": (208,)} | dict.fromkeys(
    ("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)
)
"""Offsets of float16 numbers in a block."""
KINDS = (*native.TYPES, "MXFP4")
"""Types of matrices. Blocks of MXFP4 become others when they are read."""
KIMI = "kimi-linear"
"""The architecture with latents, and with a decay of every channel."""
DEEPSEEK = "deepseek2"
"""The architecture with latents in every block, whose shared numbers rotate."""
NEXT = "glm5-next"
"""The architecture with residual streams, a sparse index, and bounds of decays and gated units."""
OLMO, MUSE, LAGUNA = "olmo-hybrid", "muse-glimmer", "laguna"
HYBRID = ("qwen3next", "qwen35", "qwen35moe", KIMI, NEXT, OLMO)
SHORT = ("lfm2", "lfm2moe", "lfm3")
SANDWICHED = ("gemma4", OLMO, MUSE, "lfm3")
"""The architectures with norms at the end of layers."""
GRANITE, FALCON, NEMOTRON = "granitehybrid", "falcon-h1", ("nemotron_h", "nemotron_h_moe")
SCANNED = (GRANITE, FALCON, *NEMOTRON)
"""The architectures with Mamba-2."""
SIGMOID = ("glm4moe", "lfm2moe", KIMI, NEXT, DEEPSEEK, LAGUNA, NEMOTRON[1], "minimax-m2")
MIXTURES = ("qwen3moe", "glm4moe", "qwen3next", "qwen35moe", "gpt-oss", "lfm2moe", KIMI, NEXT, DEEPSEEK,
            NEMOTRON[1], "minimax-m2", LAGUNA)  # fmt: skip
UNSHARED = ("qwen3moe", "gpt-oss", "lfm2moe", "minimax-m2")
WINDOWED = ("llama", "phi3", "gemma2", "gemma3", "gpt-oss", MUSE, LAGUNA, "lfm3")
LAYERED = "gemma4"
"""The architecture whose blocks differ in their heads, caches and widths."""
LAYERED_DEPTH = 60
"""Its max depth: norms at the end of layers enlarge roundings, in 445 random blocks by a factor of 1,000."""
HEADS = [20, 32, 36, 40, 64, 72, 80, 96, 128, 192, 256]
WIDE_HEADS = [*HEADS, 320, 512]
NARROW_HEADS = [8, 12, 20]
"""Widths of heads: of most models, of those of LAYERED, and of deep ones."""
OPTIONAL = {
    "output.weight": "output.weight",
    "output.bias": "output.bias",
    "attn_q.bias": "biases of q, k and v",
    "attn_q_norm.weight": "norms of q and k",
    "attn_output.bias": "attn_output.bias",
    "exp_probs_b.bias": "exp_probs_b.bias",
    "attn_qkv.weight": "q, k and v in one tensor",
    "ffn_gate_up_exps.weight": "gate and up in one tensor",
    "ffn_down_exps.scale": "factors of experts",
    "layer_output_scale.weight": "a scale of the block",
    "attn_v.weight": "values that are not the keys",
    "ssm_conv1d.bias": "biases of convolutions",
    "ssm_norm.weight": "norms of groups",
}
"""Tensors that a file may have, without the number of their block: half of the models have each of them."""
SHALLOW = 3
"""Max blocks of a row in most models."""
WEIGHT = 0.06
"""Approximate magnitude of a weight."""
FAR = 2e-3
"""Root mean square of the difference to the reference with 15 bits, as a share of the range of its logits; models as
random as these are 4 times as sensitive as trained ones, and 8 bits can choose another expert."""
PER_BLOCK = 1.5e-4
"""Root mean square of one block in deep models, whose roundings add up like independent ones: 567 blocks of 8 products
that round by 2**-15 should give 2e-3; 2.03e-3 were measured."""
LIKE_QWEN3 = "qwen3vl"
"""A family whose models without pictures are those of qwen3."""


def config(rng: random.Random) -> Config:
    """Random sizes that are valid for an architecture, most of them unusual."""
    arch, layers = rng.choice(sorted(family.name for family in OURS if family.name != LIKE_QWEN3)), depth(rng)
    if arch in SANDWICHED:
        layers = min(max(layers, rng.randint(1, SHALLOW)), LAYERED_DEPTH)
    recurrent, deep = arch in (*HYBRID, *SHORT), layers > SHALLOW
    moe = arch in MIXTURES or (arch in (LAYERED, GRANITE) and rng.random() < 0.4)
    width = rng.choice([20, 32, 36] if deep else [20, 32, 36, 64, 72, 96, 100, 160, 256])
    head = rng.choice(widths_of_heads(arch, deep))
    kv_heads = rng.randint(1, 3)
    heads = kv_heads * (3 if arch == LAGUNA else rng.choice([1, 2, 3, 7]))
    delta = _delta(rng, arch) if arch in HYBRID else None
    experts = _experts(rng, arch in SIGMOID) if moe else None
    drawn = Config(
        arch=arch,
        name="random",
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head=head,
        ff=rng.choice([20, 32] if deep else [20, 32, 48, 72, 96, 256, 512]),
        vocab=rng.randint(17, 300),
        context=256,
        eps=rng.choice([1e-5, 1e-6]),
        rope_base=rng.choice([1e4, 1e6]),
        rotary_dim=head if arch in (LAYERED, MUSE) else rng.choice([head, head // 2]),
        experts=experts,
        expert_ff=rng.choice([20, 32, 64, 72, 96]) if moe else 0,
        shared_ff=rng.choice([20, 32, 64]) if moe and arch not in (*UNSHARED, LAYERED) else 0,
        delta=delta,
        conv=ConvShape(width, rng.randint(2, 5)) if arch in SHORT else None,
        recurrent=frozenset(i for i in range(layers) if rng.random() < 0.6) if recurrent else frozenset(),
        **(_sizes_by_block(rng, layers, heads) if arch == LAYERED else _attention(rng, arch, layers, kv_heads, head)),
    )
    more = (
        _latents(rng, arch, deep)
        if arch in (KIMI, NEXT, DEEPSEEK)
        else _scans(rng, arch, layers)
        if arch in SCANNED
        else {}
    )
    if arch == NEXT:
        more |= _bounds(rng, frozenset(range(layers)) - drawn.recurrent, layers)
    return attrs.evolve(drawn, **more)


def _bounds(rng: random.Random, attending: frozenset[int], layers: int) -> dict[str, Any]:
    """Streams, an index that chooses fewer positions than texts have, and bounds that are reached."""
    first, limits = min(attending, default=0), tuple(rng.choice([0.0, 0.02, 0.5]) for _ in range(layers))
    sizes = rng.choice([8, 12, 20, 128]), rng.choice([1, 3, 4, 16, 17]), rng.randint(1, 4)
    return {
        "index": IndexShape(rng.randint(1, 9), *sizes),
        "indexing": frozenset(i for i in attending if i == first or rng.random() < 0.6),
        "streams": StreamShape(rng.choice([1, 2, 4, 5]), 1e-6, rng.choice([1, 3, 20])),
        "floor": rng.choice([-5.0, -0.5, 0.0]),
        "limits": rng.choice([(), limits]),
        "shared_limits": rng.choice([(), limits[::-1]]),
    }


def _scans(rng: random.Random, arch: str, layers: int) -> dict[str, Any]:
    """Mamba-2 of unusual sizes, kinds of blocks, and scales."""
    groups = rng.randint(1, 3)
    sizes = groups, groups * rng.randint(1, 3), rng.choice([12, 16, 24, 64, 128]), rng.choice([16, 20, 40, 64, 128])
    kinds = [rng.choice("MM*" if arch == GRANITE else "MM*E") for _ in range(layers)]
    blocks = {kind: frozenset(i for i, one in enumerate(kinds) if one == kind) for kind in "M*"}
    every = frozenset(range(layers))
    return {
        "scan": ScanShape(*sizes, rng.randint(2, 5)),
        "recurrent": every if arch == FALCON else blocks["M"],
        "attending": every if arch == FALCON else blocks["*"],
        "unrotated": arch != FALCON and rng.random() < 0.7,
        "expert_latent": rng.choice([0, 20, 32]) if arch == NEMOTRON[1] else 0,
        "residual_scale": rng.choice([1.0, 0.4]) if arch == GRANITE else 1.0,
        "logit_scale": rng.choice([1.0, 0.3]) if arch == GRANITE else 1.0,
    }


def _latents(rng: random.Random, arch: str, deep: bool) -> dict[str, Any]:
    """Latents of unusual sizes, and the sizes of heads that follow from them."""
    rank, shared = rng.choice(NARROW_HEADS if deep else [16, 20, 40, 64, 128, 512]), rng.choice([2, 8, 12, 64])
    shared = 0 if arch == NEXT else shared
    plain, value = (rng.choice([12, 20, 32, 64, 100]) for _ in range(2))
    queries = rng.choice([20, 32, 96] if arch == NEXT else [0, 20, 32, 96]) if arch != KIMI else 0
    latent = LatentShape(rank, shared, plain, value, queries)
    sizes = {
        "latent": latent,
        "head": rank + shared,
        "kv_heads": 1,
        "rotary_dim": shared,
        "unrotated": arch != DEEPSEEK,
    }
    return sizes | {"inner_eps": rng.choice([1e-5, 1e-6]), "scale": rng.choice([0.0, 0.2]) if arch == DEEPSEEK else 0.0}


def _attention(rng: random.Random, arch: str, layers: int, kv_heads: int, head: int) -> dict[str, Any]:
    """Windows shorter than the texts, caps that are reached, a second rotary table, heads by block."""
    if arch == OLMO:
        return {"strength": rng.choice([1.0, 2.0]), "unrotated": rng.random() < 0.5}
    if arch not in WINDOWED:
        return {}
    gemma = {
        "scale": rng.choice([0.0, 0.3]),
        "embed_scale": rng.choice([1.0, 6.5]),
        "score_cap": rng.choice([0.0, 2.0]) if arch == "gemma2" else 0.0,
        "logit_cap": rng.choice([0.0, 1.5]) if arch == "gemma2" else 0.0,
        "local_base": 3e3 if arch == "gemma3" else 0.0,
    }
    windows = tuple(rng.choice([0, 1, 5, 16, 33]) for _ in range(layers))
    more = {MUSE: {"still": True, "inner_eps": 1e-8, "logit_cap": 1.5}}
    more |= dict.fromkeys((LAGUNA, "lfm3"), {"local_base": 3e3, "local_head": head})
    if arch == LAGUNA:
        more[arch] = more[arch] | {"heads_by_block": tuple(kv_heads * rng.randint(1, 3) for _ in range(layers))}
    return {"windows": windows} | (gemma if arch.startswith("gemma") else more.get(arch, {}))


def _sizes_by_block(rng: random.Random, layers: int, heads: int) -> dict[str, Any]:
    """Heads of another width and number in blocks with a window, shared caches, widths and embeddings by block."""
    deep, windows = layers > SHALLOW, tuple(rng.choice([0, 0, 1, 5, 16, 33]) for _ in range(layers))
    shares = [n for n in range(layers) if kinds_of(windows[: layers - n]) == kinds_of(windows)]
    widths = [20, 32] if deep else [20, 32, 48, 72, 96, 256]
    return {
        "windows": windows,
        "scale": rng.choice([0.0, 0.3]),
        "embed_scale": rng.choice([1.0, 6.5]),
        "logit_cap": rng.choice([0.0, 1.5]),
        "scaling": rng.choice([Scaling(), Scaling("proportional", 0.25)]),
        "local_base": 3e3,
        "local_head": rng.choice(widths_of_heads(LAYERED, deep)),
        "local_kv_heads": rng.choice([0, *(n for n in range(1, 4) if heads % n == 0)]),
        "sharing": rng.choice(shares),
        "ffs": rng.choice([(), tuple(rng.choice(widths) for _ in range(layers))]),
        "per_layer": rng.choice([0, 3, 20, 32]),
    }


def widths_of_heads(arch: str, deep: bool) -> list[int]:
    """Widths of heads that are drawn."""
    return NARROW_HEADS if deep else WIDE_HEADS if arch == LAYERED else HEADS


def kinds_of(windows: Sequence[int]) -> set[bool]:
    """Whether there are blocks with a window and others."""
    return set(map(bool, windows))


def depth(rng: random.Random) -> int:
    """Mostly a few blocks; one of twenty models has up to 600, which are narrow."""
    return rng.randint(SHALLOW + 1, 600) if rng.random() < 0.05 else rng.randint(1, SHALLOW)


def _delta(rng: random.Random, arch: str) -> DeltaShape:
    keys = rng.randint(1, 3)
    sizes = keys, keys * rng.randint(1, 3), rng.choice([12, 16, 24, 64, 128]), rng.choice([16, 20, 40, 64, 128])
    return DeltaShape(*sizes, rng.randint(2, 5), arch not in ("qwen3next", KIMI, NEXT), by_channel=arch in (KIMI, NEXT))


def _experts(rng: random.Random, sigmoid: bool) -> Experts:
    count = rng.choice([1, 4, 6, 16])
    return Experts(count, rng.randint(1, min(count, 5)), rng.random() < 0.5, rng.choice([1.0, 1.5]), sigmoid)


class Drawn:
    """Tensors with the shapes of a config, and a random type for every matrix."""

    where = "random"

    def __init__(self, config: Config, seed: int) -> None:
        self.seed, self.interleaved = seed, family_of(config.arch).interleaved
        self.shapes = trunk_shapes(config, self)

    def names(self) -> list[str]:
        return list(self.shapes)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Before all are known, a tensor that the file may have is there or not."""
        if hasattr(self, "shapes"):
            return self.shapes.get(name)
        what = OPTIONAL.get(bare(name))
        return () if what and random.Random(f"{self.seed} {what}").random() < 0.5 else None

    def type(self, name: str) -> str:
        shape = self.shapes[name]
        small = ("conv1d", "ssm_norm", "shortconv.conv.weight", "ssm_d", "compressor_ape")
        if len(shape) == 1 or any(part in name for part in small):
            return "F32"
        fits = [kind for kind in KINDS if kind in FLOATS or shape[-1] % TYPES[kind].elements == 0]
        return random.Random(f"{self.seed} {name}").choice(fits)

    def load(self, name: str) -> Tensor:
        kind, shape = self.type(name), self.shapes[name]
        if kind in FLOATS:
            return self._floats(name).to(FLOATS[kind])
        return dequantize(self.blocks(name), kind).reshape(shape)

    def nbytes(self, name: str) -> int:
        return self.blocks(name).numel()

    def blocks(self, name: str) -> Tensor:
        kind, shape = self.type(name), self.shapes[name]
        if kind in FLOATS:
            return bytes_of(self.load(name))
        count = math.prod(shape) // TYPES[kind].elements
        blocks = torch.randint(0, 256, (count, TYPES[kind].bytes), dtype=torch.uint8, generator=self._numbers(name))
        if kind == "MXFP4":
            return self._exponents(name, blocks).view(math.prod(shape[:-1]), -1)
        largest = dequantize(_scale_blocks(blocks.clone(), kind, 1.0), kind).abs().max().item()
        return _scale_blocks(blocks, kind, 2 * WEIGHT / max(largest, 1.0)).view(math.prod(shape[:-1]), -1)

    def _exponents(self, name: str, blocks: Tensor) -> Tensor:
        """Random ones; in a quarter of the matrices one that float16 does not have, too."""
        blocks[:, 0] = 118 + blocks[:, 0] % 4
        if random.Random(f"{self.seed} {name} tiny").random() < 0.25:
            blocks[-1, 0] = 90
        return blocks

    def _floats(self, name: str) -> Tensor:
        shape, numbers = self.shapes[name], self._numbers(name)
        if name.endswith("ssm_a"):
            return -torch.rand(shape, generator=numbers)
        if "norm" in name or "output_scale" in name:
            return 0.5 + torch.rand(shape, generator=numbers)
        return torch.randn(shape, generator=numbers) * (1.0 if len(shape) == 1 else WEIGHT)

    def _numbers(self, name: str) -> torch.Generator:
        return torch.Generator().manual_seed(random.Random(f"{self.seed} {name} numbers").getrandbits(62))


def bare(name: str) -> str:
    """A tensor's name without the number of its block."""
    return name.split(".", 2)[2] if name.startswith("blk.") else name


def _scale_blocks(blocks: Tensor, kind: str, size: float) -> Tensor:
    """Blocks whose float16 numbers are ``size``."""
    for at in SCALES[kind]:
        blocks[:, at : at + 2] = torch.tensor([size], dtype=torch.float16).view(torch.uint8)
    return blocks


@attrs.frozen
class Program:
    """One random model: the target, and its other executors."""

    config: Config
    weights: Drawn
    options: dict[str, str]

    def target(self, **more: Any) -> Target:
        return make_target(Checkpoint(self.config, self.weights), threads=1, **more)

    def on(self, isa: str) -> Target:
        target = self.target(kernels="native", **self.options)
        was = target.executor
        options = Options(self.options["activations"], self.options["cache_dtype"], False, isa)
        target.executor = Native(was.model, was.source, options)
        return target


def program(seed: int) -> Program:
    rng = random.Random(seed)
    shape = config(rng)
    options = {"activations": rng.choice(["int15", "int8"]), "cache_dtype": rng.choice(native.CACHES)}
    return Program(shape, Drawn(shape, seed), options)


def differences(seed: int) -> list[str]:
    """Things that a random model's rows wrongly depend on, in words; empty if it is correct."""
    tested, rng = program(seed), random.Random(f"{seed} rows")
    some = (12, 50) if tested.config.layers <= SHALLOW else (6, 8)
    tokens = [rng.randrange(tested.config.vocab) for _ in range(rng.randint(*some))]
    start = rng.randint(1, len(tokens) - 4)
    torch.set_num_threads(1)
    best = tested.target(kernels="native", **tested.options)
    alone = decode_one_by_one(best, tokens, start)
    wrong = []
    for isa in native.instruction_sets():
        torch.set_num_threads(rng.randint(1, 4))
        wrong += [f"{isa}: {what}" for what in compare_in_company(tested.on(isa), tokens, start, alone, rng)]
    torch.set_num_threads(1)
    return wrong + _far(tested, tokens, start, alone)


def decode_one_by_one(of: Target, tokens: list[int], start: int) -> Tensor:
    """Logits of the tokens from ``start`` on, each decoded alone."""
    seq = sequence(of, tokens)
    forward(of, part(seq, 0, tokens[:start], decides=False))
    return torch.cat([forward(of, part(seq, i, [tokens[i]])).logits for i in range(start, len(tokens))])


def compare_in_company(of: Target, tokens: list[int], start: int, alone: Tensor, rng: random.Random) -> list[str]:
    """Names of rows that differ from decoding: a prompt in random chunks; then in one forward a chain, a tree, and the
    whole text of a third sequence."""
    cut, drafted, whole = (sequence(of, tokens) for _ in range(3))
    cuts = sorted({0, start, *(rng.randrange(start) for _ in range(3))})
    for a, b in pairwise(cuts):
        forward(of, part(cut, a, tokens[a:b], decides=False))
    forward(of, part(drafted, 0, tokens[:start], decides=False))
    n = len(tokens) - start
    tree, path = _tree(tokens[start + 1 :], of.info.vocab, rng)
    parts = [
        part(cut, start, tokens[start:]),
        part(drafted, start, tokens[start : start + 1], tree),
        part(whole, 0, tokens),
    ]
    rows = forward(of, *parts).logits
    path_rows = [n, *(n + 1 + node for node in path)]
    pieces = {"cut": rows[:n], "tree": rows[path_rows], "whole": rows[n + 1 + len(tree) + start :]}
    return [name for name, got in pieces.items() if not torch.equal(got, alone)]


def _tree(line: list[int], vocab: int, rng: random.Random) -> tuple[Draft, list[int]]:
    """The chain as a path of a tree with other nodes between its own, and the indices of its nodes."""
    ids, parents, path = [], [], []
    for token in line:
        for _ in range(rng.randrange(3)):
            parents.append(rng.randrange(-1, len(ids)))
            ids.append(rng.randrange(vocab))
        parents.append(path[-1] if path else -1)
        path.append(len(ids))
        ids.append(token)
    return Draft(ids, parents=parents), path


def _far(program: Program, tokens: list[int], start: int, alone: Tensor) -> list[str]:
    """Against the reference, for a cache of float32: others are rounded by design."""
    if program.options["cache_dtype"] != "float32":
        return [] if bool(alone.isfinite().all()) else ["not finite"]
    if program.options["activations"] != "int15":
        near = program.target(kernels="native", **program.options | {"activations": "int15"})
        alone = decode_one_by_one(near, tokens, start)
    exact = decode_one_by_one(program.target(kernels="reference"), tokens, start)
    far = ((exact - alone).square().mean().sqrt() / (exact.max() - exact.min())).item()
    return [] if far <= max(FAR, PER_BLOCK * program.config.layers**0.5) else [f"far from the reference: {far:.2%}"]
