"""A request to a server, and its streamed answer with the times of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import attrs
from spec_commands.http_client import Client, Reply
from spec_commands.servers.answers import Answer, choice_text, read_answer
from spec_commands.servers.models import PATHS

from spec_compare.servers.endpoints import KEY_HINT, Endpoint
from spec_core.errors import UsageError, quote_value

EVENTS_PER_TOKEN, EVENTS_MORE = 8, 200
"""Max events of a stream by the tokens of its request: a longer one is left."""
USAGE_HINT = "a server must say with stream_options.include_usage how many tokens a stream had"


@attrs.frozen
class TimedAnswer:
    """An answer. first, last: seconds until its first and its last text; gaps: between its texts."""

    answer: Answer
    tokens: int
    first: float
    last: float
    gaps: list[float]


@attrs.frozen(eq=False)
class Server:
    """A server that was found. context: max tokens, 0 if it does not say it. counts: whether ``/metrics`` has them."""

    endpoint: Endpoint
    client: Client
    model: str | None = None
    context: int = 0
    counts: bool = False

    @property
    def name(self) -> str:
        return self.endpoint.name

    def ask(self, prompt: Any, max_tokens: int, fields: Mapping[str, Any], what: str) -> TimedAnswer:
        """The answer to a prompt: a text, token ids, or messages. what: the prompt's name, for errors.

        Raises UsageError for every answer that is not a whole text with its number of tokens.
        """
        api = "chat" if _is_chat(prompt) else "completions"
        body = {
            **({} if self.model is None else {"model": self.model}),
            **({"messages": prompt} if api == "chat" else {"prompt": prompt}),
            "max_tokens": max_tokens,
            **fields,
            **self.endpoint.fields,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        try:
            reply = self.client.post(PATHS[api], body, EVENTS_PER_TOKEN * max_tokens + EVENTS_MORE)
            answer = read_answer(reply, self.client.shown)
            texts = self.client.without_key([*answer.texts])  # a key may come in pieces
            return self._check(reply, attrs.evolve(answer, texts=tuple(texts)), max_tokens)
        except UsageError as error:
            raise type(error)(f"{self.name}, {what}: {error.reason}", hint=error.hint) from error

    def _check(self, reply: Reply, answer: Answer, max_tokens: int) -> TimedAnswer:
        if answer.refused:
            raise self._refusal(answer)
        if reply.body is not None:
            raise UsageError("it answered at once, not with a stream", hint="use a server that streams texts")
        if not reply.whole:
            raise UsageError(
                f"it streamed {len(reply.events)} events for at most {max_tokens} tokens", hint="check the server"
            )
        if not answer.finish:
            raise UsageError("the stream ended before the text", hint="look at the server's log, and run this again")
        if answer.completion_tokens is None:
            raise UsageError("the stream has no usage", hint=USAGE_HINT)
        self._check_counts(answer, max_tokens)
        times = [seconds for seconds, event in reply.events if has_text(event)]
        first, last = (times[0], times[-1]) if times else (reply.seconds, reply.seconds)
        if len(times) == 1:
            last = reply.seconds
        gaps = [b - a for a, b in pairwise(times)]
        return TimedAnswer(answer, answer.completion_tokens, first, last, gaps)

    def _refusal(self, answer: Answer) -> UsageError:
        reason = f"it answered {answer.status}: {quote_value(answer.error)}"
        if answer.status in (401, 403):
            return UsageError(f"a key is needed: {reason}", hint=KEY_HINT)
        if answer.status == 404 and self.model is not None:
            return UsageError(
                f"{reason} (model {quote_value(self.model)})", hint="pass the model's name with --url-model"
            )
        return UsageError(reason, hint="look at the server's log; --chat asks with messages, without it with texts")

    def _check_counts(self, answer: Answer, max_tokens: int) -> None:
        """Raise UsageError for counts that cannot be."""
        tokens, drafted, accepted = answer.completion_tokens or 0, answer.drafted or 0, answer.accepted or 0
        wrong = ""
        if tokens > max_tokens:
            wrong = f"{tokens} tokens, but at most {max_tokens} were asked for"
        elif answer.text and not tokens:
            wrong = "no token for a text"
        elif accepted > drafted:
            wrong = f"{accepted} accepted draft tokens of {drafted}"
        elif (answer.drafts or 0) > drafted:
            wrong = f"{answer.drafts} drafts of {drafted} tokens"
        if wrong:
            raise UsageError(f"it counts {wrong}", hint="its counts cannot be used: check the server")


def _is_chat(prompt: Any) -> bool:
    return isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], Mapping)


def has_text(event: Any) -> bool:
    """Whether an event of a stream has a piece of the text. The form of the event was checked."""
    return any(choice_text(choice) for choice in event.get("choices") or ())
