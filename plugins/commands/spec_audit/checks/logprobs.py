"""Log-probabilities with drafts equal those without, within the floor, and those of an echoed prompt."""

from __future__ import annotations

from spec_audit.asks import DRAFTS, Ask
from spec_audit.audit import GREEDY, Audit
from spec_audit.budget import Budget, Cost
from spec_audit.checks.comparable import logprob_difference
from spec_audit.parity import refusal
from spec_audit.verdict import FAILS, HOLDS, Section, Verdict, skip

TITLE = "Log-probabilities"


def cost(budget: Budget) -> Cost:
    """The most that this check asks for."""
    return Cost(4 * budget.few, 4 * budget.few * budget.tokens)


def run(audit: Audit) -> Section:
    """Compare them token by token on greedy texts."""
    return Section(TITLE, (_generated(audit), _echoed(audit)))


def _generated(audit: Audit) -> Verdict:
    promise = "log-probabilities of generated tokens"
    if not audit.facts.logprobs:
        return skip(promise, "not offered without drafts")
    asks = audit.greedy_asks(audit.few("logprobs"), logprobs=2)
    plain = audit.session.ask_each(asks)
    drafts = audit.session.ask_each([ask.on(DRAFTS) for ask in asks])
    if verdict := refusal(promise, plain, drafts, audit, asks[0]):
        return verdict
    if not any(answer.tokens for answer in drafts):
        return skip(promise, "not in the answers with drafts")
    furthest, worst = max(
        ((logprob_difference(x, y), i) for i, (x, y) in enumerate(zip(plain, drafts, strict=True))), default=(0.0, 0)
    )
    detail = f"they differ by at most {furthest:.2g}"
    power = f"finds a difference above {audit.facts.rounding:.2g}"
    if furthest > audit.facts.rounding:
        return Verdict(promise, FAILS, detail, power, audit.curls(asks[worst]))
    return Verdict(promise, HOLDS, detail, power)


def _echoed(audit: Audit) -> Verdict:
    """Those of generated tokens equal those of the same text as an echoed prompt."""
    promise = "log-probabilities against echo"
    if not audit.facts.draft_logprobs or audit.session.api == "chat":
        return skip(promise, "not offered")
    furthest, compared, shown = 0.0, 0, None
    for ask in audit.greedy_asks(audit.few("echo"), logprobs=2):
        generated = audit.session.ask(ask.on(DRAFTS))
        echo = Ask(DRAFTS, ask.prompt + generated.text, 1, {**GREEDY, "logprobs": 2, "echo": True})
        answer = audit.session.ask(echo)
        if answer.refused:
            return skip(promise, f"refused ({answer.status}): {answer.error}")
        own = generated.tokens or ()
        last = [token.text for token in (answer.tokens or ())][:-1]
        if len(last) < len(own) or last[-len(own) :] != [token.text for token in own] or not own:
            continue  # the text has other tokens as a prompt
        echoed = (answer.tokens or ())[-1 - len(own) : -1]
        apart = max(abs(x.logprob - y.logprob) for x, y in zip(own, echoed, strict=True))
        compared += 1
        if apart >= furthest:
            furthest, shown = apart, echo
    if not compared or shown is None:
        return skip(promise, "no echoed prompt has the tokens of the text")
    detail, power = (
        f"{compared} texts: at most {furthest:.2g} apart",
        f"finds a difference above {audit.facts.rounding:.2g}",
    )
    if furthest > audit.facts.rounding:
        return Verdict(promise, FAILS, detail, power, audit.curls(shown))
    return Verdict(promise, HOLDS, detail, power)
