"""The layers of a block head: masked tokens, filled in one forward (z-lab, DFlash: block diffusion drafting).

Features of committed positions become keys and values of every layer; a block of the last token and masks attends to
them and to itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from spec_kernels.drafting import (
    PREFIX,
    Add,
    BlockConv,
    Builder,
    Concat,
    Embed,
    ForwardBatch,
    Input,
    Linear,
    Model,
    Op,
    SequenceRows,
    Tap,
    block_shape,
    code_ops,
    embedding,
    first_rows,
    matrix_name,
    output_matrix,
    pass_ops,
    shared_weights,
)
from torch import Tensor

from spec_core.toolkit import HeadFile

TAPS = ("logits", "final")
"""Outputs of a block's forward."""
UNSENT = "unsent"
"""The output with the stream before the last messages between rows."""
FEATURE = "feature"
"""The output with the feature of a committed position."""
FIRST_ROWS = 64
"""Initial positions of a cache; it grows."""


@dataclass(eq=False)
class Context:
    """The head's data of a sequence: keys and values of its first ``done`` positions, ``waiting`` states [n, sources x
    Dt] of the ``waits`` positions that follow, and the token after them, or its embedding [D] where it is -1.

    feature: [D] of the last position that is done, where the head reads it.
    """

    cache: Any
    done: int = 0
    token: int = -1
    embed: Tensor | None = None
    feature: Tensor | None = None
    waits: int = 0
    waiting: list[Tensor] = field(default_factory=list)

    def fork(self) -> Context:
        """A copy with rows of its own. States never change, so they are shared."""
        copied = (self.done, self.token, self.embed, self.feature, self.waits, list(self.waiting))
        return Context(self.cache.copy(), *copied)

    def take(self, start: int, states: Tensor) -> None:
        """States of the positions from ``start`` on, kept without a copy; those at or after it are dropped."""
        if start < self.done + self.waits:
            self._cut(start)
        self.waiting.append(states)
        self.waits += len(states)

    def _cut(self, end: int) -> None:
        kept = torch.cat(self.waiting)[: end - self.done] if end > self.done else None
        self.done, self.waiting = min(end, self.done), [] if kept is None else [kept]
        self.waits = end - self.done

    def take_waiting(self) -> list[Tensor]:
        """Take the waiting rows, which count as done from now on."""
        waiting, self.waiting = self.waiting, []
        self.done, self.waits = self.done + self.waits, 0
        return waiting

    def room(self, rows: int) -> Any:
        self.cache.reserve(rows)
        return self.cache


class Layers:
    """Two models over one cache: ``store`` writes committed positions, ``fill`` reads a block."""

    def __init__(self, file: HeadFile, trunk: Any) -> None:
        """file: of the head. trunk: of the target, whose embedding and output matrix are used if the head has none of
        its own."""
        self.head, self.device = file.head, getattr(trunk, "device", "cpu")
        source, frequencies = shared_weights(file.source, trunk), file.rotation()
        windows = self.head.windows or (0,) * self.head.layers
        shapes = [block_shape(self.head, window, i) for i, window in enumerate(windows)]
        builders = [Builder(shape, source) for shape in shapes]
        self.store = trunk.with_layers(Model(tuple(storing_ops(builders, self.head)), *frequencies), source)
        self.fill = trunk.with_layers(Model(tuple(filling_ops(builders, self.head)), *frequencies), source)

    def context(self) -> Context:
        """The context of a new sequence."""
        return Context(self.fill.cache(FIRST_ROWS))

    def embedding(self, vector: Tensor) -> Tensor:
        """A copy of the embedding of a committed token; zeros if its width is not the head's."""
        return embedding(vector, self.head.width)

    def learn(self, contexts: Sequence[Context]) -> None:
        """Keys and values of the positions that wait, of several sequences in one pass."""
        if not contexts:
            return
        sequences, first = [], 0
        positions: list[int] = []
        states: list[Tensor] = []
        for c in contexts:
            start, n = c.done, c.waits
            sequences.append(SequenceRows(c.room(start + n), first, n, start))
            positions += range(start, start + n)
            states += c.take_waiting()
            first += n
        rows = states[0] if len(states) == 1 else torch.cat(states)
        inputs = dict(zip(input_names(self.head), rows.chunk(len(input_names(self.head)), -1), strict=True))
        at = torch.tensor(positions, device=self.device)
        taps = () if self.head.lattice is None else (FEATURE,)
        outputs = self.store.run(ForwardBatch(None, at, sequences, inputs=inputs, logits=[], final=[], taps=taps))
        for context, of in zip(contexts, sequences, strict=True) if taps else ():
            context.feature = outputs[FEATURE][of.first + of.rows - 1].clone()

    @property
    def longest(self) -> int:
        """Tokens that a block predicts at most."""
        return int(self.head.block) - self.known_rows

    @property
    def known_rows(self) -> int:
        """Rows at the start of a block that predict nothing: that of the last token, unless it predicts the first."""
        return int(not self.head.anchor)

    def blocks(self, contexts: Sequence[Context], drafts: Sequence[int]) -> tuple[list[Tensor], list[Tensor]]:
        """Logits [n, Vd] of a block that predicts n tokens after each context, and their states [n, D], in one pass.

        drafts: n for each. States are those after the last norm, or before the last messages between rows.
        """
        tokens: list[int] = []
        positions: list[int] = []
        output_rows: list[int] = []
        sequences, embeds, known = [], {}, self.known_rows
        for c, n in zip(contexts, drafts, strict=True):
            first, rows = len(tokens), n + known
            if c.embed is not None:
                embeds[first] = c.embed
            sequences.append(SequenceRows(c.room(c.done + rows), first, rows, c.done))
            tokens += [c.token] + [self.head.mask] * (rows - 1)
            positions += range(c.done, c.done + rows)
            output_rows += range(first + known, first + rows)
        both = torch.tensor([tokens, positions], device=self.device)
        inputs = first_rows([s.first for s in sequences], len(tokens), self.device) if self.head.transfer else {}
        taps = (*TAPS, UNSENT) if self.head.transfer else TAPS
        batch = ForwardBatch(both[0], both[1], sequences, embeds, inputs, output_rows, output_rows, taps)
        outputs = self.fill.run(batch)
        states = outputs[UNSENT][output_rows] if self.head.transfer else outputs["final"]
        return list(outputs["logits"].split(list(drafts))), list(states.split(list(drafts)))


def storing_ops(builders: Sequence[Builder], head: Any) -> Iterator[Op]:
    """Operations from hidden states to a feature, and from its norm to keys and values of every layer."""
    names = input_names(head)
    for i, name in enumerate(names):
        yield Input(name, head.inputs * head.target_width // len(names))
        if head.fc_norm:
            yield builders[0].norm(name, name, f"{PREFIX}input_norm.{i}.weight", head.target_width)
    if head.fc_norm:
        yield Concat(names, "z")
    yield builders[0].linear("z", "c", PREFIX + "fc", (head.width, head.inputs * head.target_width))
    yield builders[0].norm("c", "c", PREFIX + "hidden_norm.weight")
    if head.lattice is not None:
        yield Tap("c", FEATURE)
    for i, builder in enumerate(builders):
        block = builder.at(f"{PREFIX}blk.{i}.", i)
        if head.context_norm:
            yield block.norm("c", "n", "attn_norm.weight")
        yield block.projection(parts_of(head), x="n" if head.context_norm else "c")
        yield from block.store(head.qk_norm, parts_of(head), head.post_norms)


def filling_ops(builders: Sequence[Builder], head: Any) -> Iterator[Op]:
    """Operations from a block to logits; its tokens attend in both directions in layers that are not causal."""
    first = builders[0]
    yield Embed("x", first.weight(matrix_name(first, "token_embd.weight")), head.embed_scale)
    yield from code_ops(first, head) if head.transfer else ()
    for i, builder in enumerate(builders):
        block, residual = builder.at(f"{PREFIX}blk.{i}.", i), not (head.conv_taps or head.post_norms)
        causal, values = bool(head.causal and head.causal[i]), {"parts": parts_of(head), "value_norm": head.post_norms}
        gates = ("softplus", head.gates_of(i)) if head.gate else None
        values |= {"own_gates": gates, "anchored": head.anchored}
        attention = block.attention(causal=causal, sinks=head.sinks, residual=residual, **values)
        yield from _around(attention, block, head, "attn")
        yield from _around(block.mlp(head.ff, act=head.act, residual=residual), block, head, "ffn")
        if head.transfer and i == head.layers - 1:
            yield Tap("x", UNSENT)
        yield from pass_ops(block, first, head) if head.transfer else ()
    output = output_matrix(first, head.tied)
    yield from first.output_ops(PREFIX + "output_norm.weight", output, cap=head.logit_cap, scale=head.logit_scale)


def input_names(head: Any) -> tuple[str, ...]:
    """Inputs of ``storing_ops``: all hidden states joined, or each alone where each has a norm."""
    return tuple(f"h{i}" for i in range(head.inputs)) if head.fc_norm else ("z",)


def parts_of(head: Any) -> tuple[str, ...]:
    """What a layer projects besides queries: values are the keys where the head has no matrix of theirs."""
    return ("k", "v") if head.own_values else ("k",)


def _around(layer: Iterator[Op], builder: Builder, head: Any, part: str) -> Iterator[Op]:
    """A layer with its norm, and with another after it (Gemma 4) or between two convolutions over the block (DFlash2)
    where the head has them."""
    if not head.conv_taps:
        yield builder.norm("x", "h", f"{part}_norm.weight")
        yield from layer
        if head.post_norms:
            yield from _after_norm(builder, part)
        return
    size, base = head.conv_taps * head.conv_groups, builder.read(f"{part}_conv_base", (2, head.conv_taps, head.width))
    name = f"{part}_conv_proj.weight"
    builder.declare(name, (2 * size, head.width))
    kernels = tuple(builder.weight(name, rows) for rows in torch.arange(2 * size).chunk(2))
    yield builder.norm("x", "n", f"{part}_norm.weight")
    yield Linear("n", ("kernel_in", "kernel_out"), kernels, (None, None))
    yield BlockConv("n", "kernel_in", "h", base[0].contiguous())
    yield from layer
    yield BlockConv("h", "kernel_out", "conv", base[1].contiguous())
    yield Add("x", "conv", "x")


def _after_norm(builder: Builder, part: str) -> Iterator[Op]:
    """x + norm(h), after feed-forward scaled by the factor of the layer."""
    yield builder.norm("h", "h", "post_attention_norm.weight" if part == "attn" else "post_ffw_norm.weight")
    yield Add("x", "h", "x", 1.0 if part == "attn" else float(builder.vector("layer_output_scale.weight", 1)))
