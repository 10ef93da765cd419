"""Figures of one text under the names of other programs: vLLM's per-request metrics, and llama.cpp's timings."""

from __future__ import annotations

from collections import Counter
from typing import Any

from spec_compare.records.record import Record, ServedText

VLLM = {
    "mean_acceptance_length": "accepted tokens per draft, plus 1",
    "draft_acceptance_rate": "accepted tokens per drafted token",
    "acceptance_histogram": "number of drafts with 0, 1, 2, ... accepted tokens",
    "num_spec_steps": "steps with a draft",
    "num_accepted_draft_tokens": "accepted drafted tokens",
    "num_draft_tokens": "drafted tokens",
    "per_step_accepted": "accepted tokens of each step with a draft",
    "per_step_drafted": "drafted tokens of each step with a draft",
}
TIMINGS = {
    "cache_n": "prompt tokens that were reused",
    "prompt_n": "prompt tokens that were evaluated",
    "prompt_ms": "milliseconds until the first token",
    "prompt_per_token_ms": "milliseconds per evaluated prompt token",
    "prompt_per_second": "evaluated prompt tokens per second",
    "predicted_n": "tokens of the output",
    "predicted_ms": "milliseconds from the first token to the last",
    "predicted_per_token_ms": "milliseconds per token after the first",
    "predicted_per_second": "tokens after the first per second",
    "draft_n": "drafted tokens",
    "draft_n_accepted": "accepted drafted tokens",
}


def aliases(record: Record) -> dict[str, Any]:
    """``vllm`` and ``timings`` of a record."""
    return {"vllm": vllm(record), "timings": timings(record)}


def vllm(record: Record) -> dict[str, Any]:
    if record.served is not None:
        return _server_figures(record.served)
    pairs = [(a, d) for a, d in zip(record.steps.accepted, record.steps.drafted, strict=True) if d]
    accepted, drafted = [a for a, _ in pairs], [d for _, d in pairs]
    counts = Counter(accepted)
    return {
        "mean_acceptance_length": 1 + sum(accepted) / len(pairs) if pairs else None,
        "draft_acceptance_rate": _ratio(sum(accepted), sum(drafted)),
        "acceptance_histogram": [counts[n] for n in range(max(drafted) + 1)] if pairs else [],
        "num_spec_steps": len(pairs),
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": sum(drafted),
        "per_step_accepted": accepted,
        "per_step_drafted": drafted,
    }


def _server_figures(served: ServedText) -> dict[str, Any]:
    """The figures of a server's text; null where it does not count them."""
    counts = served.draft_statistics.report()
    return {
        "mean_acceptance_length": counts["mean_acceptance_length"],
        "draft_acceptance_rate": counts["draft_acceptance"],
        "acceptance_histogram": None,
        "num_spec_steps": served.drafts,
        "num_accepted_draft_tokens": served.accepted,
        "num_draft_tokens": served.drafted,
        "per_step_accepted": None,
        "per_step_drafted": None,
    }


def timings(record: Record) -> dict[str, Any]:
    evaluated, later = record.prompt_tokens - record.reused, record.decode_tokens
    first, decode = 1000 * record.first_seconds, 1000 * record.decode_seconds
    return {
        "cache_n": record.reused,
        "prompt_n": evaluated,
        "prompt_ms": first,
        "prompt_per_token_ms": _ratio(first, evaluated),
        "prompt_per_second": _ratio(1000 * evaluated, first),
        "predicted_n": record.token_count,
        "predicted_ms": decode,
        "predicted_per_token_ms": _ratio(decode, later),
        "predicted_per_second": _ratio(1000 * later, decode),
        "draft_n": sum(record.steps.drafted) if record.served is None else record.served.drafted,
        "draft_n_accepted": sum(record.steps.accepted) if record.served is None else record.served.accepted,
    }


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None
