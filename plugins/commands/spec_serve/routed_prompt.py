"""What a router of several servers compares: the beginning of a prompt, and before it the cache salt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

READ = ("tools", "instructions", "messages", "input", "input_extra", "input_prefix", "prompt")
"""Fields of a body that the beginning of a prompt comes from, in its order, after the salt."""


def beginning_of_prompt(body: bytes) -> str:
    """The text of a body's prompt: equal beginnings of prompts give equal beginnings. Empty if there is none."""
    try:
        fields = json.loads(body)
        salt = f"{fields['cache_salt']}\0" if fields.get("cache_salt") else ""
        return salt + "".join(word for name in READ if name in fields for word in _words(fields[name]))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return ""  # a replica will refuse it


def _words(value: Any) -> Iterator[str]:
    """Texts, and token ids as texts, in their order."""
    if isinstance(value, (list, dict)):
        for part in value if isinstance(value, list) else value.values():
            yield from _words(part)
    else:
        yield value if isinstance(value, str) else f"{value} "
