"""The Target protocol: what the core asks of a model."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from spec_core.sequence import Sequence
from spec_core.values import Batch, Checked, Needs, TargetInfo


class Tokenizer(Protocol):
    """Text to token ids and back. ``spec_core`` itself never needs one: prompts may be token ids."""

    vocab_size: int
    eog: frozenset[int]
    bos: int | None
    identity: str
    chat_template: str | None

    def encode(self, text: str, *, special: bool = False, bos: bool = True) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...

    def stream(self) -> Any:
        """A fresh incremental decoder: ``put(id) -> str`` and ``end() -> str``, never splitting a character."""

    def token_bytes(self, token: int) -> bytes:
        """Exact bytes of one token; empty for a control token."""


@runtime_checkable
class Target(Protocol):
    """A model that checks drafts. It is registered as a plugin too and owns ``"attention"``.

    Memory of a sequence is ``seq.slot.state``; only the target reads or writes it.
    """

    info: TargetInfo
    tokenizer: Tokenizer | None

    def forward(self, batch: Batch, needs: Needs) -> Checked:
        """One pass over the rows of all parts.

        A part's pending rows are certain and stand at positions ``part.start`` ...; rows the slot holds at or after
        ``part.start`` are void and overwritten. Draft row j follows its parent; attention state is kept for all
        rows in batch order until ``rollback``; recurrent state is committed after the last *pending* row and traced
        for draft rows as ``needs.trace`` says.
        """

    def tensor(self, name: str) -> Tensor:
        """A weight by its GGUF name (``token_embd.weight``, ``output.weight``, ``blk.3.attn_q.weight``).

        Raises KeyError when the model has none of that name.
        """

    def open(self, seq: Sequence, want: int) -> int:
        """Make ``seq.slot`` ready to continue at position ``want``; returns the position it really can, <= want.

        A slot without state gets some here. Raises SpecError when there is no memory for it.
        """

    def close(self, seq: Sequence) -> None:
        """Give back the memory of ``seq.slot``: called when a slot is dropped, not when a request ends."""

    def checkpoint(self, seq: Sequence) -> Any:
        """The recurrent state after ``seq.evaluated`` positions, as an object; None where nothing is recurrent."""

    def restore(self, seq: Sequence, position: int) -> None:
        """Put back the state of ``seq.slot.checkpoints[position]``."""
