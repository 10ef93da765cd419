"""What the GPU kernels compute, in plain torch."""

from __future__ import annotations

from typing import Any

import torch
from spec_kernels.gpu.delta import DeltaInputs, split_record
from spec_kernels.gpu.drafting import DEPTH, Following, Scores
from spec_kernels.gpu.forms import FORMS, WORDS
from spec_kernels.gpu.heads import Heads, Rotary
from spec_kernels.gpu.layout import ANCHOR, BASE, LAST, LINE, PLACE, POSITION, SEEN
from spec_kernels.gpu.mixture import Lines
from spec_kernels.gpu.products import Room
from spec_kernels.gpu.repack import Matrix
from spec_kernels.gpu.rows import Function
from spec_kernels.gpu.scores import Attention, Sums
from spec_kernels.gpu.states import StateChunks
from spec_kernels.gpu.sums import Norm, Parts
from spec_kernels.gpu.tiles import PAGE
from spec_kernels.gpu.windows import Links
from spec_kernels.model.shapes import ConvShape
from spec_kernels.ops.dequant.reference import FP4
from torch import Tensor


class RepackedWeights:
    """A source whose matrices in blocks have the weights that they have on the device."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def load(self, name: str) -> Tensor:
        """float32 of a tensor."""
        form, shape = FORMS.get(self.source.type(name)), self.source.shape(name)
        if form is None or len(shape) < 2:
            return self.source.load(name)
        data = self.source.blocks(name)
        matrix = Matrix.empty(form, len(data), shape[-1], torch.float32, torch.device("cpu"))
        matrix.write(0, data)
        return naive_weights(matrix).view(shape)


def naive_add_parts(
    rows: int,
    parts: Parts | None,
    base: Tensor | None,
    inner: Norm | None = None,
    total: Tensor | None = None,
    outer: Norm | None = None,
    out: Tensor | None = None,
    scale: float = 1.0,
) -> None:
    """The twin of ``add_parts`` in torch."""
    value = torch.zeros_like(base[:rows], dtype=torch.float32) if parts is None else parts.total()[:rows]
    value = value if inner is None else naive_norm(value, inner)
    value = (value if base is None else base[:rows].float() + value) * scale
    if total is not None:
        total[:rows] = value
    if outer is not None:
        out[:rows] = naive_norm(value, outer).to(out.dtype)


def naive_norm(x: Tensor, norm: Norm) -> Tensor:
    """A norm of every piece of rows, in torch."""
    pieces = x.unflatten(1, (-1, norm.groups, len(norm.weight) // norm.groups))
    unit = pieces * torch.rsqrt(pieces.square().mean(-1, keepdim=True) + norm.eps)
    return (unit * norm.weight.view(norm.groups, -1)).flatten(1)


def naive_choose_drafts(
    logits: Tensor, scores: Scores, following: Following, depth: int, tokens: Tensor, certainty: Tensor
) -> None:
    """The twin of ``choose_drafts`` in torch, for greedy rows."""
    chances, best = logits.softmax(-1).max(-1)
    tokens.copy_(best if following.ids is None else following.ids[best])
    certainty.copy_(chances)
    following.rows[:, 0] = tokens
    depths = following.chains[:, DEPTH].tolist()
    for row, tile, last in zip(following.rows, following.tiles, depths, strict=False):
        if depth + 2 > last:
            row[3] = -1
        elif depth and not following.stays:
            row[2:6] += 1
            tile[3:6] += 1


def naive_weights(matrix: Matrix) -> Tensor:
    """float32 [n, k]: the twin of ``blocks.read_weights`` in torch."""
    form, memory = matrix.form, matrix.memory
    if not form.blocks:
        return memory.numbers.float()
    scales = memory.scales.transpose(0, 1).contiguous().view(torch.bfloat16 if form.kind == "codes" else torch.float16)
    scales = scales.reshape(matrix.n, -1).float() * form.unit
    spread = lambda m: m.repeat_interleave(form.each, 1)[:, : matrix.k]
    if form.minimums:
        return spread(scales[:, ::2]) * _naive_integers(matrix) + spread(scales[:, 1::2])
    return spread(scales) * _naive_integers(matrix)


def _naive_integers(matrix: Matrix) -> Tensor:
    """float32 [n, k]"""
    form, memory = matrix.form, matrix.memory
    split = lambda words, count, bits: (
        (words.int().view(matrix.n, -1, 1, WORDS) >> torch.arange(count)[:, None].to(words.device) * bits)
        & ((1 << bits) - 1)
    )
    if form.kind == "bytes":
        return split(memory.numbers, 2, 8).flatten(1)[:, : matrix.k].to(torch.int8).float()
    integers = split(memory.numbers, 4, 4)
    if form.bits:
        high = split(memory.high, 4 * form.runs_of_high, form.bits).view(matrix.n, -1, 4, WORDS)
        integers = integers | high[:, : integers.shape[1]] << 4
    integers = integers.flatten(1)[:, : matrix.k]
    if form.kind == "codes":
        return torch.tensor(FP4, dtype=torch.float32, device=integers.device)[integers]
    return integers.float() - form.offset


def naive_multiply(x: Tensor, matrix: Matrix, out: Tensor) -> None:
    """The twin of ``multiply`` in torch."""
    weights = naive_weights(matrix)
    parts = zip(x.float().chunk(len(out), 1), weights.chunk(len(out), 1), strict=True)
    for to, (columns, part) in zip(out, parts, strict=True):
        to.copy_(columns @ part.T)


def naive_multiply_gated(x: Tensor, matrix: Matrix, out: Tensor, function: Function, room: Room | None = None) -> None:
    """The twin of ``multiply_gated`` in torch."""
    gate, up = (x.float() @ naive_weights(matrix).T).chunk(2, 1)
    naive_combine_rows(function, out, gate, up)


def naive_prepare_rows(x: Tensor, beta: Tensor, alpha: Tensor, links: Links, inputs: DeltaInputs) -> None:
    """The twin of ``prepare_rows`` in torch."""
    s, count = inputs.pool.shape, len(links.parents)
    recorded, keys, _, decays = split_record(inputs.record[:count], s)
    looks = [_naive_window(row, x, links, inputs.pool, inputs.layer) for row in range(count)]
    mixed = torch.stack([(look * inputs.conv).sum(0) for look in looks])
    scan = inputs.bias is not None
    mixed = mixed + inputs.bias if scan else mixed
    q, k, v = torch.nn.functional.silu(mixed).split([s.key_width, s.key_width, s.value_width], 1)
    unit = lambda heads: heads if scan else heads * torch.rsqrt(heads.square().sum(-1, keepdim=True) + inputs.eps)
    inputs.q[:count] = unit(q.unflatten(1, (s.key_heads, -1))) * (1.0 if scan else s.key_dim**-0.5)
    keys.copy_(unit(k.unflatten(1, (s.key_heads, -1))))
    inputs.v[:count] = v.unflatten(1, (s.value_heads, -1))
    steps = torch.nn.functional.softplus(alpha[:count] + inputs.dt)
    inputs.rates[:count] = steps if scan else inputs.strength * beta[:count].sigmoid()
    decays.copy_((inputs.rate * steps).view_as(decays))
    if inputs.recorded:
        recorded.copy_(x[:count])


def naive_convolve_gated(u: Tensor, c: Tensor, conv: Tensor, pool: StateChunks, layer: int, links: Links) -> Tensor:
    """The twin of ``convolve_gated`` in torch: its rows."""
    rows = range(len(links.parents))
    return torch.stack([c[row] * (_naive_window(row, u, links, pool, layer) * conv).sum(0) for row in rows])


def _naive_window(row: int, x: Tensor, links: Links, pool: StateChunks, layer: int) -> Tensor:
    """[W, C]: the inputs that a row looks at, oldest first."""
    seen: list[Tensor] = []
    at = row
    while at >= 0 and len(seen) < pool.shape.kernel:
        seen.insert(0, x[at])
        at = int(links.parents[at])
    place = pool.offsets.tolist().index(int(links.source[row]))
    stored = pool.state(place)[1][layer]
    return torch.cat([stored[len(seen) - 1 :], torch.stack(seen)])


def naive_replay_rows(record: Tensor, pool: StateChunks, place: int, path: Tensor) -> None:
    """The twin of ``replay_rows`` in torch."""
    matrices, windows = pool.state(place)
    if isinstance(pool.shape, ConvShape):
        windows.copy_(torch.cat([windows, record[:, path]], 1)[:, -windows.shape[1] :])
        return
    x, k, d, g = (m[:, path] for m in split_record(record, pool.shape))
    for row in range(len(path)):
        keys = k[:, row, pool.key_of]
        decays = g[:, row] if pool.shape.by_channel else g[:, row, :, None]
        decayed = matrices * decays[..., None].exp()
        matrices.copy_(decayed + keys[..., None] * d[:, row, :, None])
    windows.copy_(torch.cat([windows, x], 1)[:, -windows.shape[1] :])


def naive_combine_rows(
    function: Function,
    out: Tensor,
    x: Tensor,
    y: Tensor | None = None,
    index: Tensor | None = None,
    scale: float = 1.0,
) -> None:
    """The twin of ``combine_rows`` in torch."""
    rows = (x[: len(out)] if index is None else x[index.long()]).float()
    other = rows if y is None else y[: len(out)].float()
    other = other.repeat_interleave(rows.shape[1] // other.shape[1], 1)
    if function.endswith("_glu"):
        out.copy_(_naive_glu(function, rows, other))
        return
    results = {
        "copy": lambda: rows * scale,
        "add": lambda: (rows + other) * scale,
        "sigmoid": lambda: rows * other.sigmoid(),
        "silu": lambda: rows * other * other.sigmoid(),
        "identity": lambda: rows * other,
        "softplus": lambda: rows * torch.nn.functional.softplus(other),
        "cap": lambda: (rows / scale).tanh() * scale,
    }
    out.copy_(results[function]())


def _naive_glu(function: Function, gate: Tensor, up: Tensor) -> Tensor:
    if function == "gelu_glu":
        return torch.nn.functional.gelu(gate, approximate="tanh") * up
    if function == "clamped_glu":
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        return gate * (1.702 * gate).sigmoid() * (up + 1)
    if function == "relu_glu":
        return gate.relu() * up
    return torch.nn.functional.silu(gate) * up


def naive_attend(
    q: Tensor, rows: Tensor, tiles: Tensor, paths: Tensor, sums: Sums, how: Attention, out: Tensor
) -> None:
    """The twin of ``attend`` in torch."""
    s = how.shape
    for i, row in enumerate(rows.tolist()):
        if row[PLACE] < 0:
            continue
        last = row[SEEN] if how.causal else row[LAST]
        numbers = list(range(last + 1))
        if how.tree and how.causal and row[BASE] <= last:
            numbers = [*range(row[BASE]), *(row[BASE] + paths[i, : last + 1 - row[BASE]]).tolist()]
        first = max(0, row[ANCHOR if how.anchored else SEEN] - s.window + 1) if s.window else 0
        numbers = [*numbers[: min(s.lead, first)], *numbers[first:]]
        cells = [(how.pool.layer(how.pool.page(row[LINE], p, how.layer), how.layer), p % PAGE) for p in numbers]
        keys, values = (torch.stack([page[kind, :, at] for page, at in cells]).float() for kind in (0, -1))
        values = values[..., -s.value_dim :]
        keys, values = (m.repeat_interleave(s.group, 1) for m in (keys, values))
        scores = torch.einsum("hd,thd->ht", q[i].float(), keys) * s.scale
        scores = (scores / s.cap).tanh() * s.cap if s.cap else scores
        sinks = scores.new_empty(s.heads, 0) if how.sinks is None else how.sinks[:, None]
        weights = torch.cat([scores, sinks], 1).softmax(1)[:, : len(cells)]
        out[i] = torch.einsum("ht,thd->hd", weights, values).to(out.dtype)


def naive_multiply_heads(x: Tensor, weights: Tensor, kept: int, out: Tensor) -> None:
    """The twin of ``multiply_heads`` in torch."""
    out[..., :kept] = x[..., :kept]
    out[..., kept:] = torch.einsum("rhk,hnk->rhn", x[..., kept:].double(), weights.double()).to(out.dtype)


def naive_sort_lines(lines: Lines) -> None:
    """The twin of ``sort_lines`` in torch."""
    lines.order.copy_(lines.chosen.flatten().argsort(stable=True))
    lines.counts.copy_(lines.chosen.flatten().bincount(minlength=len(lines.counts)))


def naive_multiply_gated_experts(
    x: Tensor, lines: Lines, matrices: tuple[Matrix, Matrix], biases: tuple[Tensor, Tensor] | None, out: Tensor,
    function: Function,
) -> None:  # fmt: skip
    """The twin of ``multiply_gated_experts`` in torch."""
    gates, ups = (_naive_experts(matrix, lines) for matrix in matrices)
    for line, expert in enumerate(lines.chosen.flatten().tolist()):
        row = x[line // lines.chosen.shape[1]].float()
        gate, up = gates[expert] @ row, ups[expert] @ row
        if biases is not None:
            gate, up = gate + biases[0][expert], up + biases[1][expert]
        naive_combine_rows(function, out[line : line + 1], gate[None], up[None])


def naive_multiply_experts(x: Tensor, lines: Lines, matrix: Matrix, bias: Tensor | None, out: Tensor) -> None:
    """The twin of ``multiply_experts`` in torch."""
    used, weights = len(out), _naive_experts(matrix, lines)
    for line, expert in enumerate(lines.chosen.flatten().tolist()):
        value = weights[expert] @ x[line].float()
        value = value if bias is None else value + bias[expert]
        out[line % used, line // used] = value * lines.shares.flatten()[line]


def _naive_experts(matrix: Matrix, lines: Lines) -> Tensor:
    """float32 [E, n, k]."""
    return naive_weights(matrix).view(len(lines.counts), -1, matrix.k)


def naive_store_heads(rows: Tensor, heads: Heads) -> None:
    """The twin of ``store_heads`` in torch."""
    total = heads.parts.total()[: len(rows)].unflatten(1, (-1, heads.dim))
    q, kv = total[:, : heads.queries], total[:, heads.queries :]
    positions = rows[:, POSITION, None] if heads.positions is None else heads.positions[: len(rows)]
    if heads.queries:
        q = _naive_normalise(q, heads.q_norm, heads.q_roots)
        heads.q[: len(rows)] = _naive_rotation(q, positions, heads.rotary)
    if not heads.cached:
        return
    keys, values = (kv, kv) if heads.shared else kv.chunk(2, 1)
    values = _naive_normalise(values, heads.v_norm, None)
    keys = _naive_rotation(_naive_normalise(keys, heads.k_norm, heads.k_roots), positions, heads.rotary)
    for i, (line, place) in enumerate(rows[:, [LINE, PLACE]].tolist()):
        if place >= 0:
            heads.pool.write(line, place, heads.layer, keys[i], values[i])


def _naive_normalise(heads: Tensor, norm: Norm | None, roots: Tensor | None) -> Tensor:
    """roots: of whole rows, or None: each head has its own."""
    if norm is None:
        return heads
    if roots is None:
        return naive_norm(heads.flatten(0, 1), norm).view_as(heads)
    return heads / roots[: len(heads), None, None] * norm.weight.view(-1, heads.shape[2])


def naive_measure_rows(parts: Parts, eps: float, roots: Tensor) -> None:
    """The twin of ``measure_rows`` in torch."""
    roots.copy_((parts.total()[: len(roots)].square().mean(1) + eps).sqrt())


def _naive_rotation(heads: Tensor, positions: Tensor, rotary: Rotary) -> Tensor:
    pairs = rotary.cos.shape[1]
    places = positions.long().expand(-1, pairs)
    cos, sin = (m.gather(0, places)[:, None] for m in (rotary.cos, rotary.sin))
    a, b, rest = heads.split([pairs, pairs, heads.shape[-1] - 2 * pairs], -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)


def naive_embed(tokens: Tensor, table: Matrix, out: Tensor, scale: float) -> None:
    """The twin of ``embed`` in torch."""
    out[: len(tokens)] = naive_weights(table)[tokens.clamp_min(0).long()] * scale
