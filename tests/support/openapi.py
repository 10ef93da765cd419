"""Cases that schemathesis makes from a server's OpenAPI description are sent to it, and answers compared with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.served import Served, serving

CHECKS = [
    schemathesis.checks.not_a_server_error,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
"""What of an answer is compared with the description. A body that fits it may be refused, for what its values mean."""
LENGTHS = ("max_tokens", "max_output_tokens", "n_predict", "max_completion_tokens")
MAX_TOKENS = 4
"""Max tokens of an answer: the request is tested, not its text."""
KEY = "secret"
AUTHORIZATION = {"Authorization": f"Bearer {KEY}"}


@attrs.define
class DescribedServer:
    """A server with a key, the description of its operations, and what its answers were.

    statuses: how many answers had each status. failures: what differs from the description.
    """

    served: Served
    operations: list[Any]
    statuses: Counter[int] = attrs.field(factory=Counter)
    failures: list[str] = attrs.field(factory=list)

    def send(self, case: Any) -> Any:
        """Send a case, check and count its answer, and return it."""
        answer = case.call(base_url=self.served.url, headers=AUTHORIZATION, timeout=60)
        self.statuses[answer.status_code] += 1
        self.check(case, answer)
        return answer

    def check(self, case: Any, answer: Any) -> None:
        """Add to the failures what in the answer to a case differs from the description."""
        try:
            case.validate_response(answer, checks=CHECKS)
        except FailureGroup as group:
            problems = "; ".join(f"{failure.title}: {failure.message:.300}" for failure in group.exceptions)
            sent = f"{case.method} {case.path} {case.body!r:.400}"
            self.failures.append(f"{sent}: {answer.status_code} {answer.text:.300}: {problems}")

    def send_generated(self, cases: int, first: int) -> None:
        """Send about ``cases`` cases, divided among all operations, half of them with bodies that do not fit."""
        share = -(-cases // sum(2 if operation.body else 1 for operation in self.operations))
        for number, operation in enumerate(self.operations):
            self._sender(operation, GenerationMode.POSITIVE, share, first + number)()
            if operation.body:
                self._sender(operation, GenerationMode.NEGATIVE, share, first + number)()

    def _sender(self, operation: Any, mode: GenerationMode, cases: int, first: int) -> Callable[[], None]:
        """A function that sends ``cases`` cases of an operation."""
        known = _fields(operation)

        @seed(first)
        @settings(
            max_examples=cases,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
                _limit(case.body, known)
            self.send(case)

        return send


@contextmanager
def describe_server(model: str) -> Iterator[DescribedServer]:
    """A server of this model with its description."""
    with serving(model, ["ngram"], {"api_key": KEY}, max_sequences=4) as served:
        schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json", headers=AUTHORIZATION)
        yield DescribedServer(served, [result.ok() for result in schema.get_all_operations()])


def _limit(body: dict[str, Any], known: set[str]) -> None:
    """Give a body one of the fields for the length of its answer."""
    for name in LENGTHS:
        body.pop(name, None)
    if name := next((name for name in LENGTHS if name in known), None):
        body[name] = MAX_TOKENS


def _fields(operation: Any) -> set[str]:
    """Fields of the operation's body."""
    bodies = [dict(alternative.definition) for alternative in operation.body]
    return {name for body in bodies for name in str(body).split("'")}
