"""Tokens and their log-probabilities in the forms of three APIs."""

from __future__ import annotations

from typing import Any

from spec_core import Emitted, Tokenizer
from spec_core.commands import Logprob
from spec_serve.echo import Echo
from spec_serve.job import Drafted
from spec_serve.parts import Places


def text(token: int, tokenizer: Tokenizer) -> str:
    """Text of a token's bytes alone: a replacement character where they are part of one."""
    return tokenizer.token_bytes(token).decode("utf-8", "replace")


def text_events(events: list[Emitted]) -> list[Emitted]:
    """Events of tokens that are part of the text: a token that ends it is not."""
    return [e for e in events if e.token not in e.seq.stop.tokens]


def chat_logprobs(events: list[Emitted], tokenizer: Tokenizer) -> dict[str, Any] | None:
    """``logprobs`` of a chat's choice; None where they were not asked for."""
    pairs = [(e.token, e.logprob) for e in text_events(events) if e.logprob is not None]
    if not pairs and not any(e.logprob for e in events):
        return None
    return {"content": [_chat(token, p, tokenizer) for token, p in pairs], "refusal": None}


def _chat(token: int, logprob: Logprob, tokenizer: Tokenizer) -> dict[str, Any]:
    top = [_entry(t, value, tokenizer) for t, value in logprob.top]
    return {**_entry(token, logprob.value, tokenizer), "top_logprobs": top}


def _entry(token: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "token": text(token, tokenizer),
        "logprob": finite_logprob(logprob),
        "bytes": list(tokenizer.token_bytes(token)),
    }


def finite_logprob(logprob: float) -> float:
    """JSON has neither infinity nor NaN; OpenAI's API says -9999 for it."""
    return logprob if logprob > -9999.0 else -9999.0


def completion_logprobs(events: list[Emitted], places: Places, tokenizer: Tokenizer) -> dict[str, Any] | None:
    """``logprobs`` of a completion's choice. places: of the tokens before these events."""
    at = [(e, places.before(e.token)) for e in events]
    rows = [(e.token, e.logprob, offset) for e, offset in at if e.token not in e.seq.stop.tokens and e.logprob]
    if not rows and not any(e.logprob for e in events):
        return None
    tops = [name_logprobs(token, p, tokenizer) for token, p, _ in rows]
    return {
        "tokens": [name for name, _ in tops],
        "token_logprobs": [finite_logprob(p.value) for _, p, _ in rows],
        "top_logprobs": [top for _, top in tops],
        "text_offset": [offset for *_, offset in rows],
    }


def echo_logprobs(echo: Echo, tokenizer: Tokenizer) -> dict[str, list[Any]]:
    """Log-probabilities of the tokens of a prompt; the first has none."""
    places = Places(tokenizer.stream())
    tops = [name_logprobs(token, p, tokenizer) for token, p in zip(echo.ids[1:], echo.scores, strict=True)]
    return {
        "tokens": [*(_name(token, tokenizer) for token in echo.ids[:1]), *(name for name, _ in tops)],
        "token_logprobs": [*(None for _ in echo.ids[:1]), *(finite_logprob(p.value) for p in echo.scores)],
        "top_logprobs": [*(None for _ in echo.ids[:1]), *(top for _, top in tops)],
        "text_offset": [places.before(token) for token in echo.ids],
    }


def name_logprobs(token: int, logprob: Logprob, tokenizer: Tokenizer) -> tuple[str, dict[str, float]]:
    """The name of a token, and the log-probabilities of the best by name, its own among them.

    A name is the text of a token; where it is part of a character, has no text, or another token has the same text,
    it is ``bytes:...`` as in OpenAI's API, or ``token_id:...`` as in vLLM's.
    """
    values = {token: logprob.value, **dict(logprob.top)}
    names: dict[str, int] = {}
    for t in sorted(values, key=lambda t: -values[t]):
        name = _name(t, tokenizer)
        names[name if name not in names else f"token_id:{t}"] = t
    return next(n for n, t in names.items() if t == token), {
        name: finite_logprob(values[t]) for name, t in names.items()
    }


def _name(token: int, tokenizer: Tokenizer) -> str:
    data = tokenizer.token_bytes(token)
    try:
        return data.decode() or f"token_id:{token}"
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def llama_logprobs(events: list[Emitted], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """llama-server's ``completion_probabilities``."""
    entry = lambda t, v: {"id": t, **_entry(t, v, tokenizer)}
    return [
        {**entry(e.token, e.logprob.value), "top_logprobs": [entry(t, v) for t, v in e.logprob.top]}
        for e in text_events(events)
        if e.logprob is not None
    ]


def trace(events: list[Emitted], drafted: Drafted | None, tokenizer: Tokenizer) -> dict[str, Any]:
    """Trace of one step: each token with its source, and the rejected drafted tokens."""
    tokens = [{"id": e.token, "text": e.text, "source": e.source} for e in events]
    if drafted is None:
        return {"tokens": tokens, "drafted_by": [], "draft_n": 0, "rejected": []}
    rejected = [i for i in range(len(drafted.ids)) if i not in drafted.accepted]
    return {
        "tokens": tokens,
        "drafted_by": list(dict.fromkeys(drafted.sources)),
        "draft_n": len(drafted.ids),
        "rejected": [
            {"id": drafted.ids[i], "text": text(drafted.ids[i], tokenizer), "source": drafted.sources[i]}
            for i in rejected
        ],
    }
