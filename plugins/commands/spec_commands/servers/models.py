"""How a server is asked: the paths of its API, its models, a key for it, and what switches its drafts off."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from spec_commands.http_client import Client
from spec_core.errors import UsageError, quote_value

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
SWITCHES: Mapping[str, dict[str, Any]] = {
    "llama-server": {"speculative.n_max": 0},
    "spec": {"speculative.n_max": 0},
    "spec-vllm": {"spec_draft_max": 0},
}
"""Fields of a request that switch drafts off; ``spec`` is this project's server, ``spec-vllm`` its methods in vLLM."""
REPEATED = "one two three four five six seven\n" * 6 + "one two three"
"""A prompt whose continuation every lookup drafts."""
NAME_MAX = 1000
"""Max characters of a model's name."""
KEY_HINT = "pass --key-env NAME of its variable"


def parse_switch(text: str) -> dict[str, Any]:
    """The fields of ``--off``: a known name, or FIELD=VALUE, the value as JSON or a text."""
    if text in SWITCHES:
        return SWITCHES[text]
    field, equals, value = text.partition("=")
    if not equals or not field:
        names = ", ".join(SWITCHES)
        raise UsageError(f"--off {quote_value(text)} is no switch", hint=f"write FIELD=VALUE, or a known one: {names}")
    try:
        return {field: json.loads(value)}
    except (ValueError, RecursionError):
        return {field: value}


def listed_models(client: Client, hint: str = KEY_HINT) -> list[Mapping[str, Any]]:
    """The models that the server lists, with a name each; none if it lists none. hint: how a key is passed."""
    reply = client.get("/v1/models")
    if reply.status in (401, 403):
        raise UsageError(f"{client.shown} refuses the key ({reply.status})", hint=hint)
    models = reply.body.get("data") if isinstance(reply.body, Mapping) else None
    return [model for model in models if _has_name(model)] if isinstance(models, list) else []


def _has_name(model: Any) -> bool:
    name = model.get("id") if isinstance(model, Mapping) else None
    return isinstance(name, str) and 0 < len(name) <= NAME_MAX


def first_model(client: Client) -> str | None:
    """The name of the first model that the server lists."""
    return next((model["id"] for model in listed_models(client)), None)


def read_key(name: str | None) -> str | None:
    """The key in an environment variable. Raises UsageError if the variable is not set, or its name is none."""
    if name is None:
        return None
    if not name.isidentifier() or not os.environ.get(name):
        # The name is not shown: it may be the key itself.
        raise UsageError("--key-env names no variable that is set", hint="export one with the key, and pass its name")
    key = os.environ[name]
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"the key in {name} has characters that no header can have", hint="check the variable")
    return key
