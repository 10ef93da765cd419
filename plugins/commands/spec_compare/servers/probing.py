"""Finds out before a comparison whether every server answers, with which model, and what it counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spec_commands.common import print_note
from spec_commands.prompts import Prompt
from spec_commands.servers.counters import read_counters
from spec_commands.servers.models import REPEATED, listed_models

from spec_compare.measuring.prompt_source import BUILT_IN
from spec_compare.servers.asking import Server
from spec_compare.servers.endpoints import KEY_HINT, Endpoint
from spec_core.errors import UsageError, quote_value

PROBE_TOKENS = 24
SHOWN = 5
"""Max models that a message lists."""
CONTEXTS = ("max_model_len", "context_length", "n_ctx")
"""Names under which servers list how many tokens fit."""
GREEDY = {"temperature": 0}
CHAT = [{"role": "user", "content": f"Continue: {REPEATED}"}]


def find_server(endpoint: Endpoint, seconds: float) -> Server:
    """The server with its model. Raises UsageError if it cannot be reached, wants a key, or has no such model."""
    try:
        client = endpoint.connect(seconds)
        models = listed_models(client, KEY_HINT)
        model = _choose(endpoint, models)
        counts = read_counters(client) is not None
        return Server(endpoint, client, None if model is None else model["id"], context_of(model), counts)
    except UsageError as error:
        raise type(error)(f"{endpoint.name}: {error.reason}", hint=error.hint) from error


def _choose(endpoint: Endpoint, models: list[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The model of the name that was passed, else the first one; None if none was and the server lists none."""
    if endpoint.model is None:
        return models[0] if models else None
    chosen = next((model for model in models if model["id"] == endpoint.model), None)
    if chosen is None and models:
        listed = ", ".join(quote_value(model["id"]) for model in models[:SHOWN])
        raise UsageError(f"{endpoint.shown} has no model {quote_value(endpoint.model)}", hint=f"it lists {listed}")
    return chosen or {"id": endpoint.model}


def context_of(model: Mapping[str, Any] | None) -> int:
    """Max tokens of a sequence, if the server lists them; else 0."""
    meta = (model or {}).get("meta")
    for table in (model or {}, meta if isinstance(meta, Mapping) else {}):
        for name in CONTEXTS:
            if type(table.get(name)) is int and 0 < table[name] < 1 << 40:
                return int(table[name])
    return 0


def probe_servers(servers: Iterable[Server], prompts: Iterable[Prompt]) -> None:
    """Ask every server once in each form that the prompts have. Raises UsageError for one that cannot be timed."""
    chats = {not isinstance(prompt.given, str) and not isinstance(prompt.given[0], int) for prompt in prompts}
    for server in servers:
        for prompt in [CHAT] * (True in chats) + [REPEATED] * (False in chats):
            check_stream(server, prompt)


def check_stream(server: Server, prompt: Any) -> None:
    """Raise UsageError if a text of many tokens comes in one piece: its decoding cannot be timed then."""
    timed = server.ask(prompt, PROBE_TOKENS, GREEDY, "a first request")
    if timed.tokens > PROBE_TOKENS // 2 and not timed.gaps:
        raise UsageError(
            f"{server.name} sends {timed.tokens} tokens in one piece: decoding cannot be timed",
            hint="turn the buffering of the server, or of a proxy before it, off",
        )


def built_in_file(servers: Iterable[Server]) -> Path:
    """Built-in chats if every server answers chats, else texts to continue, which is noted."""
    chats = all(map(_answers_chats, servers))
    kind = "chats" if chats else "texts to continue"
    print_note(f"built-in {kind} are used; --prompts FILE measures your own")
    return BUILT_IN / f"built-in-{'chats' if chats else 'texts'}.jsonl"


def _answers_chats(server: Server) -> bool:
    try:
        server.ask(CHAT, 1, GREEDY, "a first request")
    except UsageError:
        return False
    return True


def close_all(servers: Iterable[Server]) -> None:
    for server in servers:
        server.client.close()
