"""The Target protocol: what the core asks of a model."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from spec_core.contract.batch import Batch, TargetOutput
from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Needs, TargetInfo


class TextStream(Protocol):
    """Text of one token after the other."""

    def put(self, token: int) -> str:
        """The text that became certain with this token: whole characters only, "" while one is incomplete."""

    def end(self) -> str:
        """The text still held back; bytes that are no character become replacement characters."""


class Tokenizer(Protocol):
    """Text to token ids and back. Part of the contract: other plugins read all of it, and nothing else.

    ``spec_core`` itself runs without one: prompts may be token ids, and ``target.tokenizer`` None.

    vocab_size: tokens that have an id, 0 ... vocab_size - 1; at most ``info.vocab``, a file may have padded rows.
    eog: ids that end a text; also ``info.eog``. bos: the id a text begins with, or None.
    identity: equal identities mean that equal ids are equal tokens; also ``info.vocab_id``.
    chat_template: the template of messages, or None. Where there is one, ``encode_chat(messages) -> list[int]`` puts
    messages, each with "role" and "content", through it, and there may be ``render(messages) -> str``, the text of it.
    """

    vocab_size: int
    eog: frozenset[int]
    bos: int | None
    identity: str
    chat_template: str | None

    def encode(self, text: str, *, special: bool = False, bos: bool = True) -> list[int]:
        """Ids of a text. special: control tokens written in it are meant as such. bos: begin with it, if there is one.

        Raises UsageError for a text that cannot be encoded.
        """

    def decode(self, ids: list[int]) -> str:
        """Text of the ids; control tokens have none, bytes that are no character become replacement characters."""

    def stream(self) -> TextStream:
        """A fresh incremental decoder: its pieces together are what ``decode`` gives."""

    def token_bytes(self, token: int) -> bytes:
        """Exact bytes of one token; empty for a control token."""


@runtime_checkable
class Target(Protocol):
    """A model that checks drafts. It is registered as a plugin too and owns ``"attention"``, if it keeps rows.

    Memory of a sequence is ``seq.slot.state``; only the target, and the owner of a kind of state, reads or writes it.
    Several runs may use it in threads of their own: its methods are called at once, for different slots.
    tokenizer: see Tokenizer; None where prompts are token ids alone.
    """

    info: TargetInfo
    tokenizer: Tokenizer | None

    def forward(self, batch: Batch, needs: Needs) -> TargetOutput:
        """One pass over the rows of all parts.

        A part's pending rows are committed and stand at positions ``part.start`` ...; rows that the slot holds at or
        after ``part.start`` are no longer valid and are overwritten. Draft row j follows its parent; attention state is
        kept for all rows in batch order until ``rollback``; recurrent state is committed after the last *pending* row
        and traced for draft rows as ``needs.trace`` says.
        """

    def tensor(self, name: str) -> Tensor:
        """A weight by its GGUF name (``token_embd.weight``, ``output.weight``, ``blk.3.attn_q.weight``).

        Raises KeyError when the model has none of that name. ``output.weight`` is the embedding where both are one.
        """

    def open(self, seq: Sequence, want: int) -> int:
        """Make ``seq.slot`` ready to continue at position ``want``; returns the position at which it can, <= want.

        A slot without state gets some here. Raises SpecError when there is no memory for it.
        """

    def close(self, seq: Sequence) -> None:
        """Give back the memory of ``seq.slot``: called when a slot is dropped, not when a request ends.

        Of a run that is dropped, the slots are closed in whichever thread finds it, by a sequence that has the slot and
        nothing else; by a thread that is inside of a run, afterwards.
        """

    def checkpoint(self, seq: Sequence) -> Any:
        """The recurrent state after ``seq.evaluated`` positions, as an object; None where nothing is recurrent."""

    def restore(self, seq: Sequence, position: int) -> None:
        """Put back the state of ``seq.slot.checkpoints[position]``."""


TOKENIZER = ("vocab_size", "eog", "bos", "identity", "chat_template", "encode", "decode", "stream", "token_bytes")
TARGET = ("info", "tokenizer", "forward", "tensor", "open", "close", "checkpoint", "restore")


def lacking(target: Any) -> str | None:
    """What a target, or its tokenizer, lacks of the protocol, in words; None if nothing."""
    if gone := [name for name in TARGET if not hasattr(target, name)]:
        return f"{type(target).__name__} has no {', '.join(gone)}: a Target is needed"
    words = target.tokenizer
    if words is not None and (gone := [name for name in TOKENIZER if not hasattr(words, name)]):
        return f"its tokenizer {type(words).__name__} has no {', '.join(gone)}"
    return None
