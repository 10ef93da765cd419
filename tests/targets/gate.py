"""The rollback gate for torch targets: after every step, what a slot holds equals a fresh forward over its tokens."""

from __future__ import annotations

from functools import cache

import torch

from spec_core import Needs, Request, Result, Run, Sequence
from tests.targets.drive import forward, part, sequence

CLOSE = 1e-5
"""Largest difference, as a share of the largest value of the tensor."""


def memory_of(target, seq: Sequence) -> dict[str, torch.Tensor]:
    """The state that a slot keeps of the evaluated rows."""
    held, n = seq.slot.state, seq.evaluated
    parts = (zip(("keys", "values"), held.cache.read(layer, n), strict=True) for layer in range(held.cache.layers))
    memory = {f"{name} of layer {layer}": rows for layer, part in enumerate(parts) for name, rows in part}
    states = () if held.recurrent is None else held.recurrent.copy()
    return memory | {name: m for name, m in zip(("matrices", "windows"), states, strict=False) if m.numel()}


@cache
def fresh_memory(target, tokens: tuple[int, ...]) -> dict[str, torch.Tensor]:
    seq = sequence(target, list(tokens))
    forward(target, part(seq, 0, list(tokens)), needs=Needs())
    seq.evaluated = len(tokens)
    memory = {name: m.clone() for name, m in memory_of(target, seq).items()}
    target.close(seq)
    return memory


def assert_fresh(target, seq: Sequence) -> None:
    """Raises AssertionError with the name of the tensor that differs."""
    expected = fresh_memory(target, tuple(seq.tokens[: seq.evaluated]))
    for name, have in memory_of(target, seq).items():
        off = (have - expected[name]).abs().max() / expected[name].abs().max().clamp_min(1e-30)
        assert off <= CLOSE, f"{name} of {seq.name} at {seq.evaluated} positions is off by {off:.1e}"


def finish_checked(run: Run, requests: list[Request]) -> list[Result]:
    """All requests in one run, every running sequence held to a fresh forward after every step."""
    seqs = [run.submit(r) for r in requests]
    while run.busy:
        running = list(run.running)
        run.step()
        for seq in {*running, *run.running}:
            if seq.slot is not None and seq.slot.state is not None and seq.evaluated:
                assert_fresh(run.target, seq)
    return [run.take(seq) for seq in seqs]
