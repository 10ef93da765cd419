"""Two vocabularies: whether they are equal, and which tokens of two different ones have the same text."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import attrs
import torch
from torch import Tensor
from torch.nn.functional import pad

from spec_core import Target, Tokenizer
from spec_core.toolkit import encode_part


@attrs.define(eq=False)
class Same:
    """One vocabulary for both models: no translation."""

    def to_draft(self, tokens: list[int]) -> list[int]:
        return tokens

    def whole_to_draft(self, tokens: list[int]) -> list[int]:
        return tokens

    def rows(self, logits: Tensor) -> Tensor:
        """Logits over the target's vocabulary."""
        return logits


@attrs.define(eq=False)
class Padded(Same):
    """One vocabulary, and embeddings of different heights: ids beyond the lower one are padding and never drafted.

    vocab: rows of the target's. own: rows of the draft model's.
    """

    vocab: int
    own: int

    def whole_to_draft(self, tokens: list[int]) -> list[int]:
        """Tokens for the draft model; none for a text with a padding token that it has no row for."""
        return tokens if max(tokens) < self.own else []

    def cut_padding(self, tokens: list[int]) -> list[int]:
        """The beginning of a draft that the target has rows for."""
        return tokens[: next((i for i, token in enumerate(tokens) if token >= self.vocab), len(tokens))]

    def rows(self, logits: Tensor) -> Tensor:
        """[n, V draft] -> [n, V target], -inf for ids that the draft model does not have."""
        return pad(logits[:, : self.vocab], (0, max(0, self.vocab - logits.shape[1])), value=-torch.inf)


@attrs.define(eq=False)
class Translated:
    """Tokens with equal bytes are shared; other target tokens are encoded again by the draft model's tokenizer.

    A token that only the draft model has is never proposed: its logit is dropped, and the rest are renormalised.
    """

    spelled: list[list[int]]
    shared: Tensor
    draft_ids: Tensor
    vocab: int
    begins: Callable[[int], list[int]]

    def to_draft(self, tokens: list[int]) -> list[int]:
        """A part of a text."""
        return [d for t in tokens for d in self.spelled[t]]

    def whole_to_draft(self, tokens: list[int]) -> list[int]:
        """A whole text: it begins as the draft model's texts do."""
        first = next((i for i, t in enumerate(tokens) if self.spelled[t]), None)
        if first is None:
            return []
        return [*self.begins(tokens[first]), *self.to_draft(tokens[first + 1 :])]

    def rows(self, logits: Tensor) -> Tensor:
        """[n, V draft] -> [n, V target], -inf for tokens without a counterpart."""
        out = torch.full((len(logits), self.vocab), -torch.inf, dtype=logits.dtype, device=logits.device)
        out[:, self.shared] = logits[:, self.draft_ids]
        return out


def same_words(target: Target, draft: Target) -> bool:
    """Whether equal ids are equal tokens. Without a tokenizer the number of tokens is all that is known."""
    named = target.info.vocab_id != "" or target.info.vocab == draft.info.vocab
    return named and target.info.vocab_id == draft.info.vocab_id


def shared_words(target: Target, draft: Target) -> Same:
    """Translation between models with the same words: only padding may differ."""
    return Same() if target.info.vocab == draft.info.vocab else Padded(target.info.vocab, draft.info.vocab)


def difference(own: Tokenizer, other: Tokenizer) -> str:
    """The first difference between two vocabularies, in words."""
    for i in range(min(own.vocab_size, other.vocab_size)):
        here, there = own.token_bytes(i), other.token_bytes(i)
        if here != there:
            return f"token {i} is {describe_text(here)} here and {describe_text(there)} there"
    if own.vocab_size != other.vocab_size:
        return f"{own.vocab_size} tokens here and {other.vocab_size} there"
    return "control tokens differ"


def describe_text(text: bytes) -> str:
    """A token's text for a message; control tokens have none."""
    return repr(text.decode("utf-8", "backslashreplace")) if text else "without a text"


def translation(target: Target, draft: Target) -> Translated:
    """Match tokens by their bytes; if several have the same bytes, the lowest id is used."""
    theirs: dict[bytes, int] = {}
    for i in reversed(range(draft.info.vocab)):
        if text := draft.tokenizer.token_bytes(i):
            theirs[text] = i
    texts = [target.tokenizer.token_bytes(i) for i in range(target.info.vocab)]
    pairs = [(i, theirs[text]) for i, text in enumerate(texts) if text and text in theirs]
    spelled = [[theirs[text]] if text in theirs else _spell(draft, text) for text in texts]
    shared, draft_ids = (torch.tensor(side) for side in zip(*pairs, strict=True))
    return Translated(spelled, shared, draft_ids, target.info.vocab, cache(partial(_begin, target, draft, spelled)))


def _spell(draft: Target, text: bytes) -> list[int]:
    return encode_part(draft.tokenizer, text.decode("utf-8", errors="replace"))


def _begin(target: Target, draft: Target, spelled: list[list[int]], token: int) -> list[int]:
    """Ids of a text that begins with the token, the draft model's beginning token included."""
    text = target.tokenizer.decode([token])
    if "\ufffd" in text:  # a part of a character
        return [*draft.tokenizer.encode(""), *spelled[token]]
    return draft.tokenizer.encode(text)
