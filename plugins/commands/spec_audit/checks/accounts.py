"""What a server says of its texts: usage, and how many draft tokens were accepted."""

from __future__ import annotations

import attrs

from spec_audit.asks import DRAFTS, Answer, Ask
from spec_audit.audit import Audit
from spec_audit.budget import Budget, Cost
from spec_audit.metrics import read_counters
from spec_audit.parity import refusal
from spec_audit.verdict import FAILS, HOLDS, Section, Verdict, share, skip

TITLE = "Accounts"


def cost(budget: Budget) -> Cost:
    """The most that this check asks for."""
    return Cost(6 * budget.few, 6 * budget.few * budget.tokens)


def run(audit: Audit) -> Section:
    """Compare usage with the text's tokens, then read what the server counts of drafts."""
    asks = audit.greedy_asks(audit.few("accounts"))
    plain = audit.session.ask_each(asks)
    before = read_counters(audit.session.clients[DRAFTS])
    drafts = audit.session.ask_each([ask.on(DRAFTS) for ask in asks])
    after = read_counters(audit.session.clients[DRAFTS])
    counted: dict[str, float] = {} if before is None or after is None else after - before
    if refused := refusal("usage", plain, drafts, audit, asks[0]):
        return Section(TITLE, (refused,))
    usage = _usage(audit, asks, plain, drafts)
    return Section(TITLE, (usage, _streamed(audit, asks, drafts), _tokens(audit), _acceptance(audit, drafts, counted)))


def _usage(audit: Audit, asks: list[Ask], plain: list[Answer], drafts: list[Answer]) -> Verdict:
    """Equal texts have equal usage."""
    promise = "usage equals that without drafts"
    pairs = [(a, p, d) for a, p, d in zip(asks, plain, drafts, strict=True) if p.text == d.text]
    if not any(p.completion_tokens for _, p, _ in pairs):
        return skip(promise, "no usage in the answers" if pairs else "no text is equal")
    for ask, p, d in pairs:
        if (p.completion_tokens, p.prompt_tokens) != (d.completion_tokens, d.prompt_tokens):
            detail = f"{d.completion_tokens} tokens with drafts, {p.completion_tokens} without, for the same text"
            return Verdict(promise, FAILS, detail, "", audit.curls(ask))
    return Verdict(promise, HOLDS, f"{share(len(pairs), asks)} texts are equal and have equal usage", "finds one token")


def _streamed(audit: Audit, asks: list[Ask], whole: list[Answer]) -> Verdict:
    """The last chunk of a stream has the usage of the whole answer."""
    promise = "usage of streams"
    streams = audit.session.ask_each([attrs.evolve(ask, side=DRAFTS, stream=True) for ask in asks])
    pairs = [(a, w, s) for a, w, s in zip(asks, whole, streams, strict=True) if w.text == s.text]
    if not any(s.completion_tokens for _, _, s in pairs):
        return skip(promise, "no usage in the streams")
    for ask, w, s in pairs:
        if w.completion_tokens != s.completion_tokens:
            detail = f"{s.completion_tokens} tokens in a stream, {w.completion_tokens} at once, for the same text"
            return Verdict(promise, FAILS, detail, "", audit.curls(attrs.evolve(ask, stream=True)))
    return Verdict(promise, HOLDS, f"{share(len(pairs), asks)} streams have the usage of the whole answer")


def _tokens(audit: Audit) -> Verdict:
    """Usage counts the tokens that have log-probabilities, with as many off as without drafts."""
    promise = "usage counts the tokens of the text"
    if not audit.facts.draft_logprobs:
        return skip(promise, "log-probabilities are not offered with drafts")
    asks = audit.greedy_asks(audit.few("accounts"), logprobs=2)
    plain = audit.session.ask_each(asks)
    drafts = audit.session.ask_each([ask.on(DRAFTS) for ask in asks])
    if verdict := refusal(promise, plain, drafts, audit, asks[0]):
        return verdict
    for ask, p, d in zip(asks, plain, drafts, strict=True):
        if p.text == d.text and _surplus(p) != _surplus(d):
            detail = f"usage counts {d.completion_tokens} tokens, the answer has {len(d.tokens or ())}"
            return Verdict(promise, FAILS, detail, "", audit.curls(ask))
    return Verdict(promise, HOLDS, f"{len(asks)} texts have the tokens that usage counts")


def _surplus(answer: Answer) -> int:
    return (answer.completion_tokens or 0) - len(answer.tokens or ())


def _acceptance(audit: Audit, drafts: list[Answer], counted: dict[str, float]) -> Verdict:
    """Counts of drafts fit together; the mean acceptance length by both definitions."""
    promise = "counts of draft tokens"
    accepted: float | None = counted.get("accepted")
    drafted, steps = counted.get("drafted"), counted.get("drafts")
    if accepted is None and any(answer.accepted is not None for answer in drafts):
        accepted = sum(answer.accepted or 0 for answer in drafts)
        drafted = sum(answer.drafted or 0 for answer in drafts)
    if accepted is None or drafted is None:
        return skip(promise, "neither the answers nor /metrics count them")
    tokens = sum(answer.completion_tokens or 0 for answer in drafts)
    audit.facts.accepted, audit.facts.drafted = int(accepted), int(drafted)
    lengths = [f"{tokens / (tokens - accepted):.3g} tokens per step"] if tokens > accepted else []
    if steps:
        lengths.append(f"{1 + accepted / steps:.3g} per step with a draft (vLLM's definition)")
    detail = f"{accepted:.0f} of {drafted:.0f} draft tokens accepted in {tokens} tokens; {', '.join(lengths)}"
    if accepted > drafted or (tokens and accepted > tokens):
        return Verdict(promise, FAILS, detail, "", audit.curls(audit.greedy_asks(audit.few("accounts"))[0]))
    return Verdict(promise, HOLDS, detail)
