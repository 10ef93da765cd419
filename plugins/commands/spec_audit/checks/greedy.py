"""Greedy texts with drafts equal those without, within the floor; exact equality is reported apart."""

from __future__ import annotations

from spec_audit.asks import DRAFTS
from spec_audit.audit import Audit
from spec_audit.budget import Budget, Cost
from spec_audit.parity import judge_texts
from spec_audit.verdict import Section, Verdict

TITLE = "Greedy texts"


def cost(budget: Budget) -> Cost:
    """The most that this check asks for: each text, and its log-probabilities if it differs."""
    return Cost(3 * budget.prompts, 3 * budget.prompts * budget.tokens)


def run(audit: Audit) -> Section:
    """Compare the text of every prompt, by category."""
    asks = audit.greedy_asks(audit.prompts)
    plain = audit.session.ask_each(asks)
    drafts = audit.session.ask_each([ask.on(DRAFTS) for ask in asks])
    differing = sum(p.text != d.text for p, d in zip(plain, drafts, strict=True))
    audit.facts.greedy = audit.facts.floor
    verdicts: list[Verdict] = []
    for family in dict.fromkeys(prompt.family for prompt in audit.prompts):
        places = [i for i, prompt in enumerate(audit.prompts) if prompt.family == family]
        own = [asks[i] for i in places], [plain[i] for i in places], [drafts[i] for i in places]
        verdicts.append(judge_texts(audit, f"greedy texts of {family}", *own, by_number=False))
    audit.facts.greedy = (len(asks), max(differing, audit.facts.floor[1]))
    return Section(TITLE, tuple(verdicts))
