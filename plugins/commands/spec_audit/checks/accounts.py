"""What a server says of its texts: usage, and how many draft tokens were accepted."""

from __future__ import annotations

import attrs
from spec_commands.servers.answers import Answer
from spec_commands.servers.counters import read_counters

from spec_audit.asks import DRAFTS
from spec_audit.audit import Audit
from spec_audit.budget import Budget, Cost
from spec_audit.promise import Failed, Report, Skipped, ask_drafts, ask_plain, promise
from spec_audit.verdict import Section, share

TITLE = "Accounts"


def cost(budget: Budget) -> Cost:
    """The most that this check asks for."""
    return Cost(7 * budget.few, 7 * budget.few * budget.tokens)


def run_check(audit: Audit) -> Section:
    """Compare usage with the text's tokens, then read what the server counts of drafts."""
    tests = (_usage, _stream_usage, _tokens, _acceptance)
    return Section(TITLE, tuple(test(audit) for test in tests))


@promise("usage equals that without drafts")
def _usage(audit: Audit) -> Report:
    """Equal texts have equal usage."""
    asks = audit.greedy_asks(audit.few("accounts"))
    plain, drafts = ask_plain(audit, asks, 1), ask_drafts(audit, asks, 1)
    pairs = [(a, p, d) for a, p, d in zip(asks, plain, drafts, strict=True) if p.text == d.text]
    if not any(p.completion_tokens for _, p, _ in pairs):
        raise Skipped("no usage in the answers" if pairs else "no text is equal")
    for ask, p, d in pairs:
        if (p.completion_tokens, p.prompt_tokens) != (d.completion_tokens, d.prompt_tokens):
            numbers = f"{d.completion_tokens} tokens with drafts, {p.completion_tokens} without"
            raise Failed(f"{numbers}, for the same text", ask)
    return f"{share(len(pairs), asks)} texts are equal and have equal usage", "finds one token"


@promise("usage of streams")
def _stream_usage(audit: Audit) -> Report:
    """The last chunk of a stream has the usage of the whole answer."""
    asks = audit.greedy_asks(audit.few("accounts"))
    whole = ask_drafts(audit, asks, 1)
    streams = ask_drafts(audit, [attrs.evolve(ask, stream=True) for ask in asks], 1)
    pairs = [(a, w, s) for a, w, s in zip(asks, whole, streams, strict=True) if w.text == s.text]
    if not any(s.completion_tokens for _, _, s in pairs):
        raise Skipped("no usage in the streams")
    for ask, w, s in pairs:
        if w.completion_tokens != s.completion_tokens:
            numbers = f"{s.completion_tokens} tokens in a stream, {w.completion_tokens} at once"
            raise Failed(f"{numbers}, for the same text", attrs.evolve(ask, stream=True))
    return f"{share(len(pairs), asks)} streams have the usage of the whole answer", "finds one token"


@promise("usage counts the tokens of the text")
def _tokens(audit: Audit) -> Report:
    """Usage and tokens with log-probabilities differ by the same number as without drafts."""
    if not audit.facts.draft_logprobs:
        raise Skipped("log-probabilities are not offered with drafts")
    asks = audit.greedy_asks(audit.few("accounts"), logprobs=2)
    plain, drafts = ask_plain(audit, asks, 1), ask_drafts(audit, asks, 1)
    for ask, p, d in zip(asks, plain, drafts, strict=True):
        if p.text == d.text and _surplus(p) != _surplus(d):
            raise Failed(f"usage counts {d.completion_tokens} tokens, the answer has {len(d.tokens or ())}", ask)
    return f"{len(asks)} texts have the tokens that usage counts", "finds one token"


def _surplus(answer: Answer) -> int:
    return (answer.completion_tokens or 0) - len(answer.tokens or ())


@promise("counts of draft tokens")
def _acceptance(audit: Audit) -> Report:
    """Counts of drafts fit together; the mean acceptance length by both definitions."""
    asks = audit.greedy_asks(audit.few("accounts"))
    before = read_counters(audit.session.clients[DRAFTS])
    drafts = ask_drafts(audit, asks, 1)
    after = read_counters(audit.session.clients[DRAFTS])
    counted = {} if before is None or after is None else after - before
    accepted, drafted, steps = (counted.get(name) for name in ("accepted", "drafted", "drafts"))
    if not drafted and any(answer.accepted is not None for answer in drafts):
        accepted = sum(answer.accepted or 0 for answer in drafts)
        drafted = sum(answer.drafted or 0 for answer in drafts)
    if after is not None and after.length is not None:
        return f"mean acceptance length {after.length:.3g} since the server started (SGLang's gauge)", ""
    if accepted is None or not drafted:
        raise Skipped("neither the answers nor /metrics count any in these texts")
    tokens = sum(answer.completion_tokens or 0 for answer in drafts)
    lengths = [f"{tokens / (tokens - accepted):.3g} tokens per step"] if tokens > accepted else []
    if steps:
        lengths.append(f"{1 + accepted / steps:.3g} per step with a draft (vLLM's definition)")
    detail = f"{accepted:.0f} of {drafted:.0f} draft tokens accepted in {tokens} tokens; {', '.join(lengths)}"
    if accepted > drafted or (tokens and accepted > tokens):
        raise Failed(detail, asks[0])
    return detail, ""
