"""Sizes of answers before they are written, in characters of text that take as long."""

from __future__ import annotations

from collections.abc import Iterable

from spec_serve.job import Job
from spec_serve.shape import BODY_BYTES

LOGPROB = 8
"""Of a token with its log-probability."""
TRACED = 8
"""Of a token with its source and drafts."""


def answer_size(jobs: Iterable[Job]) -> int:
    """Size of the answer with these texts, which may repeat the body of the request with each of them."""
    jobs = list(jobs)
    return sum(tokens_of(job) * token_size(job) for job in jobs) + len(jobs) * BODY_BYTES.get()


def tokens_of(job: Job) -> int:
    """Generated tokens so far."""
    return 0 if job.seq is None else max(0, len(job.seq.tokens) - job.seq.prompt_len)


def token_size(job: Job) -> int:
    """Size of a token of this text."""
    best = job.request.sampling.logprobs
    return 1 + (0 if best is None else LOGPROB * (1 + best)) + (TRACED if job.trace else 0)
