"""Checks of log-probabilities: with drafts as without, within the floor, and as in an echoed prompt."""

from __future__ import annotations

from spec_commands.servers.answers import Answer

from spec_audit.asks import DRAFTS, Ask
from spec_audit.audit import GREEDY, Audit
from spec_audit.budget import Budget, Cost
from spec_audit.checks.comparable import largest_difference, logprob_difference
from spec_audit.promise import Failed, Report, Skipped, ask_drafts, ask_plain, promise
from spec_audit.verdict import Section

TITLE = "Log-probabilities"


def cost(budget: Budget) -> Cost:
    """The most that this check asks for."""
    return Cost(4 * budget.few, 4 * budget.few * budget.tokens)


def run_check(audit: Audit) -> Section:
    """Compare them token by token on greedy texts."""
    return Section(TITLE, (_generated_tokens(audit), _echoed_prompt(audit)))


@promise("log-probabilities of generated tokens")
def _generated_tokens(audit: Audit) -> Report:
    if not audit.facts.logprobs:
        raise Skipped("not offered without drafts")
    asks = audit.greedy_asks(audit.few("logprobs"), logprobs=2)
    plain, drafts = ask_plain(audit, asks, 1), ask_drafts(audit, asks, 1)
    if not any(answer.tokens for answer in drafts):
        raise Skipped("not in the answers with drafts")
    apart = [(logprob_difference(x, y), i) for i, (x, y) in enumerate(zip(plain, drafts, strict=True))]
    return _judge(audit, max(apart)[0], len(asks), asks[max(apart)[1]])


def _judge(audit: Audit, furthest: float, number: int, ask: Ask) -> Report:
    limit = audit.facts.rounding
    detail, power = f"{number} texts: at most {furthest:.2g} apart", f"finds a difference above {limit:.2g}"
    if furthest > limit:
        raise Failed(detail, ask, power)
    return detail, power


@promise("log-probabilities against echo")
def _echoed_prompt(audit: Audit) -> Report:
    """Generated tokens have the log-probabilities that the same text has as an echoed prompt."""
    if not audit.facts.draft_logprobs or audit.session.api == "chat":
        raise Skipped("not offered")
    apart: list[tuple[float, int, Ask]] = []
    for i, ask in enumerate(audit.greedy_asks(audit.few("echo"), logprobs=2)):
        generated = audit.session.ask(ask.on(DRAFTS))
        echo = Ask(DRAFTS, ask.prompt + generated.text, 1, {**GREEDY, "logprobs": 2, "echo": True})
        answer = audit.session.ask(echo)
        if answer.refused:
            raise Skipped(f"refused ({answer.status}): {answer.error}")
        if (furthest := _echo_difference(generated, answer)) is not None:
            apart.append((furthest, i, echo))
    if not apart:
        raise Skipped("no echoed prompt has the tokens of the text")
    worst = max(apart, key=lambda one: one[:2])
    return _judge(audit, worst[0], len(apart), worst[2])


def _echo_difference(generated: Answer, echoed: Answer) -> float | None:
    """The largest difference; None if the text has other tokens as a prompt."""
    own, prompt = generated.tokens or (), (echoed.tokens or ())[:-1]
    same = [token.text for token in prompt[-len(own) :]] == [token.text for token in own]
    if not own or not same:
        return None
    return largest_difference(zip(own, prompt[-len(own) :], strict=True))
