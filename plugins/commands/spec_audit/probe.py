"""The two arms, and how the server is asked: its model, chats or completions, and how drafts are switched off."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from spec_commands.http_client import Client

from spec_audit.asks import DRAFTS, PATHS, PLAIN, Arm, Ask, Side
from spec_audit.budget import Cost
from spec_audit.record import Record
from spec_audit.session import Session
from spec_core.errors import UsageError, quote

SWITCHES: Mapping[str, dict[str, Any]] = {
    "llama-server": {"speculative.n_max": 0},
    "spec": {"speculative.n_max": 0},
    "spec-vllm": {"spec_draft_max": 0},
}
"""Fields of a request that switch drafts off; ``spec`` is this project's server, ``spec-vllm`` its methods in vLLM."""
TRIED = "spec"
"""The switch that is tried if none was passed."""
REPEATED = "one two three four five six seven\n" * 6 + "one two three"
"""A prompt whose continuation every lookup drafts."""
NAME_MAX = 1000
"""Max characters of a model's name."""
NO_PLAIN = "pass --plain URL of the same model without drafts, or --off FIELD=VALUE if a request can switch them off"


def parse_switch(text: str) -> dict[str, Any]:
    """The fields of ``--off``: a known name, or FIELD=VALUE, the value as JSON or a text."""
    if text in SWITCHES:
        return SWITCHES[text]
    field, equals, value = text.partition("=")
    if not equals or not field:
        names = ", ".join(SWITCHES)
        raise UsageError(f"--off {quote(text)} is no switch", hint=f"write FIELD=VALUE, or a known one: {names}")
    try:
        return {field: json.loads(value)}
    except (ValueError, RecursionError):
        return {field: value}


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
            DRAFTS: Arm(DRAFTS, self.url, self.model or _first_model(client)),
            PLAIN: Arm(PLAIN, self.plain or self.url, self.model or _first_model(plain_client), switch),
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


def _first_model(client: Client) -> str | None:
    """The first model that the server lists."""
    reply = client.get("/v1/models")
    if reply.status in (401, 403):
        raise UsageError(f"{client.url} refuses the key ({reply.status})", hint="pass --key-env NAME of its variable")
    models = reply.body.get("data") if isinstance(reply.body, Mapping) else None
    first = models[0] if isinstance(models, list) and models else None
    name = first.get("id") if isinstance(first, Mapping) else None
    return name if isinstance(name, str) and len(name) <= NAME_MAX else None


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
