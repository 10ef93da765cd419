"""Log-probabilities of a prompt: a text that a constraint holds to the prompt itself.

The text generated after the first token of the prompt is the rest of the prompt, token by token, with the
log-probabilities of the model's own rows. The method ``forced`` drafts it, where the server has it, so that several
tokens are evaluated at once. A token that ends a text ends such a text too, and another one goes on after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import attrs
import numpy as np

from spec_core import Request, Sampling, Target
from spec_core.commands import Logprob
from spec_serve.errors import api_error_of
from spec_serve.job import Done, EventQueue, Failed, Job, messages
from spec_serve.server_config import ServerConfig

FORCED = "forced"


@attrs.frozen(eq=False)
class Exactly:
    """A constraint: the text is these tokens."""

    tokens: tuple[int, ...]

    def start(self, target: Target) -> ExactlyText:
        return ExactlyText(self.tokens, -(-target.info.vocab // 32))


@attrs.define(eq=False)
class ExactlyText:
    """The state of one text. words: of a mask."""

    tokens: tuple[int, ...]
    words: int
    at: int = 0

    @property
    def complete(self) -> bool:
        return self.at == len(self.tokens)

    def advance(self, token: int) -> bool:
        if self.complete or token != self.tokens[self.at]:
            return False
        self.at += 1
        return True

    def rollback(self, count: int) -> None:
        self.at -= count

    def masks(self, drafted: Sequence[int]) -> Any:
        """A row for the next token, and for each that follows a drafted one that is right."""
        following = self.tokens[self.at :]
        right = next((i for i, pair in enumerate(zip(drafted, following, strict=False)) if pair[0] != pair[1]), None)
        rows = min(len(drafted) if right is None else right, len(following) - 1) + 1
        words = np.zeros((max(0, rows), self.words), np.uint32)
        for row, token in enumerate(following[:rows]):
            words[row, token // 32] = np.uint32(1 << (token % 32))
        return words

    def forced_tokens(self, count_max: int) -> list[int]:
        return list(self.tokens[self.at : self.at + count_max])


@attrs.frozen
class Echo:
    """A prompt that is part of its answer. scores: of its tokens after the first, if they were asked for."""

    text: str
    ids: list[int]
    scores: list[Logprob] = attrs.field(factory=list)


def requests(ids: list[int], best: int, model: Request, terms: ServerConfig) -> list[Request]:
    """Requests whose texts are the prompt after its first token. model: what the answer itself asks for."""
    ends = [at + 1 for at, token in enumerate(ids) if at and token in terms.target.info.eog and at + 1 < len(ids)]
    cuts = sorted({1, *ends, len(ids)})
    methods = (FORCED,) if FORCED in terms.run.drafters else ()
    return [
        Request(
            ids[:start],
            max_tokens=end - start,
            sampling=Sampling(temperature=0.0, logprobs=best),
            methods=methods,
            constraint=Exactly(tuple(ids[start:end])),
            cache_salt=model.cache_salt,
            priority=model.priority,
            name=model.name,
        )
        for start, end in pairwise(cuts)
    ]


def jobs(ids: list[int], best: int, model: Request, deadline: float | None, terms: ServerConfig) -> list[Job]:
    """Jobs that score a text, with an outlet of their own."""
    outlet = EventQueue()
    submitted = requests(ids, best, model, terms)
    return [Job(request, outlet, index=i, streamed=False, deadline=deadline) for i, request in enumerate(submitted)]


async def scores(submitted: list[Job]) -> list[Logprob]:
    """Log-probabilities of the tokens after the first. Raises the error that ended one of the texts."""
    scores_by_row: dict[int, list[Logprob]] = {}
    if not submitted:
        return []
    async for job, message in messages(submitted[0].outlet, len(submitted)):
        if isinstance(message, Failed):
            raise api_error_of(message.error) from message.error
        if isinstance(message, Done):
            scores_by_row[job.index] = message.result.logprobs or []
    return [score for _, scored in sorted(scores_by_row.items()) for score in scored]
