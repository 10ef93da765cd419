"""Cases that schemathesis makes from a server's OpenAPI description, sent to it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.support.served import Served, serving

MAX_TOKENS = 4
"""Of an answer: what is tested is the request."""


def count_statuses(model: str, cases: int, first: int) -> tuple[dict[int, int], list[str]]:
    """How many answers had each status, and those of 500 and more."""
    import schemathesis

    statuses: Counter[int] = Counter()
    wrong: list[str] = []
    with serving(model, ["ngram"], max_sequences=4) as served:
        schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
        operations = [result.ok() for result in schema.get_all_operations()]
        share = -(-cases // sum(bool(list(operation.body)) for operation in operations))
        for number, operation in enumerate(operations):
            send = _sender(operation, served, statuses, wrong, share, first + number)
            send()
    return dict(statuses), wrong


def _sender(operation: Any, served: Served, statuses: Counter[int], wrong: list[str], cases: int, first: int) -> Any:
    """A function that sends so many cases of an operation."""
    checks = list(HealthCheck)
    quiet = settings(
        max_examples=cases, deadline=None, database=None, suppress_health_check=checks, phases=[Phase.generate]
    )

    @seed(first)
    @quiet
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        if isinstance(case.body, dict):
            for name in ("max_tokens", "n_predict", "max_output_tokens", "max_completion_tokens"):
                if name in served_fields(operation) and name not in case.body:
                    case.body[name] = MAX_TOKENS
        answer = case.call(base_url=served.url, timeout=60)
        statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            asked = f"{operation.method} {operation.path} {case.body!r:.400}"
            wrong.append(f"{asked}: {answer.status_code} {answer.text:.300}")

    return send


def served_fields(operation: Any) -> set[str]:
    """Fields of the operation's body."""
    bodies = [dict(alternative.definition) for alternative in operation.body]
    return {name for body in bodies for name in str(body).split("'")}
