"""The answer of a server to a completion or a chat, streamed or not, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from spec_commands.http_client import Reply
from spec_core.errors import UsageError


@attrs.frozen
class Token:
    """A token with its log-probability, and the most likely ones with theirs."""

    text: str
    logprob: float
    top: tuple[float, ...] = ()


@attrs.frozen
class Answer:
    """An answer. texts: one per choice. drafted, accepted: draft tokens, if the answer counts them.

    drafts: steps with a draft. cached_tokens: of the prompt, whose rows the server had.
    """

    status: int
    texts: tuple[str, ...] = ()
    finishes: tuple[str, ...] = ()
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    tokens: tuple[Token, ...] | None = None
    drafted: int | None = None
    accepted: int | None = None
    seconds: float = 0.0
    error: str = ""
    calls: tuple[str, ...] = ()
    drafts: int | None = None
    cached_tokens: int = 0

    @property
    def refused(self) -> bool:
        return self.status >= 400

    @property
    def text(self) -> str:
        return self.texts[0] if self.texts else ""

    @property
    def finish(self) -> str:
        return self.finishes[0] if self.finishes else ""


def read_answer(reply: Reply, url: str) -> Answer:
    """The answer in a reply. Raises UsageError if the reply has another form than OpenAI's."""
    if reply.refused:
        return Answer(reply.status, error=reply.error, seconds=reply.seconds)
    try:
        parts = [event for _, event in reply.events] if reply.body is None else [reply.body]
        return _read(parts, reply, streamed=reply.body is None)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise UsageError(
            f"{url} answered JSON without choices that have texts ({type(error).__name__}: {str(error)[:80]})",
            hint="pass the address of a server with OpenAI's API",
        ) from error


def _read(parts: list[Any], reply: Reply, streamed: bool) -> Answer:
    texts: dict[int, str] = {}
    finishes: dict[int, str] = {}
    tokens: list[Token] = []
    calls: list[str] = []
    usage: dict[str, Any] = {}
    drafts: DraftCounts = (None, None, None)
    for part in parts:
        if "error" in part and "choices" not in part:
            return Answer(500, error=Reply(500, part, 0).error, seconds=reply.seconds)
        for choice in part["choices"]:
            index = int(choice.get("index") or 0)
            texts[index] = texts.get(index, "") + choice_text(choice)
            if reason := choice.get("finish_reason"):
                finishes[index] = str(reason)
            if index == 0:
                tokens += _tokens(choice.get("logprobs"))
                calls += _calls(choice)
        usage = part.get("usage") or usage
        drafts = own if (own := _drafts(part)) != (None, None, None) else drafts
    if not texts and not streamed:
        raise ValueError("no choices")
    order = sorted(texts)
    return Answer(
        reply.status,
        tuple(texts[i] for i in order),
        tuple(finishes.get(i, "") for i in order),
        _count(usage.get("completion_tokens")),
        _count(usage.get("prompt_tokens")),
        tuple(tokens) or None,
        *drafts[:2],
        seconds=reply.seconds,
        calls=tuple(calls),
        drafts=drafts[2],
        cached_tokens=_count((usage.get("prompt_tokens_details") or {}).get("cached_tokens")) or 0,
    )


def choice_text(choice: Mapping[str, Any]) -> str:
    """The text of a choice; thinking is a part of what the model generates."""
    if "text" in choice:
        parts: Iterable[Any] = [choice["text"]]
    else:
        message = choice.get("message") or choice.get("delta") or {}
        parts = [message.get("reasoning_content") or message.get("reasoning"), message.get("content")]
    texts = [part for part in parts if part is not None]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a text is no string")
    return "".join(texts)


def _calls(choice: Mapping[str, Any]) -> list[str]:
    """Arguments of the calls of a choice."""
    calls = (choice.get("message") or {}).get("tool_calls") or []
    return [str(call["function"]["arguments"]) for call in calls]


def _tokens(logprobs: Any) -> list[Token]:
    """Tokens with log-probabilities, as chats and completions have them; the first one of an echoed prompt has none."""
    if not logprobs:
        return []
    if entries := logprobs.get("content"):
        tops = [_descending(top["logprob"] for top in entry.get("top_logprobs") or ()) for entry in entries]
        return [Token(str(e["token"]), float(e["logprob"] or 0), top) for e, top in zip(entries, tops, strict=True)]
    texts, values = logprobs.get("tokens") or [], logprobs.get("token_logprobs") or []
    others = logprobs.get("top_logprobs") or [None] * len(texts)
    return [
        Token(str(text), float(value or 0), _descending((top or {}).values()))
        for text, value, top in zip(texts, values, others, strict=True)
    ]


def _descending(values: Iterable[Any]) -> tuple[float, ...]:
    return tuple(sorted((float(value) for value in values), reverse=True))


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 40 else None


DraftCounts = tuple[int | None, int | None, int | None]


def _drafts(part: Mapping[str, Any]) -> DraftCounts:
    """Drafted tokens, accepted tokens, drafts: ``timings`` of llama-server, or ``metrics`` of vLLM."""
    timings = part.get("timings") or {}
    counts = (part.get("metrics") or {}).get("speculative_decoding") or {}
    drafted = _count(timings.get("draft_n", counts.get("num_draft_tokens")))
    accepted = _count(timings.get("draft_n_accepted", counts.get("num_accepted_draft_tokens")))
    known = drafted is not None and accepted is not None
    return (drafted, accepted, _count(counts.get("num_spec_steps"))) if known else (None, None, None)
