"""Tensors of heads by one set of names, whatever the format of their files: GGUF's names where they exist.

The norm before ``fc`` is ``input_norm.weight`` over all hidden states together or ``input_norm.I.weight`` for each;
``hidden_norm.weight`` stands after ``fc`` (dflash). ``blk.0.attn_norm.weight`` norms the token's embedding and
``blk.0.attn_norm_2.weight`` the feature (eagle3). Rows of q and k are ordered so that halves of a head turn together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import attrs
import torch
from torch import Tensor

from spec_core.errors import UsageError

DAMAGED = "its configuration and its tensors do not belong together; get both from one publication"
UNMAPPED = "its map of tokens is not of this head; use a file whose d2t is"
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


@attrs.frozen
class StoredRows:
    """Some rows of a stored tensor."""

    whole: StoredTensor
    first: int
    count: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count, *self.whole.shape[1:])

    @property
    def type(self) -> str:
        return self.whole.type

    def load(self) -> Tensor:
        """See ``StoredTensor``."""
        return self.whole.load()[self.first : self.first + self.count]

    def blocks(self) -> Tensor:
        """See ``StoredTensor``."""
        return self.whole.blocks()[self.first : self.first + self.count]

    def whole_numbers(self) -> Tensor | None:
        """See ``StoredTensor``."""
        return None


@attrs.define(eq=False)
class HeadTensors:
    """Tensors of a file under our names, whatever its format.

    tensors: by our names. pairs: {part of a name: number of attention heads} of tensors whose neighbouring rows turn
    together in the file. added: to the weights of norms, which some trainers store without 1.
    """

    where: str
    tensors: Mapping[str, StoredTensor]
    pairs: Mapping[str, int] = attrs.field(factory=dict)
    added: float = 0.0

    def names(self) -> Iterable[str]:
        return self.tensors

    def split_fused(self, keys: int) -> None:
        """Take q, k and v of layers that store them as one tensor apart. keys: rows of k, and of v."""
        tensors = dict(self.tensors)
        for name in [name for name in tensors if ".attn_qkv." in name]:
            whole = tensors.pop(name)
            queries = (whole.shape[0] if whole.shape else 0) - 2 * keys
            if queries < 1:
                fact = f"{self.where}: tensor {name!r} has shape {list(whole.shape)}, q and 2 x {keys} rows were needed"
                raise UsageError(fact, hint=DAMAGED)
            if name.replace("attn_qkv.", "attn_q.") in tensors:
                fact = f"{self.where}: queries are in {name!r} and in a tensor of their own, one was needed"
                raise UsageError(fact, hint="use another head")
            firsts = {"q": (0, queries), "k": (queries, keys), "v": (queries + keys, keys)}
            for part, (first, count) in firsts.items():
                tensors[name.replace("attn_qkv.", f"attn_{part}.")] = StoredRows(whole, first, count)
        self.tensors = tensors

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
        if self.added and name.endswith("norm.weight"):
            value = value.float() + self.added
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
            raise UsageError(f"{self.where}: 'd2t' is {stored.type} {list(stored.shape)}", hint=UNMAPPED)
        return numbers


def mapping(
    tensors: HeadTensors, rows: int, vocab: int, offsets: bool, repair: bool = True
) -> tuple[Tensor | None, str | None]:
    """[rows] int64: the target's id of every draft row, None if rows are the target's ids; and what was repaired.

    offsets: stored values are distances from the row's own number (Hugging Face layouts), not ids (GGUF). Values that
    are impossible so and possible in the other way are read in the other way, if ``repair``. Without ``d2t``, the
    tokens that ``t2d`` marks are taken in their order. vocab: 0: not known. Raises UsageError.
    """
    d2t, where = tensors.d2t(), tensors.where
    if d2t is None:
        return _by_marks(tensors, rows, vocab)
    if tuple(d2t.shape) != (rows,) or d2t.dtype not in WHOLE:
        raise UsageError(
            f"{where}: 'd2t' is {str(d2t.dtype).removeprefix('torch.')} {list(d2t.shape)}, "
            f"a whole number for each of {rows} rows was needed",
            hint=UNMAPPED,
        )
    stated, other = ((d2t.to(torch.int64) + (torch.arange(rows) if add else 0)) for add in (offsets, not offsets))
    problem, note = _problem_of(stated, vocab), None
    if problem and repair and not _problem_of(other, vocab):
        stated, note = other, f"d2t holds {'tokens' if offsets else 'offsets'}: read so"
    elif problem:
        raise UsageError(f"{where}: {problem}", hint=UNMAPPED)
    return (None if rows == vocab and torch.equal(stated, torch.arange(rows)) else stated.clone()), note


def _by_marks(tensors: HeadTensors, rows: int, vocab: int) -> tuple[Tensor | None, str | None]:
    """The mapping of a head without ``d2t``."""
    if rows == vocab or not vocab:
        return None, None
    marks = tensors.tensors["t2d"].whole_numbers() if "t2d" in tensors.tensors else None
    tokens = None if marks is None else marks.to(torch.int64).nonzero().flatten()
    if tokens is None or len(tokens) != rows or len(marks if marks is not None else ()) != vocab:
        raise UsageError(
            f"{tensors.where}: its logits have {rows} rows for {vocab} tokens and 'd2t' is missing",
            hint="it maps rows to tokens; use a file that has it",
        )
    return tokens, "d2t is missing: rows are the tokens that t2d marks"


def _problem_of(ids: Tensor, vocab: int) -> str | None:
    """Why numbers are not tokens of different rows; None if they are."""
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or (vocab and high >= vocab):
        return f"'d2t' maps to token {low if low < 0 else high}, the vocabulary is 0 to {vocab - 1}"
    return None if len(ids.unique()) == len(ids) else "'d2t' maps two rows to one token"


def stated_number(stated: Mapping[str, Any], key: str, where: str) -> float:
    """A positive number of a config. Raises UsageError for anything else."""
    value = stated.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise UsageError(f"{where}: {key} is {repr(value)[:40]}, a positive number was needed", hint=DAMAGED)
    return float(value)


def halves(rows: Tensor, heads: int) -> Tensor:
    """Rows 2i and 2i + 1 of an attention head become rows i and i + d/2: undoes llama.cpp's order."""
    return rows.view(heads, -1, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)
