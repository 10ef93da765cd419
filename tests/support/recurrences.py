"""Random recurrences for every executor: the gated delta rule and the scan of Mamba-2, lineages of their rows, and the
definition in float64."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from spec_kernels.ops.gated_delta import gated_delta, scan
from spec_kernels.ops.gated_delta.plan import PIECE, plan
from spec_kernels.ops.lineage import Lineage
from torch import Tensor

from tests.native.ops_library import Delta, P, at, ints, library, memory, table

SHAPES = [(2, 6, 32, 32), (1, 2, 128, 128), (2, 4, 20, 72), (3, 3, 7, 5), (1, 1, 16, 100)]
"""Key heads, value heads, key dimensions, value dimensions."""
PLACES = 12
DELTA, CHANNELS, SCAN = KINDS = "delta", "channels", "scan"
"""The delta rule with a decay of each head or of each channel, and the scan."""
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass
class Layer:
    """Inputs of n rows and states, by the same seed the same. g: [n, Hv], or [n, Hv, Dk] per channel.

    grouped: neighbouring value heads share a key head, else every Hk-th one does.
    """

    rows: int
    shape: tuple = SHAPES[0]
    kind: str = DELTA
    seed: int = 0
    grouped: bool = False
    inputs: dict[str, np.ndarray] = field(init=False)
    states: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        draw = np.random.default_rng(self.seed)
        hk, hv, dk, dv = self.shape
        q, k = (m / np.linalg.norm(m, axis=-1, keepdims=True) for m in draw.standard_normal((2, self.rows, hk, dk)))
        v, beta = draw.standard_normal((self.rows, hv, dv)), draw.random((self.rows, hv))
        g = -3 * draw.random((self.rows, hv, dk) if self.kind == CHANNELS else (self.rows, hv))
        inputs = {"q": q * dk**-0.5, "k": k, "v": v, "g": g, "beta": beta}
        self.inputs = {name: np.ascontiguousarray(m, dtype=np.float32) for name, m in inputs.items()}
        self.states = draw.standard_normal((PLACES, hv, dk, dv)).astype(np.float32)
        self.skip = draw.standard_normal(hv).astype(np.float32)

    @property
    def key_of(self) -> np.ndarray:
        hk, hv = self.shape[:2]
        return ints([h // (hv // hk) if self.grouped else h % hk for h in range(hv)])

    def tokens(self, rows: Sequence[int]) -> Layer:
        """Some of the rows, with the same states."""
        some = replace(self, rows=len(rows))
        some.inputs = {name: np.ascontiguousarray(m[list(rows)]) for name, m in self.inputs.items()}
        some.states, some.skip = self.states.copy(), self.skip
        return some

    def loop(self, lineage: Lineage) -> tuple[np.ndarray, np.ndarray, dict[int, np.ndarray]]:
        """The definition, in float64: o, d, and {row: state after it}."""
        q, k, v, g, beta = (m.astype(np.float64) for m in self.inputs.values())
        after: dict[int, np.ndarray] = {}
        out, written = [], []
        for r in range(lineage.rows):
            parent = lineage.parents[r]
            state = after[parent] if parent >= 0 else self.states[lineage.source[r]].astype(np.float64)
            state = state * (np.exp(g[r])[..., None] if self.kind == CHANNELS else np.exp(g[r])[:, None, None])
            key, query = k[r, self.key_of], q[r, self.key_of]
            recalled = 0 if self.kind == SCAN else np.einsum("hkv,hk->hv", state, key)
            d = beta[r][:, None] * (v[r] - recalled)
            after[r] = state + key[..., None] * d[:, None]
            skipped = self.skip[:, None] * v[r] if self.kind == SCAN else 0
            out.append(np.einsum("hkv,hk->hv", after[r], query) + skipped)
            written.append(d)
        return np.stack(out), np.stack(written), after


# executors: o and d, float32 [n, Hv, Dv]; kept states are written


def run_native(isa: str, layer: Layer, lineage: Lineage) -> tuple[np.ndarray, np.ndarray]:
    _, hv, dk, dv = layer.shape
    o, d = np.full((2, layer.rows, hv, dv), np.nan, np.float32)
    a, kept = in_c(layer, lineage, o, d)
    for first, end in lineage.ends():
        slots = library().spec_delta_plan(P(at(kept[0])), P(at(kept[2])), first, end - first, P(at(kept[3])))
        scratch = memory(library().spec_delta_scratch(dk, slots))
        for head in range(hv):
            scratch[:] = 0xFF
            table(isa).delta(ctypes.byref(a), first, end - first, head, at(scratch))
    return o, d


def replay_native(isa: str, layer: Layer, d: np.ndarray, path: Sequence[int], source: int, target: int) -> None:
    """Advance states[source] along recorded rows into states[target]."""
    a, _kept = in_c(layer, chain(layer.rows), d, d)
    rows = ints(path)
    for head in range(layer.shape[1]):
        table(isa).replay(ctypes.byref(a), at(rows), len(rows), source, target, head)


def in_c(layer: Layer, lineage: Lineage, o: np.ndarray, d: np.ndarray) -> tuple[ctypes.Structure, list[np.ndarray]]:
    """The arguments of the kernels, and arrays that must stay alive."""
    hk, hv, dk, dv = layer.shape
    mixed = np.concatenate([layer.inputs[name].reshape(layer.rows, -1) for name in "qkv"], axis=1)
    g, beta, key_of = layer.inputs["g"], layer.inputs["beta"], layer.key_of
    kept = [*(ints(m) for m in (lineage.parents, lineage.source, lineage.keep, [7] * layer.rows)), key_of, mixed]
    q = at(mixed)
    return (
        Delta(
            *layer.shape,
            dk if layer.kind == CHANNELS else 1,
            *(q, q + 4 * hk * dk, q + 8 * hk * dk, at(g), at(beta)),
            *(mixed.shape[1], g[0].size, hv),
            *(at(o), at(d), hv * dv, hv * dv, at(layer.states)),
            *(at(m) for m in (key_of, *kept[:4])),
            at(layer.skip) if layer.kind == SCAN else None,
        ),
        kept,
    )


def run_torch(layer: Layer, lineage: Lineage) -> tuple[np.ndarray, np.ndarray]:
    inputs = {name: torch.from_numpy(m) for name, m in layer.inputs.items()}
    rule, heads = scan if layer.kind == SCAN else gated_delta, torch.tensor(layer.key_of).long()
    o, d = rule(**inputs, states=torch.from_numpy(layer.states), lineage=lineage, key_of=heads)
    skipped = torch.from_numpy(layer.skip)[:, None] * inputs["v"] if layer.kind == SCAN else 0
    return (o + skipped).numpy(), d.numpy()


def spread(m: Any) -> Tensor:
    """Rows on the device, with NaN in the memory between them."""
    rows = torch.as_tensor(m)
    memory = torch.full((len(rows), rows[0].numel() + 5), torch.nan, dtype=rows.dtype, device=DEVICE)
    return memory[:, : rows[0].numel()].unflatten(1, rows.shape[1:]).copy_(rows)


def run_gpu(layer: Layer, lineage: Lineage) -> tuple[np.ndarray, np.ndarray]:
    """Stage by stage. What kernels must not read is NaN: memory between rows, and states that no row starts from."""
    from spec_kernels.gpu.delta_rule import Pieces, Rows, Solved, by_channel, compute_rows, compute_runs

    own, whole, (_, heads, key_dim, value_dim) = layer.inputs, plan(lineage), layer.shape
    unread = [i for i in range(PLACES) if i not in lineage.source]
    unkept = [i for i in unread if i not in lineage.keep]
    states, key_of = torch.tensor(layer.states, device=DEVICE), torch.tensor(layer.key_of).long().to(DEVICE)
    states[unread] = torch.nan
    room = lambda *shape: torch.full(shape, torch.nan, device=DEVICE)
    o, d, aside = room(*own["v"].shape), room(*own["v"].shape), room(whole.asides, heads, key_dim, value_dim)
    packed = [spread(own[name]).contiguous() for name in ("q", "k", "v", "beta")]
    skip = torch.tensor(layer.skip, device=DEVICE) if layer.kind == SCAN else None
    g = by_channel(spread(own["g"]), packed[1])
    rows = Rows(*packed, g, states, states[0].numel(), key_of, aside, o, d, skip)
    for number, stage in enumerate(whole.stages):
        if not stage.pieces:
            continue
        pieces = Pieces(*(torch.tensor(m, dtype=torch.int64, device=DEVICE) for m in (stage.pieces, stage.spans)))
        if number % 2:
            widths = key_dim, value_dim, PIECE
            compute_runs(rows, pieces, Solved(*(room(len(stage.pieces), heads, PIECE, width) for width in widths)))
        else:
            compute_rows(rows, pieces)
    assert states[unkept].isnan().all()
    states[unkept] = torch.tensor(layer.states, device=DEVICE)[unkept]
    layer.states[:] = states.cpu().numpy()
    return o.cpu().numpy(), d.cpu().numpy()


Run = Callable[[Layer, Lineage], tuple[np.ndarray, np.ndarray]]

# lineages


def chain(rows: int, keep: int = 0, source: int = 0, runs: Sequence[tuple[int, int]] = ()) -> Lineage:
    """One sequence, its last row kept."""
    return Lineage(list(range(-1, rows - 1)), [source] * rows, [-1] * (rows - 1) + [keep], [0], list(runs))


def ragged_lineage(drafts: Sequence[int] = (3, 4, -1, 5, -1)) -> Lineage:
    """A chain that keeps its pending rows, a tree of drafts, and one row alone. drafts: places that keep the drafts."""
    return Lineage(
        parents=[-1, 0, 1, 2, -1, 4, 4, 5, 5, 6, -1],
        source=[0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2],
        keep=[-1, 0, -1, -1, 1, *drafts, 2],
        begins=[0, 4, 10],
    )


def with_runs() -> Lineage:
    """A prompt as runs and single rows, and a sequence that starts with a run and then branches."""
    return Lineage(
        parents=[-1, *range(2 + 19 + 16), -1, *range(38, 55), 55, 55, 56],
        source=[0] * 38 + [1] * 21,
        keep=[*[-1] * 37, 0, *[-1] * 17, 1, -1, 4, -1],
        begins=[0, 38],
        chunks=[(2, 19), (21, 16), (38, 16)],
    )


def random_lineage(rows: int, draw: np.random.Generator) -> Lineage:
    """A tree with pending rows; the last pending row keeps into its source, drafts keep into places or nowhere."""
    pending = int(draw.integers(1, rows + 1))
    parents = [*range(-1, pending - 1), *(int(draw.integers(pending - 1, i)) for i in range(pending, rows))]
    places = [3 + i if i < PLACES - 3 and draw.random() < 0.6 else -1 for i in range(rows - pending)]
    return Lineage(parents, [0] * rows, [-1] * (pending - 1) + [0, *places], [0])


def path_to(lineage: Lineage, row: int) -> list[int]:
    """The rows on the path to a row, with it, first row first."""
    path = []
    while row >= 0:
        path.append(row)
        row = lineage.parents[row]
    return path[::-1]
