"""Runs a target directly, one forward at a time, and returns its states for comparison."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from spec_core.assembly.hooks import implementations
from spec_core.contract.batch import Part, TargetOutput
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.target import Target
from spec_core.contract.values import Draft, Needs, Verdict
from spec_core.contract.verified_step import RollbackStep
from spec_core.testing.conformance.promise import Found
from spec_core.toolkit.drive import PLAIN, open_sequence
from spec_core.toolkit.drive import forward as drive


@attrs.frozen(eq=False)
class Row:
    """One sequence's share of a forward: committed tokens, and perhaps a draft."""

    seq: Sequence
    tokens: list[int]
    draft: Draft | None = None
    decides: bool = True


def forward(target: Target, rows: Iterable[Row], needs: Needs = PLAIN) -> tuple[Step, TargetOutput]:
    """One forward; the tokens are appended to their sequences, drafts wait for ``keep_paths``."""
    parts = [Part(r.seq, r.seq.evaluated, list(r.tokens), r.decides, draft=r.draft) for r in rows]
    step = drive(target, parts, needs)
    for part in step.parts:
        list.__setitem__(part.seq.tokens, slice(part.start, None), part.pending)
        part.seq.evaluated = part.end
    assert step.output is not None
    return step, step.output


def keep_paths(target: Any, step: Step, paths: list[tuple[int, ...]]) -> None:
    """Let the target restore its state along the kept path of every part."""
    step.phase, step.plugin, step.owners = "rollback", "target", frozenset({"target"})
    for part, path in zip(step.parts, paths, strict=True):
        part.verdict = part.full_verdict = Verdict(path, 0)
    if implementation := implementations(target, "target").get("rollback"):
        implementation[0](RollbackStep(step))
    for part, path in zip(step.parts, paths, strict=True):
        kept = [part.draft.ids[i] for i in path] if part.draft else []
        list.extend(part.seq.tokens, kept)
        part.seq.evaluated += len(kept)


def feed_tokens(target: Target, seq: Sequence, tokens: list[int], needs: Needs = PLAIN) -> TargetOutput:
    """One forward of one sequence, without a draft."""
    return forward(target, [Row(seq, tokens)], needs)[1]


@attrs.frozen
class PlainDecoding:
    """Plain decoding along a text: index e is after e tokens. states: see ``leaves``; logits: [V] each."""

    states: list[list[np.ndarray]]
    logits: list[np.ndarray]


def evaluate_along(target: Target, tokens: list[int]) -> PlainDecoding:
    """Evaluate token by token in a new sequence."""
    seq = open_sequence(target)
    plain = PlainDecoding([[]], [np.empty(0)])
    for token in tokens:
        output = feed_tokens(target, seq, [token])
        plain.states.append(leaves(target.checkpoint(seq)))
        plain.logits.append(host(output.logits[0]))
    target.close(seq)
    return plain


def host(tensor: Tensor) -> np.ndarray:
    """A float64 copy on the host."""
    return tensor.detach().double().cpu().numpy().copy()


def leaves(state: Any) -> list[np.ndarray]:
    """Copies of all tensors and arrays in a checkpoint, in order of its fields."""
    queue, arrays = deque([state]), []
    while queue:
        item = queue.popleft()
        if isinstance(item, (torch.Tensor, np.ndarray)):
            arrays.append(host(torch.as_tensor(item)))
        elif isinstance(item, Mapping):
            queue.extend(item[key] for key in sorted(item, key=str))
        elif isinstance(item, (list, tuple)):
            queue.extend(item)
        elif attrs.has(type(item)):
            queue.extend(getattr(item, field.name) for field in attrs.fields(type(item)))
    return arrays


def expect_close(actual: np.ndarray, expected: np.ndarray, tolerance: float, what: str) -> None:
    """Raise Found unless both are equal up to ``tolerance`` of the largest value."""
    if actual.shape != expected.shape:
        raise Found(f"{what} has the shape {list(actual.shape)}, expected {list(expected.shape)}")
    if not expected.size:
        return
    off = float(np.abs(actual - expected).max())
    if not off <= tolerance * max(1.0, float(np.abs(expected).max())):
        raise Found(f"{what} is {off:.2g} away from a new forward's; the tolerance is {tolerance:g} of its size")
