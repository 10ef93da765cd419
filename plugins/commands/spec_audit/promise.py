"""One promise as a function: what it returns holds, and it raises Skipped or Failed otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec

from spec_commands.http_client import Unreachable
from spec_commands.servers.answers import Answer

from spec_audit.asks import DRAFTS, PLAIN, Ask
from spec_audit.audit import Audit
from spec_audit.verdict import FAILS, HOLDS, SKIPPED, Verdict

STOPPED = "the server stopped answering"
P = ParamSpec("P")
Report = tuple[str, str]
"""What was seen, and what would have been found."""


class Skipped(Exception):
    """The promise was not tested, with the reason."""


class Failed(Exception):
    """The promise does not hold. ask: a request that shows it."""

    def __init__(self, detail: str, ask: Ask, power: str = "") -> None:
        super().__init__(detail)
        self.ask, self.power = ask, power


def promise(name: str) -> Callable[[Callable[Concatenate[Audit, P], Report]], Callable[Concatenate[Audit, P], Verdict]]:
    """Make a function the test of a promise. name: formatted with the arguments after the audit."""

    def decorate(test: Callable[Concatenate[Audit, P], Report]) -> Callable[Concatenate[Audit, P], Verdict]:
        @wraps(test)
        def judge(audit: Audit, *args: P.args, **keywords: P.kwargs) -> Verdict:
            title = name.format(*args)
            if audit.stopped:
                return Verdict(title, SKIPPED, STOPPED)
            try:
                return Verdict(title, HOLDS, *test(audit, *args, **keywords))
            except Skipped as skipped:
                return Verdict(title, SKIPPED, str(skipped))
            except Failed as failed:
                return Verdict(title, FAILS, str(failed), failed.power, audit.curls(failed.ask))
            except Unreachable as error:
                return stopped_verdict(audit, title, error)

        return judge

    return decorate


def stopped_verdict(audit: Audit, title: str, unreachable: Unreachable) -> Verdict:
    """The verdict on a server that stopped after an error of a request with drafts. Raises the error otherwise."""
    if audit.session.broken_ask is None:
        raise unreachable
    audit.stopped = True
    return Verdict(title, FAILS, f"an error of the server, then {STOPPED}", "", audit.curls(audit.session.broken_ask))


def ask_plain(audit: Audit, asks: Sequence[Ask], at_once: int | None = None) -> list[Answer]:
    """Answers without drafts. Raises Skipped if one is refused."""
    answers = audit.session.ask_all([ask.on(PLAIN) for ask in asks], at_once)
    for answer in answers:
        if answer.refused:
            raise Skipped(f"refused ({answer.status}): {answer.error}")
    return answers


def ask_drafts(audit: Audit, asks: Sequence[Ask], at_once: int | None = None) -> list[Answer]:
    """Answers with drafts to requests that plain decoding answers. Raises Skipped if one is refused.

    An error of the server that only drafts cause is a fault.
    """
    answers = audit.session.ask_all([ask.on(DRAFTS) for ask in asks], at_once)
    for ask, answer in zip(asks, answers, strict=True):
        if answer.status >= 500 and answer.status != 501:
            raise Failed(f"error {answer.status} with drafts only: {answer.error}", ask)
        if answer.refused:
            raise Skipped(f"refused with drafts ({answer.status}): {answer.error}")
    return answers
