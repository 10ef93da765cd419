"""Structured output and calls with drafts are valid, and equal plain ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from spec_commands.servers.answers import Answer

from spec_audit.asks import PLAIN, Ask
from spec_audit.audit import GREEDY, Audit
from spec_audit.budget import Budget, Cost
from spec_audit.parity import compare_greedy
from spec_audit.promise import Failed, Report, Skipped, ask_drafts, ask_plain, promise
from spec_audit.verdict import Section, share

TITLE = "Structured output"
TOKENS = 64
COLOURS = ("red", "green", "blue")
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": list(COLOURS)}, "sure": {"type": "boolean"}},
    "required": ["colour", "sure"],
    "additionalProperties": False,
}
FORMAT = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
}
TOOL = {"type": "function", "function": {"name": "answer", "parameters": SCHEMA}}
CALL = {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "answer"}}}


def cost(budget: Budget) -> Cost:
    """The most that this check asks for."""
    return Cost(10 * budget.few, 10 * budget.few * TOKENS)


def is_valid(text: str) -> bool:
    """Whether a text is JSON of the schema."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    keys = isinstance(value, dict) and set(value) == {"colour", "sure"}
    return keys and value["colour"] in COLOURS and type(value["sure"]) is bool


def run_check(audit: Audit) -> Section:
    """JSON by a schema, greedy and sampled, and a forced call where chats are asked."""
    return Section(
        TITLE,
        (
            _valid(audit, "JSON follows its schema", {**FORMAT, **GREEDY}, _text_of),
            _valid(audit, "sampled JSON follows its schema", {**FORMAT, "temperature": 1.0}, _text_of),
            _equal(audit),
            _valid(audit, "a call follows its schema", {**CALL, **GREEDY}, _calls_of),
        ),
    )


def _asks(audit: Audit, fields: Mapping[str, Any]) -> list[Ask]:
    return [Ask(PLAIN, f"{p.given}\nThe colour as JSON: ", TOKENS, fields) for p in audit.few("structured")]


def _text_of(answer: Answer) -> tuple[str, ...]:
    return answer.texts[:1]


def _calls_of(answer: Answer) -> tuple[str, ...]:
    return answer.calls


@promise("{0}")
def _valid(
    audit: Audit, name: str, fields: Mapping[str, Any], values_of: Callable[[Answer], tuple[str, ...]]
) -> Report:
    """Whether complete answers follow the schema, if they do without drafts; others may be cut inside their JSON."""
    if "tools" in fields and audit.session.api != "chat":
        raise Skipped("completions have no calls; --chat asks for chats")
    asks = _asks(audit, fields)

    def invalid(answers: list[Answer]) -> list[int]:
        whole = [i for i, answer in enumerate(answers) if answer.finish != "length"]
        if not whole:
            raise Skipped("every answer reached max_tokens")
        values = {i: values_of(answers[i]) for i in whole}
        return [i for i in whole if not values[i] or not all(map(is_valid, values[i]))]

    if invalid(ask_plain(audit, asks)):
        raise Skipped("it does not hold without drafts")
    drafts = ask_drafts(audit, asks)
    if broken := invalid(drafts):
        shown = (values_of(drafts[broken[0]]) or ("",))[0]
        raise Failed(f"{share(len(broken), asks)} answers do not, as {shown[:60]!r}", asks[broken[0]])
    return f"{sum(answer.finish != 'length' for answer in drafts)} complete answers do", "finds one answer"


@promise("JSON equals plain JSON")
def _equal(audit: Audit) -> Report:
    """Greedy JSON with drafts equals that without."""
    return compare_greedy(audit, _asks(audit, {**FORMAT, **GREEDY}), same_scores=False)
