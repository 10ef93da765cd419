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

from spec_core import EncodedPrompt, Request, Sampling, Target
from spec_core.commands import Logprob
from spec_serve.errors import ApiError, api_error_of
from spec_serve.generation_params import GenerationParams
from spec_serve.job import Done, EventQueue, Failed, Job, job_messages
from spec_serve.server_config import ServerConfig
from spec_serve.service import Service
from spec_serve.threads import write_in_thread

FORCED = "forced"
ENDS_MAX = 128
"""Tokens within a prompt that end a text: the part before each is evaluated as a text of its own."""


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


async def read_echoes(service: Service, params: GenerationParams, prompts: list[Any], n: int) -> list[Echo]:
    """The prompts as parts of their answers, with log-probabilities where the text's were asked for.

    n: texts of each prompt.
    """
    best, encoded = params.request.sampling.logprobs, await service.encode(*prompts)
    if best is not None:
        check_sizes([prompt.tokens for prompt in encoded], n * (1 + best), service.config)
    return [await _read_echo(service, params, *pair) for pair in zip(prompts, encoded, strict=True)]


async def _read_echo(service: Service, params: GenerationParams, prompt: Any, encoded: EncodedPrompt) -> Echo:
    """One prompt, whose parts are evaluated one after the other: a request takes no more than a place of the queue."""
    ids, best = encoded.tokens, params.request.sampling.logprobs
    text = prompt if isinstance(prompt, str) else await write_in_thread(len(ids), service.tokenizer.decode, ids)
    logprobs: list[Logprob] = []
    for request in [] if best is None else requests(ids, best, params.request, service.config):
        [part] = jobs = [job(request, params.deadline)]
        try:
            service.engine.submit(jobs)
            logprobs += await scores(part)
        finally:
            service.engine.cancel(jobs)
    return Echo(text, ids, logprobs)


def check_sizes(prompts: list[list[int]], repeats: int, config: ServerConfig) -> None:
    """Raise ApiError where prompts have too many log-probabilities, or too many tokens that end a text.

    repeats: log-probabilities of each token in the answer.
    """
    count, most = sum(map(len, prompts)) * repeats, config.limits.logprobs_total
    if count > most:
        problem = f"the prompts have {count} log-probabilities, at most {most} are reported; ask for fewer"
        raise ApiError(400, problem, "echo")
    ends = max(len(_ends(ids, config)) for ids in prompts)
    if ends > ENDS_MAX:
        problem = f"a prompt has {ends} tokens that end a text, at most {ENDS_MAX} are evaluated with echo and logprobs"
        raise ApiError(400, problem, "echo")


def _ends(ids: list[int], config: ServerConfig) -> list[int]:
    """Positions after tokens within a prompt that end a text."""
    return [at + 1 for at, token in enumerate(ids) if at and token in config.target.info.eog and at + 1 < len(ids)]


def requests(ids: list[int], best: int, request: Request, config: ServerConfig) -> list[Request]:
    """Requests whose texts are the prompt after its first token. model: what the answer itself asks for."""
    cuts = sorted({1, *_ends(ids, config), len(ids)})
    methods = (FORCED,) if FORCED in config.run.drafters else ()
    return [
        Request(
            ids[:start],
            max_tokens=end - start,
            sampling=Sampling(temperature=0.0, logprobs=best),
            methods=methods,
            constraint=Exactly(tuple(ids[start:end])),
            cache_salt=request.cache_salt,
            priority=request.priority,
            name=request.name,
        )
        for start, end in pairwise(cuts)
    ]


def job(request: Request, deadline: float | None) -> Job:
    """The job that scores a part of a prompt, with an event queue of its own."""
    return Job(request, EventQueue(), streamed=False, deadline=deadline)


async def scores(job: Job) -> list[Logprob]:
    """Log-probabilities of the tokens of a part. Raises the error that ended it."""
    async for _, message in job_messages(job.queue, 1):
        if isinstance(message, Failed):
            raise api_error_of(message.error) from message.error
        if isinstance(message, Done):
            return message.result.logprobs or []
    return []
