"""Sends the requests of an audit: few at once, within the budget that was printed, each recorded."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import attrs
from spec_commands.http_client import Client
from spec_commands.servers.answers import Answer, read_answer
from spec_commands.servers.models import PATHS

from spec_audit.asks import DRAFTS, Arm, Ask, Side
from spec_audit.budget import Cost
from spec_audit.record import Record
from spec_core.errors import SpecError


@attrs.define(eq=False)
class Session:
    """The two arms, and what was asked so far.

    cost_limit: max requests and tokens. text: of a probe, which tells servers apart. on_answer: called after each
    answer with the number of requests. broken_ask: the last request with drafts that was answered by an error of the
    server.
    """

    arms: Mapping[Side, Arm]
    clients: Mapping[Side, Client]
    record: Record
    concurrency: int
    cost_limit: Cost
    api: str = "completions"
    text: str = ""
    on_answer: Callable[[int], None] = lambda count: None
    requests: int = 0
    tokens: int = 0
    drafts: Counter[str] = attrs.field(factory=Counter)
    broken_ask: Ask | None = None

    def ask(self, ask: Ask) -> Answer:
        """The answer to one request."""
        return self.ask_all([ask], 1)[0]

    def ask_all(self, asks: Sequence[Ask], at_once: int | None = None) -> list[Answer]:
        """Answers in the order of the requests. at_once: max requests at a time, at most the concurrency."""
        keys = [self.record.next_key(ask) for ask in asks]
        self._spend(asks)
        workers = min(at_once or self.concurrency, self.concurrency)
        if workers == 1 or len(asks) == 1:
            return [self._answer(key, ask) for key, ask in zip(keys, asks, strict=True)]
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(self._answer, key, ask) for key, ask in zip(keys, asks, strict=True)]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _spend(self, asks: Iterable[Ask]) -> None:
        for ask in asks:
            self.requests += 1
            self.tokens += ask.max_tokens * int(ask.fields.get("n", 1))
        if self.requests > self.cost_limit.requests or self.tokens > self.cost_limit.tokens:
            raise SpecError(
                f"the audit would send more than the {self.cost_limit.requests} requests that it announced",
                hint="please report this: it is a fault of spec audit",
            )

    def _answer(self, key: str, ask: Ask) -> Answer:
        answer = self.record.answers.get(key)
        if answer is None:
            answer = self.send(ask)
            self.record.add(key, answer)
        if ask.side == DRAFTS and answer.status >= 500:
            self.broken_ask = ask
        self.on_answer(self.requests)
        if answer.drafted is not None:
            self.drafts.update({f"{ask.side} drafted": answer.drafted, f"{ask.side} accepted": answer.accepted or 0})
            self.drafts[f"{ask.side} counted"] += 1
        return answer

    def send(self, ask: Ask) -> Answer:
        """The answer to a request that is neither recorded nor counted."""
        body = ask.body(self.arms[ask.side], self.api)
        return read_answer(self.clients[ask.side].post(PATHS[self.api], body, ask.events_max), self.arms[ask.side].url)

    def curl_line(self, ask: Ask, key_name: str | None) -> str:
        """A request as a line of curl. key_name: the environment variable that has the key, which is never printed."""
        arm = self.arms[ask.side]
        header = f'-H "Authorization: Bearer ${key_name}" ' if key_name else ""
        body = shlex.quote(json.dumps(ask.body(arm, self.api)))
        return f'curl -s {shlex.quote(arm.url + PATHS[self.api])} {header}-H "Content-Type: application/json" -d {body}'
