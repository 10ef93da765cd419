"""Texts that cannot fit the context are refused by their length, before they are tokenized."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from spec_serve.errors import ApiError

if TYPE_CHECKING:
    from spec_serve.server_config import ServerConfig

TOKEN_BYTES_MIN = 256
"""Bytes that a token is taken to have at most, if all of the vocabulary's have fewer: control tokens, and characters
that a normaliser removes, count as text."""


@lru_cache(maxsize=4)
def token_bytes_max(tokenizer: Any) -> int:
    """Bytes of the longest token."""
    return max(TOKEN_BYTES_MIN, *(len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)))


def prompt_max(config: ServerConfig) -> int:
    """Tokens that a prompt may have."""
    return min(config.limits.prompt_max or config.context, config.context - 1)


def check_text(text: str, config: ServerConfig, field: str = "prompt") -> str:
    """The text. Raises ApiError where its tokens would be too many, whatever they are."""
    tokenizer: Any = config.target.tokenizer
    tokens_min = len(text) // token_bytes_max(tokenizer)
    if tokens_min > prompt_max(config):
        raise _too_long(f"at least {tokens_min}", config, field)
    return text


def check_ids(ids: Sequence[Any], config: ServerConfig, field: str = "prompt") -> Sequence[Any]:
    """The ids. Raises ApiError where they are too many."""
    if len(ids) > prompt_max(config):
        raise _too_long(str(len(ids)), config, field)
    return ids


def _too_long(count: str, config: ServerConfig, field: str) -> ApiError:
    """The refusal, with the numbers by llama-server's names."""
    most = prompt_max(config)
    problem = f"the {field} has {count} tokens, which exceeds the available context size: at most {most} are allowed"
    more = {"n_prompt_tokens": int(count.rpartition(" ")[2]), "n_ctx": config.context}
    return ApiError(400, problem, field, "context_length_exceeded", kind="exceed_context_size_error", more=more)
