"""Parameters of requests hold with drafts: samplers, biases, penalties, stops, limits, seeds, n, streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from spec_audit.asks import DRAFTS, PLAIN, Ask
from spec_audit.audit import GREEDY, Audit
from spec_audit.budget import Budget, Cost
from spec_audit.parity import judge_texts
from spec_audit.promise import Failed, Report, Skipped, ask_drafts, ask_plain, promise
from spec_audit.verdict import Section, share

TITLE = "Parameters"
ONE_TOKEN: Mapping[str, dict[str, float]] = {
    "top_k 1 at T 2 is greedy": {"temperature": 2.0, "top_k": 1},
    "top_p 0.000001 at T 1 is greedy": {"temperature": 1.0, "top_p": 0.000001},
    "min_p 1 at T 1 is greedy": {"temperature": 1.0, "min_p": 1.0},
}
"""Samplers that leave one token."""
SCORES: Mapping[str, dict[str, Any]] = {
    "a forced token": {"logit_bias": {"300": 100}},
    "banned tokens": {"logit_bias": {str(i): -100 for i in range(200, 300)}},
    "presence penalty": {"presence_penalty": 1.5},
    "frequency penalty": {"frequency_penalty": 1.0},
    "repetition penalty": {"repetition_penalty": 1.3},
}
"""Fields that change scores."""
LIMITS = (1, 2, 7)
SEED_TOKENS = 24
CUT = "\ufffd"
"""What stands for a character that was cut in two."""
STOP = 4
"""Characters of a stop text."""


def cost(budget: Budget) -> Cost:
    """The most that this check asks for."""
    texts = 3 * len(ONE_TOKEN) + 3 * len(SCORES) + 9 + 6
    limits = Cost(2 * len(LIMITS) * budget.few, 2 * budget.few * sum(LIMITS))
    sampled = Cost(5 * budget.few + 2, (3 * budget.few + 8) * SEED_TOKENS)
    return Cost(texts * budget.few, texts * budget.few * budget.tokens) + limits + sampled


def run_check(audit: Audit) -> Section:
    """Test each parameter that the server offers without drafts."""
    samplers = (_one_token(audit, name, fields) for name, fields in ONE_TOKEN.items())
    scores = (_scores(audit, name, fields) for name, fields in SCORES.items())
    others = (_stops, _limits, _seeds, _check_counts, _streams, _characters)
    return Section(TITLE, (*samplers, *scores, *(test(audit) for test in others)))


@promise("{0}")
def _one_token(audit: Audit, name: str, fields: Mapping[str, Any]) -> Report:
    """Greedy texts by another sampler; differences are explained by the greedy request."""
    asks = audit.greedy_asks(audit.few("samplers"))
    sampled = [attrs.evolve(ask, fields=fields) for ask in asks]
    plain = ask_plain(audit, sampled)
    if any(answer.text != audit.texts.get(ask.prompt) for ask, answer in zip(asks, plain, strict=True)):
        raise Skipped("it does not hold without drafts")
    drafts = ask_drafts(audit, sampled)
    try:
        return judge_texts(audit, asks, plain, drafts)
    except Failed as failed:
        raise Failed(str(failed), attrs.evolve(failed.ask, fields=fields), failed.power) from failed


@promise("{0}")
def _scores(audit: Audit, name: str, fields: Mapping[str, Any]) -> Report:
    """Greedy texts with changed scores, if the field has an effect without drafts."""
    asks = audit.greedy_asks(audit.few("scores"), **fields)
    plain = ask_plain(audit, asks)
    if all(answer.text == audit.texts.get(ask.prompt) for ask, answer in zip(asks, plain, strict=True)):
        raise Skipped("it changes no text without drafts")
    return judge_texts(audit, asks, plain, ask_drafts(audit, asks), same_scores=False)


@promise("a stop text ends the text before it")
def _stops(audit: Audit) -> Report:
    """Stop texts from three places of each greedy text end it there, with drafts as without."""
    expected: list[tuple[Ask, str]] = []
    for ask in audit.greedy_asks(audit.few("stops")):
        text = audit.texts.get(ask.prompt, "")
        for stop in dict.fromkeys(text[len(text) * k // 4 :][:STOP] for k in (1, 2, 3)):
            if stop.strip():
                fields = {**ask.fields, "stop": [stop]}
                expected.append((attrs.evolve(ask, fields=fields), text[: text.index(stop)]))
    answers = ask_plain(audit, [ask for ask, _ in expected])
    kept = [i for i, (_, text) in enumerate(expected) if answers[i].text == text]
    if not kept:
        raise Skipped("it does not hold without drafts")
    asks, plain = [expected[i][0] for i in kept], [answers[i] for i in kept]
    drafts = ask_drafts(audit, asks)
    leaks = [(a, d) for a, d in zip(asks, drafts, strict=True) if a.fields["stop"][0] in d.text]
    if leaks:
        shown = f"as {leaks[0][1].text[-30:]!r}"
        raise Failed(f"{share(len(leaks), asks)} texts contain their stop text, {shown}", leaks[0][0])
    return judge_texts(audit, asks, plain, drafts)


@promise("max_tokens 1, 2 and 7")
def _limits(audit: Audit) -> Report:
    """The text is a beginning of the greedy text, and usage counts no more tokens."""
    asks = [Ask(PLAIN, str(p.given), limit, GREEDY) for p in audit.few("limits") for limit in LIMITS]
    plain, drafts = ask_plain(audit, asks), ask_drafts(audit, asks)
    for ask, answer in zip(asks, drafts, strict=True):
        if (answer.completion_tokens or 0) > ask.max_tokens:
            raise Failed(f"max_tokens {ask.max_tokens} was answered by {answer.completion_tokens} tokens", ask)
    return judge_texts(audit, asks, plain, drafts)


@promise("seeds repeat")
def _seeds(audit: Audit) -> Report:
    """With drafts too an equal seed gives an equal text, and another seed another one."""
    if not (audit.facts.repeats and audit.facts.varies):
        raise Skipped("it does not hold without drafts")
    numbers = audit.seeds("seeds with drafts")
    prompts = [str(p.given) for p in audit.few("seeds")]
    asks = [Ask(DRAFTS, p, SEED_TOKENS, {"temperature": 1.0, "seed": numbers.getrandbits(31)}) for p in prompts]
    others = [attrs.evolve(ask, fields={**ask.fields, "seed": numbers.getrandbits(31)}) for ask in asks]
    first, again, other = (ask_drafts(audit, each) for each in (asks, asks, others))
    differing = [ask for ask, x, y in zip(asks, first, again, strict=True) if x.text != y.text]
    if all(x.text == y.text for x, y in zip(first, other, strict=True)):
        raise Failed("every seed gives the same text", asks[0])
    repeat = f"{share(len(asks) - len(differing), asks)} texts repeat"
    if differing and (audit.facts.floor[1] or audit.facts.greedy[1]):
        raise Skipped(f"{repeat}; greedy texts differ too")
    if differing:
        raise Failed(repeat, differing[0])
    return repeat, ""


@promise("n texts of one request differ")
def _check_counts(audit: Audit) -> Report:
    """``n`` texts of one request are n different ones, if they are without drafts."""
    if audit.facts.n == 1:
        raise Skipped("n is not offered")
    ask = Ask(PLAIN, str(audit.few("several")[0].given), SEED_TOKENS, {"temperature": 1.0, "n": 4})
    (plain,), (drafts,) = ask_plain(audit, [ask]), ask_drafts(audit, [ask])
    numbers = len(set(plain.texts)), len(set(drafts.texts))
    detail = f"{numbers[1]} different texts with drafts, {numbers[0]} without"
    if len(drafts.texts) != len(plain.texts) or (numbers[0] > 2 and numbers[1] == 1):
        raise Failed(detail, ask)
    return detail, ""


def _stream_asks(audit: Audit) -> list[Ask]:
    """Streams of some prompts, all that are not ASCII among them."""
    prompts = [*audit.few("streams"), *(p for p in audit.prompts if not str(p.given).isascii())]
    return [attrs.evolve(ask, stream=True) for ask in audit.greedy_asks(prompts[-audit.budget.few :])]


@promise("a stream equals the whole answer")
def _streams(audit: Audit) -> Report:
    streams = _stream_asks(audit)
    asks = [attrs.evolve(ask, stream=False) for ask in streams]
    ask_plain(audit, streams[:1])
    whole, pieces = ask_drafts(audit, asks, 1), ask_drafts(audit, streams, 1)
    differing = [(a, w, s) for a, w, s in zip(streams, whole, pieces, strict=True) if w.text != s.text]
    if differing and (audit.facts.floor[1] or audit.facts.greedy[1]):
        return judge_texts(audit, asks, whole, pieces)
    if differing:
        ask, w, s = differing[0]
        shown = f"as {s.text[-30:]!r} from {w.text[-30:]!r}"
        raise Failed(f"{share(len(differing), asks)} streams differ, {shown}", ask)
    return f"{share(len(asks), asks)} streams are equal", "finds one character"


@promise("characters are whole")
def _characters(audit: Audit) -> Report:
    """No stream has replacement characters that the plain one lacks."""
    asks = _stream_asks(audit)
    plain, drafts = ask_plain(audit, asks, 1), ask_drafts(audit, asks, 1)
    broken = [a for a, p, d in zip(asks, plain, drafts, strict=True) if d.text.count(CUT) > p.text.count(CUT)]
    detail = f"{share(len(broken), asks)} streams have replacement characters that the plain one lacks"
    if broken:
        raise Failed(detail, broken[0])
    return detail, "finds one character"
