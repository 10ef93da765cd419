"""Everything about a request is settled when it is submitted: after that, no request can end another.

Each function takes what the user gave, and returns it in the type that the loop relies on, or raises UsageError. What
is returned is a copy: a list or tensor that the user changes later changes nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from torch import Tensor

from spec_core.errors import UsageError, shown
from spec_core.sampling.given import COUNTS, real, whole
from spec_core.sampling.parameters import Sampling

if TYPE_CHECKING:
    from spec_core.contract.target import Target

SEEDS, STREAMS, POSITIONS = 1 << 64, 1 << 16, 1 << 32
"""How many there are of each; larger ones would be cut, and two would be the same."""
TEXTLESS = (bytes, bytearray, memoryview, Mapping)
"""What can be iterated over and is no list of what it yields."""


# the prompt


def prompt(given: Any, embeds: Mapping[int, Tensor], target: Target) -> list[int]:
    """Token ids of the prompt; -1 where an embedding is given."""
    tokens = _tokens(given, target)
    vocab = target.info.vocab
    for at, token in enumerate(tokens):
        if not 0 <= token < vocab and at not in embeds:
            raise UsageError(
                f"prompt token {shown(token)} at position {at} is outside the vocabulary of {vocab}",
                hint="tokenize the prompt with this model's own tokenizer",
            )
    for at in embeds:
        if not 0 <= at < len(tokens):
            raise UsageError(
                f"an embedding is given for position {shown(at)}, the prompt has {len(tokens)}",
                hint="put the token -1 into the prompt at every position that is given as an embedding",
            )
    return [-1 if at in embeds else token for at, token in enumerate(tokens)] if embeds else tokens


def _tokens(given: Any, target: Target) -> list[int]:
    if isinstance(given, str):
        return _encoded(given, target)
    if isinstance(given, (list, tuple)) and any(isinstance(item, Mapping) for item in given):
        return _chat(given, target)
    return _ids(given)


def _chat(messages: Sequence[Any], target: Target) -> list[int]:
    """Messages through the model's chat template."""
    for at, message in enumerate(messages):
        if not isinstance(message, Mapping) or "role" not in message or not {"content", "tool_calls"} & set(message):
            raise UsageError(
                f"message {at + 1} is {shown(message)}",
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


def _encoded(text: str, target: Target) -> list[int]:
    if target.tokenizer is None:
        raise UsageError(f"{target.info.name} has no tokenizer", hint="give the prompt as token ids (--tokens 1,2,3)")
    _check_text("the prompt", text)
    return target.tokenizer.encode(text)


def _check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{what} has half a surrogate pair at character {error.start}",
            hint="read the text as UTF-8, with errors='replace' if it is damaged",
        ) from error


def _ids(given: Any) -> list[int]:
    """A list of whole numbers, or an integral array or tensor of one dimension."""
    hint = "give a text, or its token ids as a list of whole numbers"
    items = given.tolist() if isinstance(given, (np.ndarray, Tensor)) else given
    if not isinstance(items, Sequence) or isinstance(items, TEXTLESS):
        raise UsageError(f"the prompt is {_kind(given)}", hint)
    if all(type(item) is int for item in items):
        return list(items)
    tokens = [whole(item) for item in items]
    if None in tokens:
        at = tokens.index(None)
        raise UsageError(f"prompt token {shown(items[at])} at position {at} is not a whole number", hint)
    return [token for token in tokens if token is not None]


def length(given: Any, prompt: int, context: int) -> int:
    n = below("max_tokens", given, COUNTS)
    if not prompt:
        raise UsageError("the prompt is empty and this model adds no beginning token", hint="give at least one token")
    if prompt >= context and n > 0:
        raise UsageError(
            f"the prompt has {prompt} tokens, the context is {context} and one must be left to generate",
            hint=f"shorten the prompt to {context - 1} tokens, or load the model with a larger --context if it has one",
        )
    return n


# embeddings


def embeddings(given: Any, target: Target) -> dict[int, Tensor]:
    if not isinstance(given, Mapping):
        raise UsageError(f"embeds is {_kind(given)}", hint="give {position: vector}, or leave it out")
    made: dict[int, Tensor] = {}
    for place, vector in given.items():
        at = whole(place)
        if at is None:
            raise UsageError(f"an embedding is given for position {shown(place)}", hint="give whole positions")
        made[at] = _embedding(vector, at, target)
    return made


def _embedding(given: Any, at: int, target: Target) -> Tensor:
    """[D] on the target's device; of the narrow types, whose numbers float32 holds exactly, as float32."""
    width, where = target.info.width, f"the embedding at position {shown(at)}"
    vector = _tensor(given, where, width)
    if tuple(vector.shape) != (width,):
        raise UsageError(
            f"{where} has shape {list(vector.shape)}, this model's are [{width}]",
            hint="give one vector of the model's width per position",
        )
    dtype = vector.dtype if vector.dtype in (torch.float32, torch.float64) else torch.float32
    vector = vector.detach().to(device=target.info.device, dtype=dtype, copy=True)
    if not bool(vector.isfinite().all()):
        raise UsageError(f"{where} holds numbers that are not finite", hint="look at where it was made")
    return vector


def _tensor(given: Any, where: str, width: int) -> Tensor:
    hint = f"give a floating-point tensor or array of shape [{width}]"
    if isinstance(given, np.ndarray) and given.dtype.kind == "f" and given.dtype.itemsize <= 8:
        return torch.from_numpy(np.array(given, dtype=np.float64 if given.dtype.itemsize == 8 else np.float32))
    if not isinstance(given, Tensor):
        raise UsageError(f"{where} is {_kind(given)}", hint)
    if not given.dtype.is_floating_point or given.layout != torch.strided or given.is_meta:
        raise UsageError(f"{where} is a tensor of {given.dtype}, {given.layout}, on {given.device}", hint)
    return given


# how tokens are chosen


def sampling(given: Any, vocab: int) -> Sampling:
    if not isinstance(given, Sampling):
        raise UsageError(f"sampling is {_kind(given)}", hint="give a Sampling, such as Sampling(temperature=0.8)")
    if not isinstance(given.logit_bias, Mapping):
        raise UsageError(f"logit_bias is {_kind(given.logit_bias)}", hint="give {token: number}")
    best = None if given.logprobs is None else min(given.logprobs, vocab)
    return attrs.evolve(given, logprobs=best, logit_bias=dict(_bias(*pair, vocab) for pair in given.logit_bias.items()))


def _bias(key: Any, value: Any, vocab: int) -> tuple[int, float]:
    token, bias = whole(key), real(value)
    if token is None or not 0 <= token < vocab:
        raise UsageError(
            f"logit bias for token {shown(key)}, the vocabulary has {vocab}",
            hint=f"give whole numbers from 0 to {vocab - 1}",
        )
    if bias is None or not bias < math.inf:
        raise UsageError(f"logit bias {shown(value)} for token {token}", hint="give a finite number, or -inf to ban it")
    return token, bias


def seed(given: Any) -> int:
    seed = whole(given)
    if seed is None or not 0 <= seed < SEEDS:
        raise UsageError(f"seed {shown(given)} is not a 64-bit number", hint=f"give one from 0 to {SEEDS - 1}")
    return seed


def below(name: str, given: Any, count: int) -> int:
    value = whole(given)
    if value is None or not 0 <= value < count:
        raise UsageError(f"{name} = {shown(given)}", hint=f"give a whole number from 0 to {count - 1}")
    return value


def whole_number(name: str, given: Any) -> int:
    value = whole(given)
    if value is None or not -POSITIONS < value < POSITIONS:
        raise UsageError(f"{name} = {shown(given)}", hint=f"give a whole number between {-POSITIONS} and {POSITIONS}")
    return value


def share(name: str, given: Any) -> float:
    value = real(given)
    if value is None or not 0 <= value <= 1:
        raise UsageError(f"{name} = {shown(given)}", hint="give a number from 0 to 1")
    return value


# where it ends, and the rest


def stops(given: Any, target: Target) -> tuple[str, ...]:
    stops = texts("stop", given, "a text or a list of texts; ids are stop_tokens")
    if stops and target.tokenizer is None:
        raise UsageError("stop texts need a tokenizer, this target has none", hint="use stop tokens (--stop-token ID)")
    if "" in stops:
        raise UsageError("an empty stop text would end every output at once", hint="leave it out")
    return stops


def texts(name: str, given: Any, wanted: str) -> tuple[str, ...]:
    items = _items(name, given, wanted)
    for item in items:
        if not isinstance(item, str):
            raise UsageError(f"{name} holds {shown(item)}, which is not a text", hint=f"give {wanted}")
        _check_text(name, item)
    return items


def _items(name: str, given: Any, wanted: str) -> tuple[Any, ...]:
    """The items of a list; a text is one item, not a list of its characters."""
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, Iterable) or isinstance(given, TEXTLESS) or getattr(given, "ndim", 1) != 1:
        raise UsageError(f"{name} is {_kind(given)}", hint=f"give {wanted}")
    return tuple(given)


def stop_tokens(given: Any, vocab: int) -> frozenset[int]:
    found = set()
    for item in _items("stop_tokens", given, "a list of token ids"):
        token = whole(item)
        if token is None or not 0 <= token < vocab:
            raise UsageError(
                f"stop token {shown(item)} is outside the vocabulary of {vocab}",
                hint=f"give whole numbers from 0 to {vocab - 1}",
            )
        found.add(token)
    return frozenset(found)


def flag(name: str, given: Any) -> bool:
    if not isinstance(given, (bool, np.bool_)):
        raise UsageError(f"{name} = {shown(given)}", hint="give True or False")
    return bool(given)


def name(given: Any) -> str:
    if not isinstance(given, str):
        raise UsageError(f"the name {shown(given)} is not a text", hint="give a text, or leave it out")
    return str(given)


def _kind(given: Any) -> str:
    """What was found, where the whole of it would be too long to show."""
    shape = f" of shape {list(given.shape)}" if isinstance(given, (np.ndarray, Tensor)) else ""
    return f"of type {type(given).__name__}{shape}"
