"""A model that is some blocks of another one, in the same cache."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from spec_kernels.model.ops import Attend, Model, Op, RecurrentOp, Store, Tap

ENTRY = "hidden."
"""Beginning of the name of the tap at the entry of each block, and after the last one."""


def part_of(model: Model, blocks: Collection[int], layers: int, window: int = 0, sinks: int = 0) -> Model:
    """The model with these of its blocks, between its embedding and its output.

    layers: blocks of the model. window: rows that attention sees at most; 0 is what each block sees. sinks: first rows
    that it sees as well, in blocks without a window of their own, which keep them.
    Raises ValueError for blocks that are not there, that keep a state, or that read keys of a block left out.
    """
    if missing := sorted(set(blocks) - set(range(layers))):
        raise ValueError(f"blocks {missing} are not there: the model has 0 to {layers - 1}")
    ops = tuple(_narrow(op, window, sinks) for op in _choose_ops(model, frozenset(blocks), layers))
    if any(isinstance(op, RecurrentOp) for op in model.ops):
        raise ValueError("recurrent blocks keep a state, which rows of a part would change")
    stored = {op.layer for op in ops if isinstance(op, Store)}
    if orphans := sorted({op.layer for op in ops if isinstance(op, Attend)} - stored):
        raise ValueError(f"the blocks read keys and values of layers {orphans}, whose blocks are left out")
    return replace(model, ops=ops, within=model.cached)


def _choose_ops(model: Model, blocks: frozenset[int], layers: int) -> Iterator[Op]:
    """The operations of the embedding, of these blocks, and of the output, without the taps between blocks."""
    block = -1
    for op in model.ops:
        if isinstance(op, Tap) and op.name.startswith(ENTRY):
            block = int(op.name.removeprefix(ENTRY))
        elif block in blocks or not 0 <= block < layers:
            yield op


def _narrow(op: Op, window: int, sinks: int) -> Op:
    """The operation, whose attention sees at most ``window`` rows, and the first ``sinks``."""
    if not window or not isinstance(op, Attend) or 0 < op.shape.window <= window:
        return op
    return replace(op, shape=replace(op.shape, window=window, lead=0 if op.shape.window else sinks))
