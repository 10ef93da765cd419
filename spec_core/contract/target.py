"""The Target protocol: the methods that the core calls on a model."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from spec_core.contract.batch import Batch, TargetOutput
from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Needs, TargetInfo


class TextStream(Protocol):
    """An incremental decoder: text from one token after the other."""

    def put(self, token: int) -> str:
        """The text that this token completes: whole characters only, "" while a character is incomplete."""

    def end(self) -> str:
        """The remaining text; invalid bytes become replacement characters."""


class Tokenizer(Protocol):
    """Text to token ids and back. Part of the contract: plugins may use everything below, and nothing else.

    ``target.tokenizer`` may be None: then prompts must be token ids.

    vocab_size: ids are 0 ... vocab_size - 1; at most ``info.vocab``, as a file may have padded rows.
    eog: ids that end a text; also ``info.eog``. bos: the id a text begins with, or None.
    identity: tokenizers with equal identities have the same tokens for the same ids; also ``info.vocab_id``.
    chat_template: the template of messages, or None. If there is one, ``encode_chat(messages) -> list[int]`` applies
    it to messages, each with "role" and "content"; there may be ``render(messages) -> str`` too, the text of them.

    A vocabulary that treats the beginning of a text in its own way, as SentencePiece's with their space before it, also
    has ``encode_part(text, *, special=False) -> list[int]`` and ``stream_part() -> TextStream``: ids, and a decoder, of
    a part that follows other text. ``spec_core.toolkit`` has ``encode_part``, ``encode_after``, ``stream_after`` and
    ``decode_after``, which call them where they exist.
    """

    vocab_size: int
    eog: frozenset[int]
    bos: int | None
    identity: str
    chat_template: str | None

    def encode(self, text: str, *, special: bool = False, bos: bool = True) -> list[int]:
        """Ids of a text. special: parse control tokens in the text. bos: begin with the bos id, if there is one.

        Raises UsageError for a text that cannot be encoded.
        """

    def decode(self, ids: list[int]) -> str:
        """Text of the ids; control tokens give no text, invalid bytes become replacement characters."""

    def stream(self) -> TextStream:
        """A new incremental decoder; its pieces joined equal ``decode``."""

    def token_bytes(self, token: int) -> bytes:
        """Exact bytes of one token; empty for a control token."""


@runtime_checkable
class Target(Protocol):
    """The model that verifies drafts. It is also registered as a plugin and owns ``"attention"`` if it has a KV cache.

    The memory of a sequence is ``seq.slot.state``; only the target and the owner of a kind of state read or write it.
    Several runs may use a target in different threads: its methods may run at the same time for different slots.
    """

    info: TargetInfo

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Text to token ids and back; None if prompts must be token ids."""

    def forward(self, batch: Batch, needs: Needs) -> TargetOutput:
        """One pass over the rows of all parts.

        A part's pending rows are committed and have positions ``part.start`` ...; rows that the slot holds at or
        after ``part.start`` are no longer valid and are overwritten. Draft row j follows its parent; attention state is
        kept for all rows in batch order until ``rollback``; recurrent state is committed after the last *pending* row
        and recorded for draft rows as ``needs.trace`` says.

        Raises SequencesFailed, before it computes anything, for sequences that it cannot evaluate, such as those whose
        memory cannot grow: they end, and the others are evaluated in the next step. After any other error all
        sequences of the step end.
        """

    def tensor(self, name: str) -> Tensor:
        """A weight by its GGUF name (``token_embd.weight``, ``output.weight``, ``blk.3.attn_q.weight``).

        Raises KeyError if the model has no such tensor. ``output.weight`` is the embedding if the model ties them.
        """

    def open(self, seq: Sequence, want: int) -> int:
        """Prepare ``seq.slot`` to continue at position ``want``; returns the position at which it can, <= want.

        Allocates the state of a slot that has none, and may set ``seq.slot.reserved``. Raises SpecError if there is not
        enough memory.
        """

    def close(self, seq: Sequence) -> None:
        """Free the memory of ``seq.slot``: called when a slot is dropped, not when a request ends.

        The slots of a garbage collected run are closed in whichever thread collects it, with a sequence that has only
        the slot. If that thread is inside a run, they are closed after its call.
        """

    # A target may also have ``copy(seq, source: Slot, want: int) -> int``: ``seq.slot``, which is new, continues at
    # position ``want`` with copies of the rows of ``source``, which may be in use; returns as ``open``. Checkpoints of
    # ``source`` up to there are put into ``seq.slot.checkpoints``. Without it a prefix has one sequence at a time.

    def checkpoint(self, seq: Sequence) -> Any:
        """The recurrent state after ``seq.evaluated`` positions, as an object; None if the model has none."""

    def restore(self, seq: Sequence, position: int) -> None:
        """Restore the state of ``seq.slot.checkpoints[position]``."""


TOKENIZER = ("vocab_size", "eog", "bos", "identity", "chat_template", "encode", "decode", "stream", "token_bytes")
TARGET = ("info", "tokenizer", "forward", "tensor", "open", "close", "checkpoint", "restore")


def lacking_protocol(target: Any) -> str | None:
    """A sentence that names what a target, or its tokenizer, lacks of the protocol; None if nothing."""
    if gone := [name for name in TARGET if not hasattr(target, name)]:
        return f"{type(target).__name__} has no {', '.join(gone)}: a Target is needed"
    words = target.tokenizer
    if words is not None and (gone := [name for name in TOKENIZER if not hasattr(words, name)]):
        return f"its tokenizer {type(words).__name__} has no {', '.join(gone)}"
    return None
