"""Greedy texts with drafts equal those without, within the floor; exact equality is reported apart."""

from __future__ import annotations

from spec_audit.audit import Audit
from spec_audit.budget import Budget, Cost
from spec_audit.parity import judge_texts
from spec_audit.promise import Report, ask_drafts, ask_plain, promise
from spec_audit.verdict import Section

TITLE = "Greedy texts"


def cost(budget: Budget) -> Cost:
    """The most that this check asks for: each text, and its log-probabilities if it differs."""
    return Cost(3 * budget.prompts, 3 * budget.prompts * budget.tokens)


def run_check(audit: Audit) -> Section:
    """Compare the text of every prompt, by category; the facts of the audit get the number of all differences."""
    audit.facts.greedy = audit.facts.floor
    families = dict.fromkeys(prompt.family for prompt in audit.prompts)
    differing: list[str] = []
    verdicts = tuple(_family(audit, family, differing) for family in families)
    audit.facts.greedy = (len(audit.prompts), max(len(differing), audit.facts.floor[1]))
    return Section(TITLE, verdicts)


@promise("greedy texts of {0}")
def _family(audit: Audit, family: str, differing: list[str]) -> Report:
    """The texts of a category. differing: gets the texts that are not equal."""
    asks = audit.greedy_asks([prompt for prompt in audit.prompts if prompt.family == family])
    plain, drafts = ask_plain(audit, asks, 1), ask_drafts(audit, asks, 1)
    differing += [p.text for p, d in zip(plain, drafts, strict=True) if p.text != d.text]
    return judge_texts(audit, asks, plain, drafts, by_number=False)
