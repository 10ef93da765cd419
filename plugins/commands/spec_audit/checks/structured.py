"""Structured output and calls with drafts are valid, and equal plain ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from spec_audit.asks import DRAFTS, PLAIN, Answer, Ask
from spec_audit.audit import GREEDY, Audit
from spec_audit.budget import Budget, Cost
from spec_audit.parity import judge_texts, refusal
from spec_audit.verdict import FAILS, HOLDS, Section, Verdict, share, skip

TITLE = "Structured output"
TOKENS = 64
COLOURS = ("red", "green", "blue")
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": list(COLOURS)}, "sure": {"type": "boolean"}},
    "required": ["colour", "sure"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
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
    return (
        isinstance(value, dict)
        and set(value) == {"colour", "sure"}
        and value["colour"] in COLOURS
        and type(value["sure"]) is bool
    )


def run(audit: Audit) -> Section:
    """JSON by a schema, greedy and sampled, and a forced call where chats are asked."""
    verdicts = [
        _valid(audit, "JSON follows its schema", {"response_format": FORMAT}, GREEDY, lambda answer: answer.texts[:1]),
        _valid(
            audit, "sampled JSON follows its schema", {"response_format": FORMAT}, {"temperature": 1.0},
            lambda answer: answer.texts[:1],
        ),
        _equal(audit),
    ]  # fmt: skip
    if audit.session.api == "chat":
        verdicts.append(_valid(audit, "a call follows its schema", CALL, GREEDY, lambda answer: answer.calls))
    else:
        verdicts.append(skip("a call follows its schema", "completions have no calls; --chat asks for chats"))
    return Section(TITLE, tuple(verdicts))


def _asks(audit: Audit, fields: Mapping[str, Any]) -> list[Ask]:
    return [Ask(PLAIN, f"{p.given}\nThe colour as JSON: ", TOKENS, fields) for p in audit.few("structured")]


def _valid(
    audit: Audit,
    promise: str,
    fields: Mapping[str, Any],
    sampling: Mapping[str, Any],
    values_of: Callable[[Answer], tuple[str, ...]],
) -> Verdict:
    """Whether complete answers follow the schema, if they do without drafts."""
    asks = _asks(audit, {**fields, **sampling})
    plain = audit.session.ask_all(asks)
    if verdict := refusal(promise, plain, (), audit, asks[0]):
        return verdict
    if _invalid(plain, values_of) or not _complete(plain):
        return skip(promise, "it does not hold without drafts")
    drafts = audit.session.ask_all([ask.on(DRAFTS) for ask in asks])
    if verdict := refusal(promise, plain, drafts, audit, asks[0]):
        return verdict
    if broken := _invalid(drafts, values_of):
        shown = (values_of(drafts[broken[0]]) or ("",))[0]
        detail = f"{share(len(broken), asks)} answers do not, as {shown[:60]!r}"
        return Verdict(promise, FAILS, detail, "", audit.curls(asks[broken[0]]))
    if not _complete(drafts):
        return skip(promise, "every answer with drafts reached max_tokens")
    return Verdict(promise, HOLDS, f"{len(_complete(drafts))} complete answers do", "finds one answer that does not")


def _complete(answers: list[Answer]) -> list[Answer]:
    """Answers that end by themselves: others may be cut inside their JSON."""
    return [answer for answer in answers if answer.finish != "length"]


def _invalid(answers: list[Answer], values_of: Callable[[Answer], tuple[str, ...]]) -> list[int]:
    """Places of complete answers that do not follow the schema."""
    return [
        i
        for i, answer in enumerate(answers)
        if answer.finish != "length" and not (values_of(answer) and all(map(is_valid, values_of(answer))))
    ]


def _equal(audit: Audit) -> Verdict:
    """Greedy JSON with drafts equals that without."""
    promise = "JSON equals plain JSON"
    asks = _asks(audit, {"response_format": FORMAT, **GREEDY})
    plain = audit.session.ask_all(asks)
    if verdict := refusal(promise, plain, (), audit, asks[0]):
        return verdict
    drafts = audit.session.ask_all([ask.on(DRAFTS) for ask in asks])
    return judge_texts(audit, promise, asks, plain, drafts, same_scores=False)
