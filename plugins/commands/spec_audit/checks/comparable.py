"""What can be compared: the server against itself, without drafts. Every later verdict is against this floor."""

from __future__ import annotations

import attrs

from spec_audit.asks import DRAFTS, PLAIN, Answer, Ask
from spec_audit.audit import ROUNDING, Audit
from spec_audit.budget import Budget, Cost
from spec_audit.parity import explain
from spec_audit.verdict import HOLDS, SKIPPED, Section, Verdict, share, skip

TITLE = "What can be compared"
N = (16, 8, 4)
"""Texts of one request, the largest first."""
SEED_TOKENS = 16


def cost(budget: Budget) -> Cost:
    """The most that this check asks for."""
    greedy = Cost(3 * budget.prompts, 3 * budget.prompts * budget.tokens)
    logprobs = Cost(3 * budget.few, 3 * budget.few * budget.tokens)
    return greedy + logprobs + Cost(3 * budget.few, 3 * budget.few * SEED_TOKENS) + Cost(6, 60)


def run(audit: Audit) -> Section:
    """Measure the floor, and what the server offers; the facts of the audit are set from here."""
    return Section(TITLE, (_greedy_floor(audit), _logprobs(audit), _seeds(audit), _several(audit)))


def _greedy_floor(audit: Audit) -> Verdict:
    """Plain greedy texts one after the other, and the same at once."""
    promise = "plain texts repeat"
    asks = audit.greedy_asks(audit.prompts)
    alone = audit.session.ask_each(asks)
    together = audit.session.ask_all(asks)
    if first := next((answer for answer in (*alone, *together) if answer.refused), None):
        return skip(promise, f"refused ({first.status}): {first.error}")
    audit.texts = {str(p.given): answer.text for p, answer in zip(audit.prompts, alone, strict=True)}
    pairs = [(a, x.text, y.text) for a, x, y in zip(asks, alone, together, strict=True) if x.text != y.text]
    audit.facts.floor = (len(asks), len(pairs))
    equal = (
        f"{share(len(asks) - len(pairs), asks)} plain texts are the same alone and {audit.session.concurrency} at once"
    )
    if not pairs:
        return Verdict(promise, HOLDS, equal)
    audit.facts.logprobs = True  # to ask; the next check says whether they are offered
    gaps = [gap for gap in (explain(audit, *pair).gap for pair in pairs) if gap is not None]
    audit.facts.rounding = max([ROUNDING, *(1.5 * gap for gap in gaps)])
    shown = f"; they differ at gaps of at most {max(gaps):.3g}" if gaps else ""
    return skip(promise, f"{equal}{shown}: this is the floor of all greedy texts")


def _logprobs(audit: Audit) -> Verdict:
    """Log-probabilities of plain texts, alone and at once."""
    promise = "log-probabilities without drafts"
    asks = audit.greedy_asks(audit.few("logprobs"), logprobs=2)
    alone = audit.session.ask_each(asks)
    audit.facts.logprobs = all(not answer.refused and answer.tokens for answer in alone)
    if not audit.facts.logprobs:
        first = alone[0]
        return skip(promise, f"refused ({first.status}): {first.error}" if first.refused else "not in the answer")
    together = audit.session.ask_all(asks)
    drafts = audit.session.ask(asks[0].on(DRAFTS))
    audit.facts.draft_logprobs = not drafts.refused and bool(drafts.tokens)
    furthest = max([0.0, *(logprob_difference(x, y) for x, y in zip(alone, together, strict=True))])
    audit.facts.rounding = max(audit.facts.rounding, 4 * furthest)
    return Verdict(promise, HOLDS, f"alone and at once they differ by at most {furthest:.2g}")


def logprob_difference(one: Answer, other: Answer) -> float:
    """The largest difference of log-probabilities while the tokens are equal."""
    pairs = list(zip(one.tokens or (), other.tokens or (), strict=False))
    equal = next((i for i, (x, y) in enumerate(pairs) if x.text != y.text), len(pairs))
    return max((abs(x.logprob - y.logprob) for x, y in pairs[:equal]), default=0.0)


def _seeds(audit: Audit) -> Verdict:
    """Whether an equal seed gives an equal text, and another seed another one."""
    promise = "seeds hold without drafts"
    numbers = audit.seeds("seeds")
    asks = [
        Ask(PLAIN, str(p.given), SEED_TOKENS, {"temperature": 1.0, "seed": numbers.getrandbits(31)})
        for p in audit.few("seeds")
    ]
    first = audit.session.ask_all(asks)
    if refused := next((answer for answer in first if answer.refused), None):
        return skip(promise, f"refused ({refused.status}): {refused.error}")
    audit.facts.seed = True
    again = audit.session.ask_all(asks)
    others = [attrs.evolve(ask, fields={**ask.fields, "seed": numbers.getrandbits(31)}) for ask in asks]
    other = audit.session.ask_all(others)
    equal = sum(x.text == y.text for x, y in zip(first, again, strict=True))
    audit.facts.repeats = equal == len(asks)
    audit.facts.varies = any(x.text != y.text for x, y in zip(first, other, strict=True))
    if audit.facts.repeats and audit.facts.varies:
        return Verdict(promise, HOLDS, f"{share(equal, asks)} texts repeat, and other seeds give other texts")
    why = f"{share(equal, asks)} texts repeat" + ("" if audit.facts.varies else "; other seeds give the same texts")
    return Verdict(promise, SKIPPED, f"{why}: no promise on seeds is tested")


def _several(audit: Audit) -> Verdict:
    """The largest number of texts of one request that both arms offer."""
    promise = "several texts of one request"
    refused = ""
    for n in N:
        asks = [Ask(side, str(audit.prompts[0].given), 1, {"temperature": 1.0, "n": n}) for side in (PLAIN, DRAFTS)]
        answers = audit.session.ask_each(asks)
        if all(len(answer.texts) == n for answer in answers):
            audit.facts.n = n
            return Verdict(promise, HOLDS, f"n = {n}")
        refused = next((answer.error for answer in answers if answer.refused), refused)
    return skip(promise, f"refused: {refused}" if refused else "n is ignored")
