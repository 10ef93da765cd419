"""Runs the checks of an audit in order, the floor first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from types import ModuleType

from spec_commands.http_client import Unreachable

from spec_audit.asks import DRAFTS, PLAIN
from spec_audit.audit import Audit
from spec_audit.budget import Budget, Cost
from spec_audit.checks import (
    accounts,
    comparable,
    distributions,
    greedy,
    logprobs,
    parameters,
    speed,
    state,
    structured,
)
from spec_audit.promise import stopped_verdict
from spec_audit.statistics import ALPHA
from spec_audit.verdict import Result, Section, Speed
from spec_core.errors import UsageError

CHECKS: Sequence[ModuleType] = (
    comparable, greedy, distributions, parameters, state, logprobs, structured, accounts,
)  # fmt: skip
"""Checks in order; each has a title, a cost, and ``run``."""


def cost_of(budget: Budget) -> Cost:
    """The most that an audit asks for."""
    return reduce(add, (check.cost(budget) for check in (*CHECKS, speed)))


def run_audit(audit: Audit, checks: Sequence[ModuleType] = CHECKS, with_speed: bool = True) -> Result:
    """The result of the checks. The first one must be the floor."""
    audit.session.cost_limit = cost_of(audit.budget)
    sections: list[Section] = []
    for check in checks:
        audit.on_check(check.TITLE)
        try:
            sections.append(check.run_check(audit))
        except Unreachable as error:
            sections.append(Section(check.TITLE, (stopped_verdict(audit, check.TITLE, error),)))
        if audit.stopped:
            break
        _check_arms(audit, len(sections) > 1)
    speeds: tuple[Speed, ...] = ()
    if with_speed and not audit.stopped:
        audit.on_check(speed.TITLE)
        speeds = speed.measure_speeds(audit)
    return Result(describe_facts(audit), tuple(sections), speeds)


def _check_arms(audit: Audit, texts: bool) -> None:
    """Raise UsageError if the plain arm drafted after all, or the other one did not: nothing was compared then.

    texts: whether whole texts were asked for.
    """
    session = audit.session
    if drafted := session.drafts["plain drafted"]:
        raise UsageError(
            f"the plain arm drafted {drafted} tokens: this was no comparison with plain decoding",
            hint="pass another --plain or --off",
        )
    if texts and session.drafts["drafts counted"] and not session.drafts["drafts drafted"]:
        raise UsageError(
            f"the server drafted nothing in {session.drafts['drafts counted']} answers: there is nothing to audit",
            hint="start it with drafts, or pass --prompts for which it drafts",
        )


def describe_facts(audit: Audit) -> dict[str, str]:
    """What the result depends on, in words."""
    session, facts = audit.session, audit.facts
    plain = session.arms[PLAIN]
    switch = f"the same, with {dict(plain.fields)}" if plain.fields else f"{plain.url}, {plain.model}"
    accepted = f"{session.drafts['drafts accepted']:,} of {session.drafts['drafts drafted']:,} draft tokens"
    counted = accepted if session.drafts["drafts counted"] else "not counted in the answers"
    return {
        "server": session.arms[DRAFTS].url,
        "plain": switch,
        "model": session.arms[DRAFTS].model or "not named",
        "API": session.api,
        "requests": f"{session.requests:,}",
        "generated tokens at most": f"{session.tokens:,}",
        "at once": str(session.concurrency),
        "seed": str(audit.seed),
        "false alarms": f"{100 * ALPHA:g} % of audits at most",
        "accepted": counted,
        "greedy floor": f"{facts.floor[1]} of {facts.floor[0]} plain texts differ between alone and at once",
        "greedy with drafts": f"{facts.greedy[0] - facts.greedy[1]} of {facts.greedy[0]} texts are exactly equal",
        "rounding": f"log-probabilities {facts.rounding:.3g} apart count as numerics",
    }
