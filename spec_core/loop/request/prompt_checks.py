"""Checks of a prompt: texts, messages, token ids and embeddings become token ids and vectors, or raise UsageError.

What they return is a copy: a list or tensor that the user changes later has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from spec_core.contract.encoded_prompt import EncodedPrompt
from spec_core.contract.parts import encode_after
from spec_core.errors import UsageError, quote_value
from spec_core.loop.request.checks import TEXTLESS, check_text, index_below, kind
from spec_core.sampling.given import COUNTS, whole_number

if TYPE_CHECKING:
    from spec_core.contract.target import Target


def prompt(value: Any, embeds: Mapping[int, Tensor], target: Target, encoded: EncodedPrompt | None = None) -> list[int]:
    """Token ids of the prompt; the number of the embedding where one is given."""
    tokens = _tokens(value, target)
    vocab = target.info.vocab
    for at, token in enumerate(tokens):
        if not 0 <= token < vocab and at not in embeds:
            raise UsageError(
                f"prompt token {quote_value(token)} at position {at} is outside the vocabulary of {vocab}",
                hint="tokenize the prompt with this model's own tokenizer",
            )
    for at in embeds:
        if not 0 <= at < len(tokens):
            raise UsageError(
                f"an embedding is given for position {quote_value(at)}, the prompt has {len(tokens)}",
                hint="put the token -1 into the prompt at every position that is given as an embedding",
            )
    numbers = {at: number_of(row, b"" if encoded is None else _more(encoded, at)) for at, row in embeds.items()}
    return [numbers.get(at, token) for at, token in enumerate(tokens)] if numbers else tokens


def _tokens(value: Any, target: Target) -> list[int]:
    if isinstance(value, str):
        return _encode(value, target)
    if isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        return _chat(value, target)
    return _ids(value)


def _chat(messages: Sequence[Any], target: Target) -> list[int]:
    """Messages formatted with the model's chat template."""
    for at, message in enumerate(messages):
        if not isinstance(message, Mapping) or "role" not in message or not {"content", "tool_calls"} & set(message):
            raise UsageError(
                f"message {at + 1} is {quote_value(message)}",
                hint='give messages as [{"role": "user", "content": "..."}]',
            )
    if target.tokenizer is None or not target.tokenizer.chat_template:
        raise UsageError(
            f"{target.info.name} has no chat template",
            hint="give the prompt as one text, written as this model expects it",
        )
    encode: Any = getattr(target.tokenizer, "encode_chat", None)
    if not callable(encode):
        raise UsageError(
            f"the tokenizer of {target.info.name} has a chat template and no encode_chat",
            hint="give the prompt as one text, or report it to the author of the target",
        )
    return list(encode(messages))


def _encode(text: str, target: Target) -> list[int]:
    if target.tokenizer is None:
        raise UsageError(f"{target.info.name} has no tokenizer", hint="give the prompt as token ids (--tokens 1,2,3)")
    check_text("the prompt", text)
    return target.tokenizer.encode(text)


def _ids(value: Any, what: str = "prompt") -> list[int]:
    """A list of whole numbers, or an integral array or tensor of one dimension."""
    hint = "give a text, or its token ids as a list of whole numbers"
    items = value.tolist() if isinstance(value, (np.ndarray, Tensor)) else value
    if not isinstance(items, Sequence) or isinstance(items, TEXTLESS):
        raise UsageError(f"the {what} is {kind(value)}", hint)
    if all(type(item) is int for item in items):
        return list(items)
    tokens = [whole_number(item) for item in items]
    if None in tokens:
        at = tokens.index(None)
        raise UsageError(f"{what} token {quote_value(items[at])} at position {at} is not a whole number", hint)
    return [token for token in tokens if token is not None]


def prediction(value: Any, target: Target, before: Sequence[int] = ()) -> list[int]:
    """Token ids of the predicted output, without a beginning token. before: the tokens of the prompt."""
    if isinstance(value, str):
        if not value:
            return []
        check_text("the prediction", value)
        if target.tokenizer is None:
            raise UsageError(f"{target.info.name} has no tokenizer", hint="give the prediction as token ids")
        return encode_after(target.tokenizer, value, before)
    ids, vocab = _ids(value, "prediction"), target.info.vocab
    if wrong := [token for token in ids if not 0 <= token < vocab]:
        raise UsageError(
            f"prediction token {quote_value(wrong[0])} is outside the vocabulary of {vocab}",
            hint="tokenize the prediction with this model's own tokenizer",
        )
    return ids


def length(value: Any, prompt: int, context: int) -> int:
    n = index_below("max_tokens", value, COUNTS)
    if not prompt:
        raise UsageError("the prompt is empty and this model adds no beginning token", hint="give at least one token")
    if prompt >= context and n > 0:
        raise UsageError(
            f"the prompt has {prompt} tokens, the context is {context} and one must be left to generate",
            hint=f"shorten the prompt to {context - 1} tokens, or load the model with a larger --context if it has one",
        )
    return n


# embeddings


def _more(encoded: EncodedPrompt, at: int) -> bytes:
    """What a row of a picture depends on besides its embedding: its block, positions, and what is added to it."""
    block = encoded.block_at(at)
    place = None if block is None else (at - block[0], block[1] - block[0])
    positions = None if encoded.positions is None else encoded.positions[:, at].tolist()
    added = [bytes_of(rows[at]) for rows in encoded.added if at in rows]
    return repr((place, positions)).encode() + b"".join(added)


def bytes_of(vector: Tensor) -> bytes:
    return vector.cpu().numpy().tobytes()


def number_of(embedding: Tensor, more: bytes = b"") -> int:
    """A negative number for the contents of a row, from 62 bits of their SHA-256: equal rows have equal numbers."""
    digest = sha256(bytes_of(embedding) + more).digest()
    return -2 - (int.from_bytes(digest[:8], "little") >> 2)


def embeddings(value: Any, target: Target) -> dict[int, Tensor]:
    if not isinstance(value, Mapping):
        raise UsageError(f"embeds is {kind(value)}", hint="give {position: vector}, or leave it out")
    by_position: dict[int, Tensor] = {}
    for place, vector in value.items():
        at = whole_number(place)
        if at is None:
            raise UsageError(f"an embedding is given for position {quote_value(place)}", hint="give whole positions")
        by_position[at] = _embedding(vector, at, target)
    return by_position


def _embedding(value: Any, at: int, target: Target) -> Tensor:
    """[D] on the target's device; narrower types are converted to float32, which holds them exactly."""
    width, where = target.info.width, f"the embedding at position {quote_value(at)}"
    vector = _tensor(value, where, width)
    if tuple(vector.shape) != (width,):
        raise UsageError(
            f"{where} has shape {list(vector.shape)}, this model needs [{width}]",
            hint="give one vector of the model's width per position",
        )
    dtype = vector.dtype if vector.dtype in (torch.float32, torch.float64) else torch.float32
    vector = vector.detach().to(device=target.info.device, dtype=dtype, copy=True)
    if not bool(vector.isfinite().all()):
        raise UsageError(f"{where} has NaN or infinite numbers", hint="check how it was computed")
    return vector


def _tensor(value: Any, where: str, width: int) -> Tensor:
    hint = f"give a floating-point tensor or array of shape [{width}]"
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.dtype.itemsize <= 8:
        return torch.from_numpy(np.array(value, dtype=np.float64 if value.dtype.itemsize == 8 else np.float32))
    if not isinstance(value, Tensor):
        raise UsageError(f"{where} is {kind(value)}", hint)
    if not value.dtype.is_floating_point or value.layout != torch.strided or value.is_meta:
        raise UsageError(f"{where} is a tensor of {value.dtype}, {value.layout}, on {value.device}", hint)
    return value
