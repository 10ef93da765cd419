"""What one request leaves for the next: prefixes, steps, lengths, cancelled streams, batches."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from spec_audit.asks import DRAFTS, PLAIN, Answer, Ask
from spec_audit.audit import Audit
from spec_audit.budget import Budget, Cost
from spec_audit.parity import compare_greedy, judge_texts, refusal
from spec_audit.verdict import Section, Verdict

TITLE = "State"
EVENTS = 3
"""Events of a stream before the client leaves."""
LONG = 2
"""A mixed text has this many times the tokens of others."""


def cost(budget: Budget) -> Cost:
    """The most that this check asks for, with the log-probabilities of texts that differ."""
    return Cost(24 * budget.few, 30 * budget.few * budget.tokens)


def run(audit: Audit) -> Section:
    """Compare sequences of requests, each with drafts and without."""
    return Section(TITLE, (_prefixes(audit), _mixed(audit), _lengths(audit), _cancelled(audit), _at_once(audit)))


def _prefixes(audit: Audit) -> Verdict:
    """A, then B with the same beginning, then A with its own answer: each as without drafts."""
    asks: list[Ask] = []
    for ask in audit.greedy_asks(audit.few("prefixes")):
        half = ask.prompt[: max(1, len(ask.prompt) // 2)]
        longer = ask.prompt + audit.texts.get(ask.prompt, "")
        asks += [attrs.evolve(ask, prompt=text) for text in (ask.prompt, half + "\n", longer)]
    return compare_greedy(audit, "prefixes A, B, A and its answer", asks, at_once=1)


def _mixed(audit: Audit) -> Verdict:
    """Long texts after a prompt that repeats a part of itself: steps with drafts and without follow each other."""
    asks = audit.greedy_asks(audit.few("mixed"))
    mixed = [
        attrs.evolve(
            a, prompt=f"{a.prompt}{audit.texts.get(a.prompt, '')}\n\n{a.prompt}", max_tokens=LONG * a.max_tokens
        )
        for a in asks
    ]
    return compare_greedy(audit, "steps with and without drafts in one text", mixed, at_once=1)


def _lengths(audit: Audit) -> Verdict:
    """A short prompt after a long one."""
    asks = audit.greedy_asks(audit.few("lengths"))
    long = "\n".join(ask.prompt for ask in asks)
    pairs = [x for a in asks for x in (attrs.evolve(a, prompt=f"{long}\n{a.prompt}", max_tokens=8), a)]
    return compare_greedy(audit, "a short prompt after a long one", pairs, at_once=1)


def _cancelled(audit: Audit) -> Verdict:
    """A stream that the client leaves, then the same prompt again."""
    promise = "after a cancelled stream"
    asks = audit.greedy_asks(audit.few("cancelled"))
    plain = audit.session.ask_each(asks)
    if verdict := refusal(promise, plain, (), audit, asks[0]):
        return verdict
    drafts: list[Answer] = []
    for ask in asks:
        other = asks[(asks.index(ask) + 1) % len(asks)]
        for cancelled in (ask, other):
            audit.session.ask(attrs.evolve(cancelled, side=DRAFTS, stream=True, events_max=EVENTS))
        drafts.append(audit.session.ask(ask.on(DRAFTS)))
    return judge_texts(audit, promise, asks, plain, drafts)


def _at_once(audit: Audit) -> Verdict:
    """The prompts at once, each twice."""
    asks: Sequence[Ask] = [ask.on(PLAIN) for ask in audit.greedy_asks(audit.few("at once")) for _ in range(2)]
    return compare_greedy(audit, f"{audit.session.concurrency} at once", asks)
