"""Drafts of fixed width for requests of SGLang: what each committed, and the chain for its next step.

Knows nothing of SGLang. Every request gets the same number of rows: the last committed token, the draft, and filler
after it, which SGLang may accept as it would a draft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import attrs
import numpy as np
from torch import Tensor

from spec_core import Request
from spec_engines.hosted.requests import Requests, Share

FILLER = 0
"""The token after a draft that is shorter than the width."""


@attrs.frozen(eq=False)
class Text:
    """A running request: its committed tokens. rows: logits [n, V] of its last step, None without any.

    request: makes the Request of a prompt.
    """

    tokens: list[int]
    request: Callable[[list[int]], Request]
    rows: Tensor | None = None


@attrs.define(eq=False)
class Chains:
    """The running requests. width: rows of a request in a step.

    known: how many tokens of each are known to the host. drafts: of the last step.
    """

    requests: Requests
    width: int
    known: dict[str, int] = attrs.field(factory=dict)
    drafts: dict[str, list[int]] = attrs.field(factory=dict)

    def step(self, texts: Mapping[str, Text], context: int) -> np.ndarray:
        """Rows [requests, width] of the next step: a request's last token, its draft, and filler.

        context: of the model; near its end nothing is drafted.
        """
        self._end(texts)
        drafts: dict[str, list[int]] = {}
        pieces = {key: self._pieces(key, text) for key, text in texts.items()}
        longest = max((len(text.tokens) for text in texts.values()), default=0)
        room = self.width - 1 if longest + self.width <= context else 0
        while shares := [of.pop(0) for of in pieces.values() if of]:
            drafts |= self.requests.step(shares, lambda key: self._request(texts[key]), room)
            left = {share.key for share in shares if pieces[share.key]}
            drafts = {key: draft for key, draft in drafts.items() if key not in left}
        self.drafts = drafts
        self.known = {key: len(text.tokens) for key, text in texts.items()}
        return self._rows(texts)

    def reset(self) -> None:
        """Forget all requests."""
        self._end({})

    def _end(self, texts: Mapping[str, Text]) -> None:
        ended = [key for key in self.known if key not in texts]
        self.requests.end(ended)
        for key in ended:
            del self.known[key]

    def _request(self, text: Text) -> Request:
        """A request begins with all tokens but the last, which the first step commits."""
        return text.request(text.tokens[:-1])

    def _pieces(self, key: str, text: Text) -> list[Share]:
        """What a request committed since the last step; a filler token that was accepted is a step of its own."""
        known = self.known.get(key)
        if known is None:
            row = None if text.rows is None else text.rows[:1]
            return [Share(key, 0, len(text.tokens) - 1, tokens=(text.tokens[-1],), logits=row)]
        new, draft = text.tokens[known:], self.drafts.get(key, [])
        accepted = _common(new[:-1], draft)
        cuts = [0, *range(accepted + 1, len(new) + 1)]
        return [self._piece(key, text, known, a, b, draft) for a, b in pairwise(cuts)]

    def _piece(self, key: str, text: Text, known: int, a: int, b: int, draft: list[int]) -> Share:
        """Committed tokens [a, b) of a step; the draft was checked with the first of them."""
        checked = 0 if a else len(draft)
        rows = None if text.rows is None else text.rows[a : a + 1 + checked]
        start = known - 1 + a
        return Share(key, start, 1 + checked, checked, tuple(text.tokens[known + a : known + b]), rows)

    def _rows(self, texts: Mapping[str, Text]) -> np.ndarray:
        rows = np.full((len(texts), self.width), FILLER, dtype=np.int64)
        for row, (key, text) in zip(rows, texts.items(), strict=True):
            chain = [text.tokens[-1], *self.drafts.get(key, [])]
            row[: len(chain)] = chain
        return rows


def _common(tokens: Sequence[int], draft: Sequence[int]) -> int:
    """Number of first tokens that are a draft's."""
    return next(
        (i for i, (a, b) in enumerate(zip(tokens, draft, strict=False)) if a != b), min(len(tokens), len(draft))
    )
