"""A target driven by hand, one forward at a time, and its states laid open for comparison."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from spec_core.assembly.hooks import implementations
from spec_core.contract.batch import Checked, Part
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.target import Target
from spec_core.contract.values import Draft, Needs, Verdict
from spec_core.loop.schedule import batch
from spec_core.sampling.parameters import Sampling
from spec_core.sampling.stop import Stop
from spec_core.testing.conformance.promise import Found

PLAIN = Needs()


def opened(target: Target, embeds: Mapping[int, Tensor] | None = None) -> Sequence:
    """A sequence with memory in the target, and nothing in it yet."""
    seq = Sequence([], 0, 0, Sampling(), Stop(), embeds=embeds or {})
    target.open(seq, 0)
    return seq


@attrs.frozen(eq=False)
class Row:
    """What one sequence brings to a forward: tokens that are certain, and perhaps a draft."""

    seq: Sequence
    tokens: list[int]
    draft: Draft | None = None
    decides: bool = True


def forward(target: Target, rows: Iterable[Row], needs: Needs = PLAIN) -> tuple[Step, Checked]:
    """One forward; the tokens are appended to their sequences, drafts wait for ``keep``."""
    step = Step(target, {}, trees=needs.trees)
    for row in rows:
        step.add(Part(row.seq, row.seq.evaluated, list(row.tokens), row.decides, draft=row.draft))
    step.batch = batch(step, needs, target.info.device)
    step.checked = target.forward(step.batch, needs)
    for part in step.parts:
        part.seq.tokens[part.start :] = part.pending
        part.seq.evaluated = part.end
    return step, step.checked


def keep(target: Any, step: Step, paths: list[tuple[int, ...]]) -> None:
    """Let the target put what it owns back along the kept path of every part."""
    step.phase, step.asking, step.owners = "rollback", "target", frozenset({"target"})
    for part, path in zip(step.parts, paths, strict=True):
        part.verdict = part.raw = Verdict(path, 0)
    if found := implementations(target, "target").get("rollback"):
        found[0](step)
    for part, path in zip(step.parts, paths, strict=True):
        kept = [part.draft.ids[i] for i in path] if part.draft else []
        part.seq.tokens += kept
        part.seq.evaluated += len(kept)


def feed(target: Target, seq: Sequence, tokens: list[int], needs: Needs = PLAIN) -> Checked:
    """One forward of one sequence, without a draft."""
    return forward(target, [Row(seq, tokens)], needs)[1]


@attrs.frozen
class Along:
    """What plain decoding has along a text: index e is after e tokens. states: see ``leaves``; logits: [V] each."""

    states: list[list[np.ndarray]]
    logits: list[np.ndarray]


def along(target: Target, tokens: list[int]) -> Along:
    """Token by token through a fresh sequence."""
    seq = opened(target)
    found = Along([[]], [np.empty(0)])
    for token in tokens:
        checked = feed(target, seq, [token])
        found.states.append(leaves(target.checkpoint(seq)))
        found.logits.append(host(checked.logits[0]))
    target.close(seq)
    return found


def host(tensor: Tensor) -> np.ndarray:
    """A copy of its own, float64."""
    return tensor.detach().double().cpu().numpy().copy()


def leaves(state: Any) -> list[np.ndarray]:
    """Copies of all tensors and arrays in a checkpoint, in order of its fields."""
    queue, found = deque([state]), []
    while queue:
        item = queue.popleft()
        if isinstance(item, (torch.Tensor, np.ndarray)):
            found.append(host(torch.as_tensor(item)))
        elif isinstance(item, Mapping):
            queue.extend(item[key] for key in sorted(item, key=str))
        elif isinstance(item, (list, tuple)):
            queue.extend(item)
        elif attrs.has(type(item)):
            queue.extend(getattr(item, field.name) for field in attrs.fields(type(item)))
    return found


def close(found: np.ndarray, wanted: np.ndarray, tolerance: float, what: str) -> None:
    """Raise what was found unless both are equal up to ``tolerance`` of the largest number."""
    if found.shape != wanted.shape:
        raise Found(f"{what} has the shape {list(found.shape)}, expected {list(wanted.shape)}")
    if not wanted.size:
        return
    off = float(np.abs(found - wanted).max())
    if not off <= tolerance * max(1.0, float(np.abs(wanted).max())):
        raise Found(f"{what} is {off:.2g} away from a fresh forward's; allowed are {tolerance:g} of its size")
