"""A reading that ``spec doctor --fix`` found and wrote into config.json, over what the dialect would take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from spec_core.errors import UsageError
from spec_targets.architectures.heads.tensors import HeadTensors, mapping

FLAGS = ("tied", "norm_before_residual", "norm_output", "normed", "anchor", "context_norm", "norm_twice", "own_output")
"""Fields of a head that a reading may set to true or false."""
CHANGES = (*FLAGS, "ids", "rotary", "rope_base", "offsets", "neighbours", "plus_one", "swapped_norms")


def apply_reading(head: Any, reading: Any, source: HeadTensors) -> Any:
    """The head with the fields of a reading, None: as it is. Raises UsageError for a malformed reading."""
    if reading is None:
        return head
    if not isinstance(reading, Mapping) or not set(reading) <= set(CHANGES):
        raise UsageError(
            f"{head.name}: config.json has spec_reading = {str(reading)[:60]!r}",
            hint=f"an object with some of {', '.join(CHANGES)} is needed",
        )
    changed = change_head(head, reading, source)
    words = ", ".join(f"{name} {str(value)[:40]}" for name, value in reading.items())
    return attrs.evolve(changed, repairs=(*changed.repairs, f"read as spec doctor wrote: {words}"))


def change_head(head: Any, reading: Mapping[str, Any], source: HeadTensors) -> Any:
    """The head with the fields of a reading; tensors of ``source`` change in place. Raises UsageError."""
    fields: dict[str, Any] = {}
    for name, value in reading.items():
        _check(head, name, value)
        if name in FLAGS:
            fields[name] = value
        elif name == "ids":
            fields |= {"ids": tuple(value), "reading": "inputs", "certain": True, "last": False}
        elif name in ("rotary", "rope_base"):
            fields[name] = value
        elif name == "offsets":
            fields["d2t"] = mapping(source, head.draft_vocab, head.vocab, value)[0]
        elif name == "neighbours":
            source.pairs = {"attn_q.": head.heads, "attn_k.": head.kv_heads} if value else {}
        elif name == "plus_one":
            source.added = 1.0 if value else 0.0
        else:
            source.tensors = _swap_norms(source.tensors)
    if fields.get("own_output") is False and not fields.get("tied"):
        fields |= {"draft_vocab": head.vocab, "d2t": None}
    return attrs.evolve(head, **fields)


def _check(head: Any, name: str, value: Any) -> None:
    """Raise UsageError for a value of another type, or one that gives no rotation."""
    if name == "ids":
        good = isinstance(value, (list, tuple)) and len(value) == head.inputs and all(
            type(i) is int and 0 <= i < 1 << 16 for i in value
        )
    elif name == "rotary":
        good = type(value) is int and 0 <= value <= head.head and value % 2 == 0
    elif name == "rope_base":
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and 1 <= value < 1e18
    else:
        good = isinstance(value, bool)
    if not good:
        raise UsageError(f"{head.name}: spec_reading has {name} = {str(value)[:40]!r}", hint="let spec doctor write it")


def _swap_norms(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors in which the norms of a block's two inputs have each other's names."""
    first, second = "blk.0.attn_norm.weight", "blk.0.attn_norm_2.weight"
    other = {first: second, second: first}
    return {other.get(name, name): tensor for name, tensor in tensors.items()}
