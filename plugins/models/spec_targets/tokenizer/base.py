"""One tokenizer for all files, on the ``tokenizers`` package."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from threading import Lock
from typing import Any

import tokenizers

from spec_core.errors import UsageError
from spec_targets.tokenizer.control_names import ControlNames
from spec_targets.tokenizer.hostile import refuse_failures
from spec_targets.tokenizer.prefix import Steps
from spec_targets.tokenizer.stream import ByteStream

END_TEXTS = frozenset(
    (
        "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> "
        "<|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response> "
        "<｜end▁of▁sentence｜> [e~[ <start_function_response>"
    ).split()
)
"""Texts of tokens that end a generation, in every file."""


def _byte_alphabet() -> dict[str, int]:
    """The printable characters of byte-level vocabularies, mapped to their bytes (GPT-2)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


BYTE_OF = _byte_alphabet()
SPECIAL = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
"""Special tokens that templates can name."""
LONG = 4096
"""Characters of a text that is encoded by the call that lets other threads run meanwhile."""
KEPT = 4096
"""Tokens whose bytes are kept: a text repeats its tokens, and reading a piece of a mapped file takes microseconds."""


class Tokenizer:
    """Text to ids and back.

    backend: of the ``tokenizers`` package, or a function that makes it when a text is encoded first.
    pieces: the text of each token in the file, in memory or mapped; texts: the same in memory, if the caller has them;
    not kept. control: ids without text. fim: ids for fill-in-the-middle that the file names, by llama.cpp's short
    names of them. spm: pieces are SentencePiece's (``▁`` is a space, ``<0xNN>`` a byte),
    else byte-level. strip_space: decoding drops the space that a text begins with. part: how a part of a text is
    prepared, if a whole text gets a space. names: texts of special tokens as templates name them (``bos_token``).
    wants_parts: the template reads lists of parts alone, no texts.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer | Callable[[], tokenizers.Tokenizer],
        pieces: Sequence[str],
        texts: Sequence[str] | None = None,
        *,
        control: frozenset[int],
        plain: frozenset[int] = frozenset(),
        special_ids: Mapping[str, int | None],
        ends: frozenset[int] = frozenset(),
        add_bos: bool = False,
        spm: bool = False,
        strip_space: bool = False,
        steps: Steps | None = None,
        names: Mapping[str, str] | None = None,
        chat_template: str | None = None,
    ) -> None:
        self._make_backend = backend if callable(backend) else lambda: backend
        self._backend: tokenizers.Tokenizer | None = None
        self._part = steps
        self._encoding, self._building = Lock(), Lock()
        self.pieces = pieces
        self.control = control
        self.vocab_size = len(pieces)
        self.bos = special_ids.get("bos")
        self.eos = special_ids.get("eos")
        self.add_bos = add_bos and self.bos is not None
        texts = list(pieces) if texts is None else texts
        self.eog = _end_ids(
            texts, ends | {i for i in (self.eos, special_ids.get("eot"), special_ids.get("eom")) if i is not None}
        )
        self.strip_space = strip_space
        self.fim: Mapping[str, int] = {}
        self.gguf_keys: Mapping[str, Any] = {}  # of the file that it was made from
        self.chat_template = chat_template
        self.names = dict(names or {})
        self.wants_parts = False
        self._bytes = lru_cache(KEPT)(partial(_bytes, pieces, control, plain, spm))
        self.identity = _identity(texts)

    @cached_property
    def backend(self) -> tokenizers.Tokenizer:
        """The tokenizer of the ``tokenizers`` package. Raises UsageError if it cannot be built."""
        with self._building:
            if self._backend is None:
                self._backend = self._make_backend()
                del self._make_backend  # with what it was built from
            return self._backend

    def encode(self, text: str, *, special: bool = False, bos: bool = True) -> list[int]:
        """Token ids. special: parse control tokens in the text; bos: add the bos token if the file says so."""
        ids = self._ids(text, special)
        return [self.bos, *ids] if bos and self.add_bos else ids

    def encode_part(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text that follows other text: without a space before it, and without the bos token."""
        return self._ids(text, special, self._part)

    def _ids(self, text: str, special: bool, steps: Steps | None = None) -> list[int]:
        with self._encoding:  # the backend has one flag, and one set of steps, for all threads
            self.backend.encode_special_tokens = not special
            if steps is None:
                return self._backend_ids(text)
            whole = self._whole
            steps.put_into(self.backend)
            try:
                return self._backend_ids(text)
            finally:
                whole.put_into(self.backend)

    def _backend_ids(self, text: str) -> list[int]:
        with refuse_failures("the text cannot be tokenized", "give text of valid characters"):
            if len(text) < LONG:
                return self.backend.encode(text, add_special_tokens=False).ids
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # one text needs no threads
            return self.backend.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the tokens; control tokens give none, invalid bytes become replacement characters."""
        stream = self.stream()
        return "".join([*(stream.put(i) for i in ids), stream.end()])

    def stream(self) -> ByteStream:
        """A new incremental decoder."""
        return ByteStream(self._bytes, self.strip_space)

    def stream_part(self) -> ByteStream:
        """A new incremental decoder of a text that follows other text: its first space is kept."""
        return ByteStream(self._bytes)

    def token_bytes(self, token: int) -> bytes:
        """Exact bytes of one token; empty for a control token."""
        return self._bytes(token)

    def render(self, messages: Sequence[Mapping[str, Any]], **keywords: Any) -> str:
        """Messages formatted with the model's chat template. Raises UsageError if it has none."""
        if self.chat_template is None:
            raise UsageError("this model has no chat template", hint="give the prompt as text (-p) instead of messages")
        from spec_targets.tokenizer.templates.chat import render_chat  # only if used

        messages = [as_parts(message) for message in messages] if self.wants_parts else messages
        return render_chat(self.chat_template, messages, special=self.names, **keywords)

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], expand: Callable[[str], str] = str, **keywords: Any
    ) -> list[int]:
        """Token ids of rendered messages, without a bos token but the template's own: its control tokens are parsed,
        and names of control tokens in the messages are text.

        expand: changes the parts of the prompt with the template's control tokens, in their order.
        """
        (messages, keywords), marks = self._control_names.mark((list(messages), keywords))
        prompt = self.render(messages, **keywords)
        if marks is None:
            return self._ids(expand(prompt), special=True)
        ids: list[int] = []
        for piece in self._control_names.pieces(prompt, marks):
            part = ids and not piece.control and not self._restarts
            text = expand(piece.text) if piece.control else piece.text
            ids += self._ids(text, piece.control, self._part if part else None)
        return ids

    @cached_property
    def _whole(self) -> Steps:
        return Steps.of(self.backend)

    @cached_property
    def _control_names(self) -> ControlNames:
        added = {token.content: token for token in self.backend.get_added_tokens_decoder().values()}
        names = frozenset(name for i in self.control if (name := self.pieces[i]) in added)
        before = frozenset(name for name in names if added[name].lstrip)
        return ControlNames(names, before, frozenset(name for name in names if added[name].rstrip))

    @cached_property
    def _restarts(self) -> bool:
        """Whether a text after a control token begins like a whole text."""
        name = min(self._control_names.names)
        return self._ids(f"{name}a", special=True)[1:] == self._ids("a", special=False)


def as_parts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message whose text is a list of one part, for templates of models with pictures."""
    content = message.get("content")
    return {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message


def _bytes(pieces: Sequence[str], control: frozenset[int], plain: frozenset[int], spm: bool, token: int) -> bytes:
    if token in control or not 0 <= token < len(pieces):
        return b""
    piece = pieces[token]
    if token in plain:
        return piece.encode("utf-8", "replace")
    if spm:
        return _spm_bytes(piece)
    try:
        return bytes(map(BYTE_OF.__getitem__, piece))
    except KeyError:  # a character that stands for no byte
        return piece.encode("utf-8", "replace")


def _spm_bytes(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        try:
            return bytes([int(piece[3:5], 16)])
        except ValueError:
            pass
    return piece.replace("▁", " ").encode("utf-8", "replace")


def _identity(texts: Sequence[str]) -> str:
    """Hash of the tokens without padding at the end, which only fills up the rows of an embedding."""
    count = len(texts)
    while count and texts[count - 1] == f"[PAD{count - 1}]":
        count -= 1
    return hashlib.sha256("\0".join(texts[:count]).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _end_ids(pieces: Sequence[str], known: frozenset[int]) -> frozenset[int]:
    """Ids that end a generation: the file names them, or they have a known text."""
    texts = {text: i for i, text in enumerate(pieces) if text in END_TEXTS}
    if "<|tool_response>" in texts:
        texts.pop("</s>", None)  # in Gemma 4's vocabulary a tag of HTML
    ends = known | set(texts.values())
    if ("<|return|>" in texts and "<|call|>" in texts) or (
        "<|flush|>" in texts and {"<|call|>", "<|calls|>"} & set(texts)
    ):
        ends -= {texts["<|end|>"]} if "<|end|>" in texts else set()
    return frozenset(ends)
