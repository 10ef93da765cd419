"""The two arms, and how the server is asked: its model, chats or completions, and how drafts are switched off."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from spec_commands.http_client import Client
from spec_commands.servers.models import PATHS, REPEATED, first_model, parse_switch

from spec_audit.asks import DRAFTS, PLAIN, Arm, Ask, Side
from spec_audit.budget import Cost
from spec_audit.record import Record
from spec_audit.session import Session
from spec_core.errors import UsageError

TRIED = "spec"
"""The switch that is tried if none was passed."""
NO_PLAIN = "pass --plain URL of the same model without drafts, or --off FIELD=VALUE if a request can switch them off"


@attrs.frozen
class Connection:
    """Where and how to ask. make: makes a client of an address."""

    url: str
    plain: str | None
    off: str | None
    model: str | None
    chat: bool
    concurrency: int
    make: Callable[[str], Client]

    def session(self) -> Session:
        """A session without a record. Raises UsageError if an arm does not answer, or drafts cannot be switched off."""
        client = self.make(self.url)
        plain_client = client if self.plain is None else self.make(self.plain)
        switch = {} if self.plain else parse_switch(self.off or TRIED)
        arms: dict[Side, Arm] = {
            DRAFTS: Arm(DRAFTS, self.url, self.model or first_model(client)),
            PLAIN: Arm(PLAIN, self.plain or self.url, self.model or first_model(plain_client), switch),
        }
        clients: dict[Side, Client] = {DRAFTS: client, PLAIN: plain_client}
        session = Session(arms, clients, Record(None, {}), self.concurrency, Cost(0, 0))
        session.api = _find_api(session, self.chat)
        session.text = self._check_switch(session)
        return session

    def _check_switch(self, session: Session) -> str:
        """The plain text of a probe.

        Raises UsageError if the plain arm drafts, or if no switch was named and the tried one shows no effect.
        """
        ask = Ask(PLAIN, REPEATED, 48, {"temperature": 0})
        answer = session.send(ask)
        if answer.drafted:
            how = f"--plain {self.plain}" if self.plain else f"the switch {dict(session.arms[PLAIN].fields)}"
            raise UsageError(f"{how} does not switch drafts off: {answer.drafted} tokens were drafted", hint=NO_PLAIN)
        if self.plain is None and self.off is None and (answer.refused or not session.send(ask.on(DRAFTS)).drafted):
            raise UsageError(f"{self.url} has no known switch of drafts, or drafts nothing", hint=NO_PLAIN)
        return answer.text


def _find_api(session: Session, chat: bool) -> str:
    """Completions if both arms answer them, else chats. Raises UsageError if neither is answered."""
    errors: list[str] = []
    for api in ["chat"] if chat else ["completions", "chat"]:
        session.api = api
        answers = [session.send(Ask(side, REPEATED, 1, {"temperature": 0})) for side in (DRAFTS, PLAIN)]
        if not any(answer.refused for answer in answers):
            return api
        errors += [f"{PATHS[api]} {a.status}: {a.error}" for a in answers if a.refused][:1]
    raise UsageError(
        f"{session.arms[DRAFTS].url} refuses a plain request: {'; '.join(errors)}",
        hint="check the address, --model, --key-env and --off",
    )
