"""Numbers of finished texts, by the names that clients of llama-server, vLLM and OpenAI know."""

from __future__ import annotations

from typing import Any

import attrs
from pydantic import BaseModel

from spec_core import Result, Run, Tokenizer
from spec_core.toolkit import decode_after
from spec_serve.errors import api_error_of
from spec_serve.generation_params import PREDICTION
from spec_serve.job import Done, EventQueue, Failed, Job, Prompted, job_messages


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: dict[str, int] | None = None


class Timings(BaseModel):
    """llama-server's: tokens and milliseconds of prompts and texts, and drafts."""

    queue_ms: float
    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int
    draft_n_accepted: int


class Speculation(BaseModel):
    """vLLM's counts of drafts."""

    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: list[int]
    num_spec_steps: int
    num_accepted_draft_tokens: int
    num_draft_tokens: int
    num_spec_tokens: int


class DecodingMetrics(BaseModel):
    speculative_decoding: Speculation


class Extras(BaseModel):
    """Fields in addition to an answer of OpenAI's form."""

    timings: Timings
    metrics: DecodingMetrics
    seed: int | None


@attrs.frozen(eq=False)
class Finished:
    """A text that has ended."""

    job: Job
    result: Result

    @property
    def reason(self) -> str:
        """Reason in the APIs' words: a text that its constraint completed has stopped."""
        reason = self.result.finish_reason
        return "deadline" if self.job.expired else "stop" if reason == "complete" else reason


async def wait_for_all(queue: EventQueue, count: int) -> list[Finished]:
    """The ends of ``count`` texts, in the order of their answer. Raises the error that ended one of them."""
    finished = []
    async for job, message in job_messages(queue, count):
        if isinstance(message, Failed):
            raise api_error_of(message.error) from message.error
        if isinstance(message, Done):
            finished.append(Finished(job, message.result))
    return sorted(finished, key=lambda one: one.job.index)


def stop_text(finished: Finished, tokenizer: Tokenizer) -> str | None:
    """The stop text that ended a text; None where its model or its constraint did."""
    result, seq = finished.result, finished.job.seq
    assert seq is not None
    if result.finish_reason == "complete" or seq.tokens[-1] in seq.stop.tokens:
        return None
    rest = decode_after(tokenizer, result.tokens, seq.tokens[: seq.prompt_len])[len(result.text) :]
    return next((stop for stop in finished.job.request.stop if rest.startswith(stop)), "")


def usage(done: list[Finished]) -> dict[str, Any]:
    """Tokens of an answer; of several texts of one prompt, the prompt counts once."""
    prompts = {f.job.prompt: f.result for f in reversed(done)}
    read = sum(r.prompt_tokens for r in prompts.values())
    written = sum(len(f.result.tokens) for f in done)
    cached = sum(r.reused for r in prompts.values())
    return {**usage_of(read, written), "prompt_tokens_details": {"cached_tokens": cached}, **_prediction_counts(done)}


def usage_of(read: int, written: int) -> dict[str, int]:
    """OpenAI's names for tokens of prompts and of texts."""
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _prediction_counts(done: list[Finished]) -> dict[str, Any]:
    """Numbers of accepted and rejected drafted tokens of a request's prediction."""
    if not any(f.job.request.prediction for f in done):
        return {}
    kept = sum(f.job.kept[PREDICTION] for f in done)
    rejected = sum(f.job.proposed[PREDICTION] for f in done) - kept
    details = {"accepted_prediction_tokens": kept, "rejected_prediction_tokens": rejected}
    return {"completion_tokens_details": details}


def timings(done: list[Finished]) -> dict[str, Any]:
    """llama-server's, summed over the texts; the first token of a text belongs to its prompt."""
    total = lambda of: sum(of(f) for f in done)
    prompt_n = total(lambda f: f.result.prompt_tokens - f.result.reused)
    predicted_n = total(lambda f: len(f.result.tokens))
    prompt_ms = 1000 * total(lambda f: f.job.first - f.job.begun if f.job.first else 0.0)
    predicted_ms = 1000 * total(lambda f: f.job.last - f.job.first)
    after_first = total(lambda f: max(0, len(f.result.tokens) - 1))
    return {
        "queue_ms": 1000 * total(lambda f: f.job.begun - f.job.asked if f.job.begun else 0.0),
        "cache_n": total(lambda f: f.result.reused),
        **_speed("prompt", prompt_n, prompt_ms, prompt_n),
        **_speed("predicted", predicted_n, predicted_ms, after_first),
        "draft_n": total(lambda f: f.result.stats["drafted"]),
        "draft_n_accepted": total(lambda f: f.result.stats["accepted"]),
    }


def progress_of(prompted: Prompted, timed: bool) -> dict[str, Any]:
    """llama-server's ``prompt_progress``, and timings where they were asked for."""
    spent, read = 1000 * prompted.seconds, prompted.processed - prompted.cache
    progress = {"total": prompted.total, "cache": prompted.cache, "processed": prompted.processed, "time_ms": spent}
    times = {"cache_n": prompted.cache, **_speed("prompt", read, spent, read), **_speed("predicted", 0, 0.0, 0)}
    return {"prompt_progress": progress, **({"timings": times} if timed else {})}


def timings_so_far(job: Job, written: int) -> dict[str, Any]:
    """Timings of a text that is not finished."""
    assert job.seq is not None
    prompt_n, prompt_ms = job.seq.prompt_len - job.seq.reused, 1000 * (job.first - job.begun)
    return {
        "cache_n": job.seq.reused,
        **_speed("prompt", prompt_n, prompt_ms, prompt_n),
        **_speed("predicted", written, 1000 * (job.last - job.first), max(0, written - 1)),
    }


def _speed(name: str, n: int, ms: float, timed: int) -> dict[str, Any]:
    """timed: tokens that were made in this time."""
    return {
        f"{name}_n": n,
        f"{name}_ms": ms,
        f"{name}_per_token_ms": ms / timed if timed else 0.0,
        f"{name}_per_second": 1000 * timed / ms if ms > 0 else 0.0,
    }


def speculation(done: list[Finished], run: Run) -> dict[str, Any]:
    """vLLM's block: counts of the steps that had a draft; the histogram says how many of them kept i drafted tokens."""
    longest = max((max(_longest(f.job, run), len(f.result.stats["accepted_per_pos"])) for f in done), default=0)
    total = lambda name: sum(f.result.stats[name] for f in done)
    steps, accepted, drafted = total("drafts"), total("accepted"), total("drafted")
    return {
        "mean_acceptance_length": 1 + accepted / steps if steps else 1.0,
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
        "acceptance_histogram": _histogram(done, steps, longest),
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": longest,
    }


def _longest(job: Job, run: Run) -> int:
    """Longest draft that this text could have."""
    asked = job.request
    if not run.drafters or (asked.methods is not None and not asked.methods):
        return 0
    return run.settings.draft_max if asked.draft_max is None else min(asked.draft_max, run.settings.draft_max)


def _histogram(done: list[Finished], steps: int, longest: int) -> list[int]:
    kept = [0] * longest
    for finished in done:
        for i, n in enumerate(finished.result.stats["accepted_per_pos"]):
            kept[i] += n
    reached = [steps, *kept, 0]  # drafts with at least i kept tokens
    return [reached[i] - reached[i + 1] for i in range(longest + 1)]


def extras(done: list[Finished], run: Run) -> dict[str, Any]:
    """Fields in addition to an answer of OpenAI's form."""
    return {
        "timings": timings(done),
        "metrics": {"speculative_decoding": speculation(done, run)},
        "seed": done[0].result.seed if done else None,
    }
