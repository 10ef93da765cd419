"""Parameters of requests hold with drafts: samplers, biases, penalties, stops, limits, seeds, n, streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from spec_audit.asks import DRAFTS, PLAIN, Answer, Ask
from spec_audit.audit import GREEDY, Audit
from spec_audit.budget import Budget, Cost
from spec_audit.parity import judge_texts, refusal
from spec_audit.verdict import FAILS, HOLDS, Section, Verdict, share, skip

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
STOP = 4
"""Characters of a stop text."""


def cost(budget: Budget) -> Cost:
    """The most that this check asks for."""
    texts = 3 * len(ONE_TOKEN) + 3 * len(SCORES) + 9 + 3 + 4
    limits = Cost(2 * len(LIMITS) * budget.few, 2 * budget.few * sum(LIMITS))
    sampled = Cost(5 * budget.few + 2, (3 * budget.few + 8) * SEED_TOKENS)
    return Cost(texts * budget.few, texts * budget.few * budget.tokens) + limits + sampled


def run(audit: Audit) -> Section:
    """Test each parameter that the server offers without drafts."""
    return Section(
        TITLE,
        (
            *(_one_token(audit, name, fields) for name, fields in ONE_TOKEN.items()),
            *(_scores(audit, name, fields) for name, fields in SCORES.items()),
            _stops(audit),
            _limits(audit),
            _seeds(audit),
            _several(audit),
            *_streams(audit),
        ),
    )


def _one_token(audit: Audit, name: str, fields: Mapping[str, Any]) -> Verdict:
    """Greedy texts by another sampler; differences are explained by the greedy request."""
    asks = audit.greedy_asks(audit.few("samplers"))
    sampled = [attrs.evolve(ask, fields=fields) for ask in asks]
    plain = audit.session.ask_all(sampled)
    if verdict := refusal(name, plain, (), audit, sampled[0]):
        return verdict
    if any(answer.text != audit.texts.get(ask.prompt) for ask, answer in zip(asks, plain, strict=True)):
        return skip(name, "it does not hold without drafts")
    drafts = audit.session.ask_all([ask.on(DRAFTS) for ask in sampled])
    verdict = judge_texts(audit, name, asks, plain, drafts)
    shown = audit.curls(sampled[0]) if verdict.status == FAILS else ()
    return attrs.evolve(verdict, requests=shown)


def _scores(audit: Audit, name: str, fields: Mapping[str, Any]) -> Verdict:
    """Greedy texts with changed scores, if the field has an effect without drafts."""
    asks = audit.greedy_asks(audit.few("scores"), **fields)
    plain = audit.session.ask_all(asks)
    if verdict := refusal(name, plain, (), audit, asks[0]):
        return verdict
    changed = [i for i, ask in enumerate(asks) if plain[i].text != audit.texts.get(ask.prompt)]
    if not changed:
        return skip(name, "it changes no text without drafts")
    drafts = audit.session.ask_all([ask.on(DRAFTS) for ask in asks])
    return judge_texts(audit, name, asks, plain, drafts, same_scores=False)


def _stops(audit: Audit) -> Verdict:
    """Stop texts from three places of each greedy text end it there, with drafts as without."""
    promise = "a stop text ends the text before it"
    asks: list[Ask] = []
    expected: list[str] = []
    for prompt in audit.few("stops"):
        text = audit.texts.get(str(prompt.given), "")
        for stop in dict.fromkeys(text[len(text) * k // 4 :][:STOP] for k in (1, 2, 3)):
            if not stop.strip():
                continue
            asks.append(Ask(PLAIN, str(prompt.given), audit.budget.tokens, {**GREEDY, "stop": [stop]}))
            expected.append(text[: text.index(stop)])
    if not asks:
        return skip(promise, "the texts are too short")
    plain = audit.session.ask_all(asks)
    if verdict := refusal(promise, plain, (), audit, asks[0]):
        return verdict
    kept = [i for i, answer in enumerate(plain) if answer.text == expected[i]]
    if not kept:
        return skip(promise, "it does not hold without drafts")
    asks, plain = [asks[i] for i in kept], [plain[i] for i in kept]
    drafts = audit.session.ask_all([ask.on(DRAFTS) for ask in asks])
    leaks = [(a, d) for a, d in zip(asks, drafts, strict=True) if not d.refused and a.fields["stop"][0] in d.text]
    if leaks:
        ask, answer = leaks[0]
        leak = f"{share(len(leaks), asks)} texts contain their stop text, as {answer.text[-30:]!r}"
        return Verdict(promise, FAILS, leak, "", audit.curls(ask))
    return judge_texts(audit, promise, asks, plain, drafts)


def _limits(audit: Audit) -> Verdict:
    """``max_tokens`` 1, 2 and 7: the text is a beginning of the greedy text, and usage counts no more tokens."""
    promise = "max_tokens 1, 2 and 7"
    asks = [Ask(PLAIN, str(p.given), limit, GREEDY) for p in audit.few("limits") for limit in LIMITS]
    plain = audit.session.ask_all(asks)
    drafts = audit.session.ask_all([ask.on(DRAFTS) for ask in asks])
    if verdict := refusal(promise, plain, drafts, audit, asks[0]):
        return verdict
    for ask, answer in zip(asks, drafts, strict=True):
        if (answer.completion_tokens or 0) > ask.max_tokens:
            detail = f"max_tokens {ask.max_tokens} was answered by {answer.completion_tokens} tokens"
            return Verdict(promise, FAILS, detail, "", audit.curls(ask))
    return judge_texts(audit, promise, asks, plain, drafts)


def _seeds(audit: Audit) -> Verdict:
    """With drafts too an equal seed gives an equal text, and another seed another one."""
    promise = "seeds repeat"
    if not (audit.facts.repeats and audit.facts.varies):
        return skip(promise, "it does not hold without drafts")
    numbers = audit.seeds("seeds with drafts")
    prompts = [str(p.given) for p in audit.few("seeds")]
    asks = [Ask(DRAFTS, p, SEED_TOKENS, {"temperature": 1.0, "seed": numbers.getrandbits(31)}) for p in prompts]
    first, again = audit.session.ask_all(asks), audit.session.ask_all(asks)
    others = [attrs.evolve(ask, fields={**ask.fields, "seed": numbers.getrandbits(31)}) for ask in asks]
    other = audit.session.ask_all(others)
    if verdict := refusal(promise, (), (*first, *again, *other), audit, asks[0]):
        return verdict
    equal = [i for i in range(len(asks)) if first[i].text == again[i].text]
    if all(x.text == y.text for x, y in zip(first, other, strict=True)):
        return Verdict(promise, FAILS, "every seed gives the same text", "", audit.curls(asks[0]))
    if len(equal) == len(asks):
        return Verdict(promise, HOLDS, f"{share(len(equal), asks)} texts repeat")
    broken = next(i for i in range(len(asks)) if i not in equal)
    if audit.facts.floor[1] or audit.facts.greedy[1]:
        return skip(promise, f"{share(len(equal), asks)} texts repeat; greedy texts differ too")
    return Verdict(promise, FAILS, f"{share(len(equal), asks)} texts repeat", "", audit.curls(asks[broken]))


def _several(audit: Audit) -> Verdict:
    """``n`` texts of one request are n different ones, if they are without drafts."""
    promise = "n texts of one request differ"
    if audit.facts.n == 1:
        return skip(promise, "n is not offered")
    prompt = next(iter(audit.few("several"))).given
    asks = [Ask(side, str(prompt), SEED_TOKENS, {"temperature": 1.0, "n": 4}) for side in (PLAIN, DRAFTS)]
    plain, drafts = audit.session.ask_each(asks)
    if verdict := refusal(promise, [plain], [drafts], audit, asks[0]):
        return verdict
    numbers = [len(set(answer.texts)) for answer in (plain, drafts)]
    if len(drafts.texts) != len(plain.texts) or (numbers[0] > 2 and numbers[1] == 1):
        detail = f"{numbers[1]} different texts with drafts, {numbers[0]} without"
        return Verdict(promise, FAILS, detail, "", audit.curls(asks[1]))
    return Verdict(promise, HOLDS, f"{numbers[1]} different texts with drafts, {numbers[0]} without")


def _streams(audit: Audit) -> Sequence[Verdict]:
    """A stream has the text of the whole answer, and no character is cut in two."""
    promise, characters = "a stream equals the whole answer", "characters are whole"
    prompts = [*audit.few("streams"), *(p for p in audit.prompts if not str(p.given).isascii())]
    asks = audit.greedy_asks(prompts[-audit.budget.few :])
    whole = audit.session.ask_each([ask.on(DRAFTS) for ask in asks])
    streams = audit.session.ask_each([attrs.evolve(ask, side=DRAFTS, stream=True) for ask in asks])
    plain = audit.session.ask_each([attrs.evolve(ask, stream=True) for ask in asks])
    for name in (promise, characters):
        if verdict := refusal(name, (), (*whole, *streams), audit, asks[0]):
            return [verdict]
    broken = [
        i for i in range(len(asks)) if _marks(streams[i]) > _marks(plain[i]) and _marks(streams[i]) > _marks(whole[i])
    ]
    stream = attrs.evolve(asks[broken[0] if broken else 0], stream=True)
    detail = f"{share(len(broken), asks)} streams have replacement characters that the plain stream lacks"
    cut = Verdict(characters, FAILS if broken else HOLDS, detail, "", audit.curls(stream) if broken else ())
    exact = [attrs.evolve(ask, stream=True) for ask in asks]
    return [_judge_streams(audit, promise, exact, whole, streams), cut]


def _judge_streams(
    audit: Audit, promise: str, asks: Sequence[Ask], whole: Sequence[Answer], streams: Sequence[Answer]
) -> Verdict:
    differing = [i for i in range(len(asks)) if whole[i].text != streams[i].text]
    if not differing:
        return Verdict(promise, HOLDS, f"{share(len(asks), asks)} streams are equal")
    if audit.facts.floor[1] or audit.facts.greedy[1]:
        return judge_texts(audit, promise, asks, whole, streams)
    one = differing[0]
    detail = (
        f"{share(len(differing), asks)} streams differ, as {streams[one].text[-30:]!r} from {whole[one].text[-30:]!r}"
    )
    return Verdict(promise, FAILS, detail, "", audit.curls(asks[one]))


def _marks(answer: Answer) -> int:
    return answer.text.count("\ufffd")
