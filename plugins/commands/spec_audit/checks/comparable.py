"""What can be compared: the server against itself, without drafts. Every later verdict is against this floor."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isnan

import attrs
from spec_commands.servers.answers import Answer, Token

from spec_audit.asks import DRAFTS, PLAIN, Ask
from spec_audit.audit import ROUNDING, Audit
from spec_audit.budget import Budget, Cost
from spec_audit.parity import explain_difference
from spec_audit.promise import Report, Skipped, ask_plain, promise
from spec_audit.verdict import Section, share

TITLE = "What can be compared"
N = (16, 8, 4)
"""Texts of one request, the largest first."""
SEED_TOKENS = 16


def cost(budget: Budget) -> Cost:
    """The most that this check asks for."""
    greedy = Cost(3 * budget.prompts, 3 * budget.prompts * budget.tokens)
    logprobs = Cost(3 * budget.few, 3 * budget.few * budget.tokens)
    return greedy + logprobs + Cost(3 * budget.few, 3 * budget.few * SEED_TOKENS) + Cost(6, 60)


def run_check(audit: Audit) -> Section:
    """Measure the floor, and what the server offers; the facts of the audit are set from here."""
    return Section(TITLE, (_repeat(audit), _logprobs(audit), _seeds(audit), _largest_count(audit)))


@promise("plain texts repeat")
def _repeat(audit: Audit) -> Report:
    """Plain greedy texts one after the other, and the same at once."""
    asks = audit.greedy_asks(audit.prompts)
    alone, together = ask_plain(audit, asks, 1), ask_plain(audit, asks)
    audit.texts = {str(p.given): answer.text for p, answer in zip(audit.prompts, alone, strict=True)}
    pairs = [(a, x.text, y.text) for a, x, y in zip(asks, alone, together, strict=True) if x.text != y.text]
    audit.facts.floor = (len(asks), len(pairs))
    how = f"alone and {audit.session.concurrency} at once"
    equal = f"{share(len(asks) - len(pairs), asks)} plain texts are the same {how}"
    if not pairs:
        return equal, ""
    gaps = [gap for gap in (explain_difference(audit, *pair).gap for pair in pairs) if gap is not None]
    audit.facts.rounding = max([ROUNDING, *(1.5 * gap for gap in gaps)])
    shown = f"; they differ at gaps of at most {max(gaps):.3g}" if gaps else ""
    raise Skipped(f"{equal}{shown}: this is the floor of all greedy texts")


@promise("log-probabilities without drafts")
def _logprobs(audit: Audit) -> Report:
    """Log-probabilities of plain texts, alone and at once."""
    asks = audit.greedy_asks(audit.few("logprobs"), logprobs=2)
    alone = ask_plain(audit, asks, 1)
    audit.facts.logprobs = all(answer.tokens for answer in alone)
    if not audit.facts.logprobs:
        raise Skipped("not in the answer")
    together = ask_plain(audit, asks)
    audit.facts.draft_logprobs = bool(audit.session.ask(asks[0].on(DRAFTS)).tokens)
    furthest = max([0.0, *(logprob_difference(x, y) for x, y in zip(alone, together, strict=True))])
    audit.facts.rounding = max(audit.facts.rounding, 4 * furthest)
    return f"alone and at once they differ by at most {furthest:.2g}", ""


def logprob_difference(one: Answer, other: Answer) -> float:
    """The largest difference of log-probabilities while the tokens are equal; infinite for what is no number."""
    pairs = list(zip(one.tokens or (), other.tokens or (), strict=False))
    equal = next((i for i, (x, y) in enumerate(pairs) if x.text != y.text), len(pairs))
    return largest_difference(pairs[:equal])


def largest_difference(pairs: Iterable[tuple[Token, Token]]) -> float:
    """The largest difference of log-probabilities; infinite for what is no number."""
    apart = [0.0 if x.logprob == y.logprob else abs(x.logprob - y.logprob) for x, y in pairs]
    return max((inf if isnan(one) else one for one in apart), default=0.0)


@promise("seeds hold without drafts")
def _seeds(audit: Audit) -> Report:
    """Whether an equal seed gives an equal text, and another seed another one."""
    numbers = audit.seeds("seeds")
    asks = [
        Ask(PLAIN, str(p.given), SEED_TOKENS, {"temperature": 1.0, "seed": numbers.getrandbits(31)})
        for p in audit.few("seeds")
    ]
    first = ask_plain(audit, asks)
    audit.facts.seed = True
    again = ask_plain(audit, asks)
    others = [attrs.evolve(ask, fields={**ask.fields, "seed": numbers.getrandbits(31)}) for ask in asks]
    other = ask_plain(audit, others)
    equal = sum(x.text == y.text for x, y in zip(first, again, strict=True))
    audit.facts.repeats = equal == len(asks)
    audit.facts.varies = any(x.text != y.text for x, y in zip(first, other, strict=True))
    if audit.facts.repeats and audit.facts.varies:
        return f"{share(equal, asks)} texts repeat, and other seeds give other texts", ""
    why = f"{share(equal, asks)} texts repeat" + ("" if audit.facts.varies else "; other seeds give the same texts")
    raise Skipped(f"{why}: no promise on seeds is tested")


@promise("several texts of one request")
def _largest_count(audit: Audit) -> Report:
    """The largest number of texts of one request that both arms offer."""
    refused = ""
    for n in N:
        asks = [Ask(side, str(audit.prompts[0].given), 1, {"temperature": 1.0, "n": n}) for side in (PLAIN, DRAFTS)]
        answers = audit.session.ask_all(asks, 1)
        if all(len(answer.texts) == n for answer in answers):
            audit.facts.n = n
            return f"n = {n}", ""
        refused = next((answer.error for answer in answers if answer.refused), refused)
    raise Skipped(f"refused: {refused}" if refused else "n is ignored")
