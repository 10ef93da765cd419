"""Inputs of every operator with a triton form: odd sizes, strided rows, trees, ragged batches.

What lies between the rows of an input is NaN, so that a kernel that reads beside a row is found.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from spec_kernels.ops.attention import ancestor_mask, causal_mask
from spec_kernels.ops.lineage import Lineage
from torch import Tensor
from torch.nn import functional as F

Arguments = dict[str, Any]
OPS = {
    "rms_norm": ("rms_norm",),
    "rope": ("rope",),
    "attention": ("attention",),
    "moe": ("route", "route_sigmoid", "experts"),
    "causal_conv": ("causal_conv",),
    "gated_delta": ("gated_delta", "replay"),
}
"""Folder -> operators with a twin."""


@dataclass(frozen=True)
class Case:
    """One call of an operator. ``outputs`` names what it returns, ``writes`` the arguments it overwrites."""

    folder: str
    op: str
    make: Callable[[], Arguments]
    outputs: tuple[str, ...]
    writes: tuple[str, ...] = ()
    half: bool = False

    def form(self, kind: str) -> Callable:
        """The operator as ``reference`` or ``triton``."""
        return getattr(importlib.import_module(f"spec_kernels.ops.{self.folder}.{kind}"), self.op)

    def results(self, kind: str, arguments: Arguments) -> dict[str, Tensor]:
        """Results that one form returns and writes, on the CPU; the arguments stay as they are."""
        own = {n: a.clone() if n in self.writes else a for n, a in arguments.items()}
        returned = self.form(kind)(**own)
        returned = returned if isinstance(returned, tuple) else (returned,) if self.outputs else ()
        named = dict(zip(self.outputs, returned, strict=True)) | {n: own[n] for n in self.writes}
        return {name: m.cpu() for name, m in named.items()}


def move(arguments: Arguments, device: str, dtype: torch.dtype = torch.float32) -> Arguments:
    """Tensors on a device, floating point ones in a dtype; strides are kept."""
    return {name: _move_tensor(a, device, dtype) if isinstance(a, Tensor) else a for name, a in arguments.items()}


def _move_tensor(m: Tensor, device: str, dtype: torch.dtype) -> Tensor:
    there = m.to(device, dtype if m.is_floating_point() else m.dtype)
    return spread(there) if m.is_floating_point() and not m.is_contiguous() else there


def spread(m: Tensor) -> Tensor:
    """Rows with NaN in the memory between them."""
    memory = torch.full((len(m), m[0].numel() + 5), torch.nan, dtype=m.dtype, device=m.device)
    rows = memory[:, : m[0].numel()].unflatten(1, m.shape[1:])
    return rows.copy_(m)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape)


def chain(rows: int, keep: int = 0, runs: tuple[tuple[int, int], ...] = ()) -> Lineage:
    """One sequence, its last row kept."""
    return Lineage(list(range(-1, rows - 1)), [0] * rows, [-1] * (rows - 1) + [keep], [0], list(runs))


def ragged_lineage(kept: bool) -> Lineage:
    """A chain that keeps its pending rows, a tree of drafts, one row alone. Drafts are kept, or none of them is."""
    drafts = [3, 4, 5, 6, 7] if kept else [-1] * 5
    return Lineage(
        parents=[-1, 0, 1, 2, -1, 4, 4, 5, 5, 6, -1],
        source=[0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2],
        keep=[-1, 0, -1, -1, 1, *drafts, 2],
        begins=[0, 4, 10],
    )


def with_runs() -> Lineage:
    """A prompt as runs and single rows, and a sequence that starts with a run and then branches."""
    first = [-1, *range(2 + 19 + 16)]
    return Lineage(
        parents=[*first, -1, *range(38, 55), 55, 55, 56],
        source=[0] * 38 + [1] * 21,
        keep=[*[-1] * 37, 0, *[-1] * 17, 1, -1, 4, -1],
        begins=[0, 38],
        chunks=[(2, 19), (21, 16), (38, 16)],
    )


def for_rms_norm(*shape: int, weight: tuple[int, ...]) -> Arguments:
    return {"x": spread(normal(*shape)), "weight": normal(*weight), "eps": 1e-3}


def for_rope(rows: int, heads: int, dim: int, rotated: int, pairs: str) -> Arguments:
    return {
        "x": spread(normal(rows, heads, dim)),
        "positions": torch.randint(100_000, (rows,)),
        "frequencies": 10_000.0 ** -torch.linspace(0, 1, rotated // 2),
        "pairs": pairs,
        "rope_scale": 1.3,
    }


def for_attention(rows: int, cached: int, heads: int, kv_heads: int, key_dim: int, value_dim: int) -> Arguments:
    """Keys lie as the cache holds them, [K, Dk, T]."""
    visible = causal_mask(rows, cached + rows)
    return {
        "q": spread(normal(rows, heads, key_dim)),
        "k": normal(kv_heads, key_dim, cached + rows).permute(2, 0, 1),
        "v": normal(kv_heads, cached + rows, value_dim).transpose(0, 1),
        "visible": visible,
        "scale": key_dim**-0.5,
    }


def for_a_tree(cached: int) -> Arguments:
    given = for_attention(7, cached, 6, 2, 10, 7)
    given["visible"][:, cached:] = ancestor_mask([-1, 0, 0, 1, 1, 2, -1])
    return given


def for_route(rows: int, count: int, top: int, normalise: bool) -> Arguments:
    return {"logits": spread(normal(rows, count)), "top": top, "normalise": normalise, "scale": 2.5}


def for_route_sigmoid(rows: int, count: int, top: int, **settings: Any) -> Arguments:
    """Biases large enough to change the choice of experts."""
    given = {"logits": spread(normal(rows, count)), "bias": normal(count) / 8, "top": top, "normalise": True}
    return given | {"scale": 2.5} | settings


def for_experts(rows: int, count: int, top: int, width: int, inner: int) -> Arguments:
    """Gate and up are halves of one product, packed [E, D, 2 F] as layers hold them."""
    weights, chosen = normal(rows, count).softmax(-1).topk(top)
    gate, up = normal(count, width, 2 * inner).mT.chunk(2, dim=1)
    return {"x": spread(normal(rows, width)), "weights": weights, "chosen": chosen, "gate": gate, "up": up,
            "down": normal(count, width, inner)}  # fmt: skip


def for_conv(lineage: Lineage, channels: int, width: int) -> Arguments:
    return {
        "x": spread(normal(lineage.rows, channels)),
        "weight": normal(width, channels),
        "windows": normal(9, width - 1, channels),
        "lineage": lineage,
    }


KEY_OF = {"tiled": [0, 1, 0, 1], "grouped": [0, 0, 1, 1], "shared": [0, 0]}
"""Key head that serves each value head."""


def for_delta(lineage: Lineage, decay: str = "head", heads: str = "shared") -> Arguments:
    """States that no row starts from are NaN."""
    key_of, key_dim, value_dim = torch.tensor(KEY_OF[heads]), 20, 10
    rows, value_heads = lineage.rows, len(key_of)
    q, k = (F.normalize(normal(rows, 1 + int(key_of.max()), key_dim), dim=-1) for _ in range(2))
    states = normal(9, value_heads, key_dim, value_dim)
    states[[i for i in range(9) if i not in lineage.source]] = torch.nan
    return {
        "q": spread(q * key_dim**-0.5),
        "k": spread(k),
        "v": spread(normal(rows, value_heads, value_dim)),
        "g": spread(-3 * torch.rand((rows, value_heads) if decay == "head" else (rows, value_heads, key_dim))),
        "beta": spread(torch.rand(rows, value_heads)),
        "states": states,
        "lineage": lineage,
        "key_of": key_of,
    }


def for_repeats() -> Arguments:
    """One key in every row, without decay, with full writes: the worst conditioned run."""
    given = for_delta(chain(21, runs=((0, 19),)), "head")
    ones = torch.ones(21, 2)
    return given | {"k": spread(given["k"][:1].expand(21, 1, 20)), "g": spread(0 * ones), "beta": spread(ones)}


def for_forgetting() -> Arguments:
    """Decays whose sums exceed the range of exponentials in some channels at once, in others never."""
    given = for_delta(chain(21, runs=((0, 19),)), "channel")
    return given | {"g": spread(given["g"] * torch.tensor([0.0, 1.0, 100.0, 1000.0]).repeat(5))}


def for_replay(path: list[int], source: int, target: int, decay: str) -> Arguments:
    arguments = for_delta(chain(6), decay)
    kept = {name: arguments[name] for name in ("states", "k", "g", "key_of")}
    return kept | {"d": spread(normal(6, 2, 10)), "path": path, "source": source, "target": target}


def norms(*shape: int, weight: tuple[int, ...]) -> Case:
    return Case("rms_norm", "rms_norm", lambda: for_rms_norm(*shape, weight=weight), ("y",), half=True)


def ropes(*sizes: int, pairs: str) -> Case:
    return Case("rope", "rope", lambda: for_rope(*sizes, pairs), ("y",), half=True)


def attentions(make: Callable[[], Arguments]) -> Case:
    return Case("attention", "attention", make, ("out",), half=True)


def routes(*sizes: int, normalise: bool) -> Case:
    return Case("moe", "route", lambda: for_route(*sizes, normalise), ("weights", "chosen"), half=True)


def routes_sigmoid(*sizes: int, **settings: Any) -> Case:
    return Case("moe", "route_sigmoid", lambda: for_route_sigmoid(*sizes, **settings), ("weights", "chosen"))


def experts(*sizes: int) -> Case:
    return Case("moe", "experts", lambda: for_experts(*sizes), ("y",), half=True)


def convs(lineage: Lineage, channels: int, width: int) -> Case:
    return Case("causal_conv", "causal_conv", lambda: for_conv(lineage, channels, width), ("y",), ("windows",))


def deltas(lineage: Lineage, *kinds: str) -> Case:
    return Case("gated_delta", "gated_delta", lambda: for_delta(lineage, *kinds), ("o", "d"), ("states",))


def replays(*path: int, source: int = 0, target: int = 3, decay: str = "head") -> Case:
    make = lambda: for_replay(list(path), source, target, decay)
    return Case("gated_delta", "replay", make, (), ("states",))


CASES = {
    "rms_norm-one-column": norms(3, 1, weight=(1,)),
    "rms_norm-odd": norms(5, 65, weight=(65,)),
    "rms_norm-weight-per-head": norms(2, 3, 20, weight=(3, 20)),
    "rms_norm-one-weight": norms(2, 3, 7, weight=(1,)),
    "rms_norm-wider-than-a-block": norms(2, 4099, weight=(4099,)),
    "rope-halves": ropes(5, 3, 14, 14, pairs="halves"),
    "rope-interleaved": ropes(1, 9, 14, 14, pairs="interleaved"),
    "rope-halves-partial": ropes(3, 9, 20, 6, pairs="halves"),
    "rope-interleaved-partial": ropes(3, 1, 7, 6, pairs="interleaved"),
    "attention-itself": attentions(lambda: for_attention(1, 0, 1, 1, 3, 2)),
    "attention-chain": attentions(lambda: for_attention(5, 60, 4, 2, 24, 17)),
    "attention-many-pieces": attentions(lambda: for_attention(2, 1025, 3, 1, 8, 8)),
    "attention-more-queries-than-a-tile": attentions(lambda: for_attention(23, 3, 4, 1, 16, 16)),
    "attention-tree": attentions(lambda: for_a_tree(29)),
    "attention-tree-across-pieces": attentions(lambda: for_a_tree(509)),
    "route-normalised": routes(5, 13, 3, normalise=True),
    "route-plain": routes(3, 64, 8, normalise=False),
    "route-to-all": routes(1, 5, 5, normalise=True),
    "route-sigmoid": routes_sigmoid(5, 13, 3),
    "route-sigmoid-plain": routes_sigmoid(2, 8, 8, normalise=False),
    "route-sigmoid-groups": routes_sigmoid(7, 15, 4, groups=5, groups_used=2),
    "route-sigmoid-all-groups": routes_sigmoid(3, 16, 5, groups=4, groups_used=4),
    "experts-one-row": experts(1, 6, 3, 12, 5),
    "experts-odd": experts(7, 5, 2, 70, 65),
    "experts-more-lines-than-a-tile": experts(21, 2, 2, 17, 9),
    "conv-one-row": convs(chain(1), 7, 4),
    "conv-chain": convs(chain(5), 513, 4),
    "conv-ragged": convs(ragged_lineage(kept=True), 20, 4),
    "conv-width-2": convs(ragged_lineage(kept=False), 20, 2),
    "delta-one-row": deltas(chain(1)),
    "delta-chain": deltas(chain(3), "head", "grouped"),
    "delta-ragged-kept": deltas(ragged_lineage(kept=True), "head", "tiled"),
    "delta-ragged-kept-channel": deltas(ragged_lineage(kept=True), "channel", "grouped"),
    "delta-tree-laid-aside": deltas(ragged_lineage(kept=False)),
    "delta-runs": deltas(with_runs()),
    "delta-runs-channel": deltas(with_runs(), "channel"),
    "delta-runs-repeats": Case("gated_delta", "gated_delta", for_repeats, ("o", "d"), ("states",)),
    "delta-runs-forgetting": Case("gated_delta", "gated_delta", for_forgetting, ("o", "d"), ("states",)),
    "replay": replays(1, 2, 5),
    "replay-in-place-channel": replays(0, 4, source=0, target=0, decay="channel"),
    "replay-nothing": replays(),
}  # fmt: skip
