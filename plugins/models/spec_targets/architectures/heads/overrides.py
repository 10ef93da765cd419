"""Other readings of a head: fields and tensors as they would be if its file meant something else.

``spec doctor`` tries readings, and with ``--fix`` writes the best one into config.json as ``spec_reading``, which
counts before what the dialect says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import torch

from spec_core.errors import UsageError
from spec_targets.architectures.heads.tensors import HeadTensors, mapping
from spec_targets.architectures.rope import Scaling

FLAGS = (
    "tied",
    "own_output",
    "norm_before_residual",
    "norm_output",
    "normed",
    "anchor",
    "context_norm",
    "norm_twice",
    "anchored",
)
"""Fields of a head that are true or false."""
TENSORS = ("neighbours", "plus_one", "swapped_norms")
"""Changes of tensors: rows of q and k that turn together lie side by side; norms are stored without 1; the norms of a
block's two inputs, or of features and outputs, have each other's names."""
MAPS = ("offsets", "tokens", "none")
"""What ``d2t`` holds; none: rows are the target's tokens."""
CHANGES = (*FLAGS, *TENSORS, "ids", "rotary", "rope_base", "scaling", "eps", "map", "map_shift", "causal")
UNREAD = ("output.weight", "token_embd.weight")
"""Tensors that a reading may leave unread."""
SWAPPED = (("blk.0.attn_norm.weight", "blk.0.attn_norm_2.weight"), ("hidden_norm.weight", "output_norm.weight"))


def apply_reading(head: Any, reading: Any, tensors: HeadTensors) -> Any:
    """The head with the changes of a reading, None: as it is. Raises UsageError for a malformed reading."""
    if reading is None:
        return head
    if not isinstance(reading, Mapping) or not set(reading) <= set(CHANGES):
        raise UsageError(
            f"{head.name}: config.json has spec_reading = {str(reading)[:60]!r}",
            hint=f"an object with some of {', '.join(CHANGES)} is needed",
        )
    changed = change_head(head, reading, tensors)
    words = ", ".join(f"{name} {str(value)[:40]}" for name, value in reading.items())
    return attrs.evolve(changed, repairs=(*changed.repairs, f"read as spec doctor wrote: {words}"))


def change_head(head: Any, reading: Mapping[str, Any], tensors: HeadTensors) -> Any:
    """The head with the changes of a reading; ``tensors`` makes changes of tensors. Raises UsageError."""
    for name, value in reading.items():
        if not _is_possible(head, name, value):
            hint = "let spec doctor write it"
            raise UsageError(f"{head.name}: spec_reading has {name} = {str(value)[:40]!r}", hint=hint)
        if name in TENSORS:
            _change_tensors(head, name, value, tensors)
        else:
            head = attrs.evolve(head, **_fields(head, name, value, tensors))
    if not head.own_output and tensors.shape("output.weight") is not None:
        head = attrs.evolve(head, draft_vocab=head.vocab, d2t=None)
    return head


def _fields(head: Any, name: str, value: Any, tensors: HeadTensors) -> dict[str, Any]:
    """Fields that a change sets."""
    if name == "ids":
        return {"ids": tuple(value), "reading": "inputs", "certain": True, "last": False}
    if name == "scaling":
        return {"scaling": Scaling(), "divisors": None}
    if name == "map":
        stored = value != "none"
        return {"d2t": mapping(tensors, head.draft_vocab, head.vocab, value == "offsets", False)[0] if stored else None}
    if name == "map_shift":
        rows = torch.arange(head.draft_vocab) if head.d2t is None else head.d2t
        return {"d2t": (rows + value) % head.vocab}
    return {name: (value,) * head.layers if name == "causal" else value}


def _change_tensors(head: Any, name: str, value: bool, tensors: HeadTensors) -> None:
    if name == "neighbours":
        tensors.pairs = {"attn_q.": head.heads, "attn_k.": head.kv_heads} if value else {}
    elif name == "plus_one":
        tensors.added = 1.0 if value else 0.0
    elif value:
        first, second = SWAPPED[head.fills_blocks]
        other = {first: second, second: first}
        tensors.tensors = {other.get(key, key): tensor for key, tensor in tensors.tensors.items()}


def _is_possible(head: Any, name: str, value: Any) -> bool:
    """Whether a change has a value of its type that gives a head."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if name == "ids":
        listed = isinstance(value, (list, tuple)) and len(value) == head.inputs
        return listed and all(type(i) is int and 0 <= i < 1 << 16 for i in value)
    if name == "rotary":
        return type(value) is int and 0 < value <= head.head and value % 2 == 0
    if name == "rope_base":
        return number and 1 < value < 1e18
    if name == "eps":
        return number and 0 < value < 1
    if name == "map":
        return value in MAPS and (value != "none" or head.draft_vocab == head.vocab)
    if name == "map_shift":
        return type(value) is int and abs(value) < head.vocab
    if name == "scaling":
        return value is False
    if name == "own_output":
        return value is False
    if name == "tied":
        return value is False or (value is True and head.own_embedding)
    return name in CHANGES and isinstance(value, bool)
