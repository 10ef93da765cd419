"""Tensors of heads by one set of names, whatever the format of their files: GGUF's names where they exist.

The norm before ``fc`` is ``input_norm.weight`` over all hidden states together or ``input_norm.I.weight`` for each;
``hidden_norm.weight`` stands after ``fc`` (dflash). ``blk.0.attn_norm.weight`` norms the token's embedding and
``blk.0.attn_norm_2.weight`` the feature (eagle3). Rows of q and k are ordered so that halves of a head turn together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import attrs
import torch
from torch import Tensor

from spec_core.errors import UsageError

DAMAGED = "its metadata and its tensors do not belong together; get the file again"
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Dtypes of the mapping ``d2t``."""


class StoredTensor(Protocol):
    """A tensor in a file of any format. type: by GGUF's names."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def type(self) -> str: ...
    def load(self) -> Tensor:
        """Values as stored; as float32 if they are quantised."""

    def blocks(self) -> Tensor:
        """uint8 [rows, bytes of a row]."""

    def whole_numbers(self) -> Tensor | None:
        """The values of a vector of whole numbers; None for what cannot be one."""


@attrs.define(eq=False)
class HeadTensors:
    """Tensors of a file under our names, whatever its format.

    tensors: by our names. pairs: {part of a name: number of attention heads} of tensors whose neighbouring rows turn
    together in the file.
    """

    where: str
    tensors: Mapping[str, StoredTensor]
    pairs: Mapping[str, int] = attrs.field(factory=dict)

    def names(self) -> Iterable[str]:
        return self.tensors

    def shape(self, name: str) -> tuple[int, ...] | None:
        return self.tensors[name].shape if name in self.tensors else None

    def type(self, name: str) -> str:
        """Storage type of ``blocks``, by GGUF's names."""
        stored = self.tensors[name].type
        return "F32" if stored == "F64" else stored

    def load(self, name: str) -> Tensor:
        value = self.tensors[name].load()
        if not value.is_floating_point() or value.itemsize < 2:
            raise UsageError(
                f"{self.where}: tensor {name!r} is {str(value.dtype).removeprefix('torch.')}, which is not supported",
                hint="use a head with weights of float32, bfloat16 or float16",
            )
        return self._halves(name, value)

    def blocks(self, name: str) -> Tensor:
        """Rows as stored: blocks lie within a row, so rows can be reordered."""
        return self._halves(name, self.tensors[name].blocks())

    def _halves(self, name: str, rows: Tensor) -> Tensor:
        heads = next((count for part, count in self.pairs.items() if part in name), 0)
        return halves(rows, heads) if heads else rows

    def d2t(self) -> Tensor | None:
        """The stored mapping from rows of logits to tokens. Raises UsageError for what can be none."""
        if (stored := self.tensors.get("d2t")) is None:
            return None
        if (numbers := stored.whole_numbers()) is None:
            raise UsageError(f"{self.where}: 'd2t' is {stored.type} {list(stored.shape)}", hint="get the file again")
        return numbers


def mapping(d2t: Tensor | None, rows: int, vocab: int, offsets: bool, where: str) -> Tensor | None:
    """[rows] int64: the target's id of every draft row; None if rows are the target's ids. Raises UsageError.

    offsets: stored values are distances from the row's own number (Hugging Face layouts), not ids (GGUF).
    """
    if d2t is None:
        if rows != vocab:
            raise UsageError(
                f"{where}: its logits have {rows} rows for {vocab} tokens and 'd2t' is missing",
                hint="it maps rows to tokens; get the file again",
            )
        return None
    if tuple(d2t.shape) != (rows,) or d2t.dtype not in WHOLE:
        raise UsageError(
            f"{where}: 'd2t' is {str(d2t.dtype).removeprefix('torch.')} {list(d2t.shape)}, "
            f"a whole number for each of {rows} rows was needed",
            hint="get the file again",
        )
    ids = d2t.to(torch.int64) + (torch.arange(rows) if offsets else 0)
    _check_ids(ids, vocab, where)
    return None if rows == vocab and torch.equal(ids, torch.arange(rows)) else ids.clone()


def _check_ids(ids: Tensor, vocab: int, where: str) -> None:
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab:
        raise UsageError(
            f"{where}: 'd2t' maps to token {low if low < 0 else high}, the vocabulary is 0 to {vocab - 1}",
            hint="the file is damaged, or for another model; get it again",
        )
    if len(ids.unique()) != len(ids):
        raise UsageError(f"{where}: 'd2t' maps two rows to one token", hint="the file is damaged; get it again")


def halves(rows: Tensor, heads: int) -> Tensor:
    """Rows 2i and 2i + 1 of an attention head become rows i and i + d/2: undoes llama.cpp's order."""
    return rows.view(heads, -1, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)
