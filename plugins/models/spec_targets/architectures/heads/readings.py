"""The readings that a head's file allows, each with the usual cause of bad drafts that it would explain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

SHIFTED, LAYER, NORM = "shifted hidden states", "wrong layer", "wrong norm"
TIED, ROTARY, MAP, MASK = "tied output", "rotary", "token map", "attention mask"
BASES = (10_000.0, 500_000.0, 1_000_000.0, 10_000_000.0)
"""Bases of the rotation in published models."""


@attrs.frozen
class HeadReading:
    """name: in words. cause: what is wrong with the file if this reading is right. changes: see ``change_head``."""

    name: str
    cause: str
    changes: Mapping[str, Any]


def readings_of(head: Any, source: Any, layers: int, sources: Sequence[int]) -> list[HeadReading]:
    """Other readings of a head that reads these hidden states of a target of ``layers`` blocks."""
    makers = (_layers(layers, sources), _norms(head, source, layers, sources), _outputs(head), _rotations(head, source))
    listed = [reading for readings in (*makers, _maps(head, source), _rows(head)) for reading in readings]
    unique = {repr(sorted(reading.changes.items())): reading for reading in reversed(listed)}
    return list(reversed(unique.values()))


def _layers(layers: int, sources: Sequence[int]) -> Iterator[HeadReading]:
    for by in (1, -1):
        moved = [i + by for i in sources]
        if all(0 <= i <= layers for i in moved):
            name = f"hidden states one layer {'later' if by > 0 else 'earlier'}"
            yield HeadReading(name, SHIFTED, {"ids": moved})
    paper = [2, layers // 2, layers - 3]
    if len(sources) == 3 and paper[0] < paper[1] < paper[2] and list(sources) != paper:
        yield HeadReading("layers of the paper", LAYER, {"ids": paper})
    for name, listed in (("in ascending order", sorted(sources)), ("in reverse order", [*reversed(sources)])):
        if listed != list(sources):
            yield HeadReading(f"layers {name}", LAYER, {"ids": listed})


def other_layers(layers: int, sources: Sequence[int]) -> Iterator[HeadReading]:
    """Readings in which one of the hidden states is another."""
    for at, own in enumerate(sources):
        for other in range(layers + 1):
            if other != own:
                ids = [*sources[:at], other, *sources[at + 1 :]]
                yield HeadReading(f"hidden state {other} in place of {own}", LAYER, {"ids": ids})


def _has_small_norms(source: Any) -> bool:
    """Whether weights of norms are nearer to 0 than to 1, as they are where 1 was taken off."""
    norms = [source.load(name).float().median() for name in source.names() if name.endswith("norm.weight")]
    return bool(norms) and float(sum(norms)) / len(norms) < 0.5


def _norms(head: Any, source: Any, layers: int, sources: Sequence[int]) -> Iterator[HeadReading]:
    if layers in sources:
        side = "before" if head.normed else "after"
        yield HeadReading(f"the last state {side} the final norm", NORM, {"normed": not head.normed})
    if head.kind == "eagle3":
        for field in ("norm_before_residual", "norm_output"):
            yield HeadReading(
                f"{field} {str(not getattr(head, field)).lower()}", NORM, {field: not getattr(head, field)}
            )
        yield HeadReading("features normed twice", NORM, {"norm_twice": not head.norm_twice})
    else:
        name = f"context {'without' if head.context_norm else 'with'} the norm of each layer"
        yield HeadReading(name, NORM, {"context_norm": not head.context_norm})
    yield HeadReading("its first two norms exchanged", NORM, {"swapped_norms": True})
    if _has_small_norms(source):
        yield HeadReading("norms stored without 1", NORM, {"plus_one": True})
    if not 1e-7 < head.eps < 1e-4:
        yield HeadReading("eps 1e-6", NORM, {"eps": 1e-6})


def _outputs(head: Any) -> Iterator[HeadReading]:
    if head.tied:
        yield HeadReading("logits by the target's output matrix", TIED, {"tied": False})
    elif head.own_embedding and not head.own_output:
        yield HeadReading("logits by its own embedding", TIED, {"tied": True})
    elif head.own_output and head.vocab:
        yield HeadReading("logits by the target's output matrix", TIED, {"own_output": False})
        if head.own_embedding:
            yield HeadReading("logits by its own embedding", TIED, {"own_output": False, "tied": True})


def _rotations(head: Any, source: Any) -> Iterator[HeadReading]:
    pairs = bool(getattr(source, "pairs", {}))
    name = f"halves of a head {'rotate' if pairs else 'as neighbours rotate'} together"
    yield HeadReading(name, ROTARY, {"neighbours": not pairs})
    share = head.partial if head.partial != 1 else 0.5
    if (rotary := int(head.head * share)) % 2 == 0 and rotary:
        yield HeadReading(f"{rotary} of {head.head} dimensions rotate", ROTARY, {"rotary": rotary})
    for base in BASES:
        if abs(base / head.rope_base - 1) > 0.01:
            yield HeadReading(f"rotation of base {base:g}", ROTARY, {"rope_base": base})
    if head.scaling.kind != "none" or head.divisors is not None:
        yield HeadReading("rotation without scaling", ROTARY, {"scaling": False})


def _maps(head: Any, source: Any) -> Iterator[HeadReading]:
    if head.d2t is None:
        return
    if source.shape("d2t") is not None:
        for held in ("offsets", "tokens"):
            yield HeadReading(f"d2t holds {held}", MAP, {"map": held})
    if head.draft_vocab == head.vocab:
        yield HeadReading("rows are the target's tokens", MAP, {"map": "none"})
    if head.vocab:
        for by in (1, -1):
            yield HeadReading(f"tokens one {'higher' if by > 0 else 'lower'}", MAP, {"map_shift": by})


def _rows(head: Any) -> Iterator[HeadReading]:
    if not head.fills_blocks:
        return
    name = "predicts nothing" if head.anchor else "predicts"
    yield HeadReading(f"the row of the last token {name}", SHIFTED, {"anchor": not head.anchor})
    causal = any(head.causal)
    name = "both directions" if causal else "earlier rows alone"
    yield HeadReading(f"rows of a block attend to {name}", MASK, {"causal": not causal})
    if any(head.windows):
        name = "each row has a window of its own" if head.anchored else "all rows have the window of the first"
        yield HeadReading(f"{name} in a block", MASK, {"anchored": not head.anchored})
