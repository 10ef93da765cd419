"""What one request leaves for the next: prefixes, steps, lengths, cancelled streams, batches."""

from __future__ import annotations

import attrs
from spec_commands.servers.answers import Answer

from spec_audit.asks import DRAFTS, Ask
from spec_audit.audit import Audit
from spec_audit.budget import Budget, Cost
from spec_audit.parity import compare_greedy, judge_texts
from spec_audit.promise import Report, ask_drafts, ask_plain, promise
from spec_audit.verdict import Section

TITLE = "State"
EVENTS = 3
"""Events of a stream before the client leaves."""
LONG = 2
"""A mixed text has this many times the tokens of others."""


def cost(budget: Budget) -> Cost:
    """The most that this check asks for, with the log-probabilities of texts that differ."""
    return Cost(27 * budget.few, 32 * budget.few * budget.tokens)


def run_check(audit: Audit) -> Section:
    """Compare sequences of requests, each with drafts and without."""
    tests = (_prefixes, _mixed_steps, _lengths, _after_cancelling)
    return Section(TITLE, (*(test(audit) for test in tests), _at_once(audit, audit.session.concurrency)))


@promise("prefixes A, B, A and its answer")
def _prefixes(audit: Audit) -> Report:
    """A, then B with the same beginning, then A with its own answer: each as without drafts."""
    asks: list[Ask] = []
    for ask in audit.greedy_asks(audit.few("prefixes")):
        half = ask.prompt[: max(1, len(ask.prompt) // 2)]
        longer = ask.prompt + audit.texts.get(ask.prompt, "")
        asks += [attrs.evolve(ask, prompt=text) for text in (ask.prompt, half + "\n", longer)]
    return compare_greedy(audit, asks, at_once=1)


@promise("steps with and without drafts in one text")
def _mixed_steps(audit: Audit) -> Report:
    """Long texts after a prompt that repeats a part of itself: steps with drafts and without follow each other."""
    asks = [
        attrs.evolve(
            ask,
            prompt=f"{ask.prompt}{audit.texts.get(ask.prompt, '')}\n\n{ask.prompt}",
            max_tokens=LONG * ask.max_tokens,
        )
        for ask in audit.greedy_asks(audit.few("mixed"))
    ]
    return compare_greedy(audit, asks, at_once=1)


@promise("a short prompt after a long one")
def _lengths(audit: Audit) -> Report:
    asks = audit.greedy_asks(audit.few("lengths"))
    long = "\n".join(ask.prompt for ask in asks)
    pairs = [x for a in asks for x in (attrs.evolve(a, prompt=f"{long}\n{a.prompt}", max_tokens=8), a)]
    return compare_greedy(audit, pairs, at_once=1)


@promise("after a cancelled stream")
def _after_cancelling(audit: Audit) -> Report:
    """Streams that the client leaves, then the first prompt again."""
    asks = audit.greedy_asks(audit.few("cancelled"))
    plain = ask_plain(audit, asks, 1)
    drafts: list[Answer] = []
    for i, ask in enumerate(asks):
        for cancelled in (ask, asks[(i + 1) % len(asks)]):
            audit.session.ask(attrs.evolve(cancelled, side=DRAFTS, stream=True, events_max=EVENTS))
        drafts += ask_drafts(audit, [ask])
    return judge_texts(audit, asks, plain, drafts)


@promise("{0} requests at once")
def _at_once(audit: Audit, at_once: int) -> Report:
    """Each prompt twice, all at once."""
    asks = [ask for ask in audit.greedy_asks(audit.few("at once")) for _ in range(2)]
    return compare_greedy(audit, asks, at_once)
