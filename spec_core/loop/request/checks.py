"""Checks of a request's fields when it is submitted, so that no request can end another one later.

Each function returns the user's value in the type that the loop needs, or raises UsageError. It returns a copy: a list
that the user changes later has no effect. ``prompts`` checks the prompt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from torch import Tensor

from spec_core.contract.fields import ReadOnlyDict
from spec_core.errors import UsageError, quote_value
from spec_core.sampling.given import real_number, whole_number
from spec_core.sampling.parameters import Sampling

if TYPE_CHECKING:
    from spec_core.contract.target import Target

PRIORITY_MAX = 10**9
SEEDS, STREAMS, POSITIONS = 1 << 64, 1 << 16, 1 << 32
"""Number of possible values; larger ones would lose bits, and two of them would be the same."""
SMALLEST = -3.4028235677973366e38
"""Smaller biases make a logit of float32 -inf, as -inf does."""
TEXTLESS = (bytes, bytearray, memoryview, Mapping)
"""Iterables that are refused as a list."""


# how tokens are chosen


def sampling(value: Any, vocab: int) -> Sampling:
    if not isinstance(value, Sampling):
        raise UsageError(f"sampling is {kind(value)}", hint="give a Sampling, such as Sampling(temperature=0.8)")
    if not isinstance(value.logit_bias, Mapping):
        raise UsageError(f"logit_bias is {kind(value.logit_bias)}", hint="give {token: number}")
    best = None if value.logprobs is None else min(value.logprobs, vocab)
    bias = ReadOnlyDict(_bias(*pair, vocab) for pair in value.logit_bias.items())
    return attrs.evolve(value, logprobs=best, logit_bias=bias)


def _bias(key: Any, value: Any, vocab: int) -> tuple[int, float]:
    token, bias = whole_number(key), real_number(value)
    if token is None or not 0 <= token < vocab:
        raise UsageError(
            f"logit bias for token {quote_value(key)}, the vocabulary has {vocab}",
            hint=f"give whole numbers from 0 to {vocab - 1}",
        )
    if bias is None or not bias < -SMALLEST:
        raise UsageError(
            f"logit bias {quote_value(value)} for token {token}",
            hint="give a finite number below 3.4e38, or -inf to ban it",
        )
    return token, bias if bias > SMALLEST else -math.inf


def checked_seed(value: Any) -> int:
    seed = whole_number(value)
    if seed is None or not 0 <= seed < SEEDS:
        raise UsageError(f"seed {quote_value(value)} is not a 64-bit number", hint=f"give one from 0 to {SEEDS - 1}")
    return seed


def index_below(name: str, value: Any, count: int) -> int:
    number = whole_number(value)
    if number is None or not 0 <= number < count:
        raise UsageError(f"{name} = {quote_value(value)}", hint=f"give a whole number from 0 to {count - 1}")
    return number


def number_within(name: str, value: Any, limit: int) -> int:
    number = whole_number(value)
    if number is None or not -limit <= number <= limit:
        raise UsageError(f"{name} = {quote_value(value)}", hint=f"give a whole number from {-limit} to {limit}")
    return number


def share(name: str, value: Any) -> float:
    number = real_number(value)
    if number is None or not 0 <= number <= 1:
        raise UsageError(f"{name} = {quote_value(value)}", hint="give a number from 0 to 1")
    return number


# where it ends, and the rest


def stop_texts(value: Any, target: Target) -> tuple[str, ...]:
    stops = texts("stop", value, "a text or a list of texts; ids are stop_tokens")
    if stops and target.tokenizer is None:
        raise UsageError("stop texts need a tokenizer, this target has none", hint="use stop tokens (--stop-token ID)")
    if "" in stops:
        raise UsageError("an empty stop text would end every output at once", hint="leave it out")
    return stops


def texts(name: str, value: Any, needed: str) -> tuple[str, ...]:
    items = _items(name, value, needed)
    for item in items:
        if not isinstance(item, str):
            raise UsageError(f"{name} holds {quote_value(item)}, which is not a text", hint=f"give {needed}")
        check_text(name, item)
    return items


def _items(name: str, value: Any, needed: str) -> tuple[Any, ...]:
    """The items of a list; a text is one item, not a list of its characters."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Iterable) or isinstance(value, TEXTLESS) or getattr(value, "ndim", 1) != 1:
        raise UsageError(f"{name} is {kind(value)}", hint=f"give {needed}")
    return tuple(value)


def stop_tokens(value: Any, vocab: int) -> frozenset[int]:
    tokens = set()
    for item in _items("stop_tokens", value, "a list of token ids"):
        token = whole_number(item)
        if token is None or not 0 <= token < vocab:
            raise UsageError(
                f"stop token {quote_value(item)} is outside the vocabulary of {vocab}",
                hint=f"give whole numbers from 0 to {vocab - 1}",
            )
        tokens.add(token)
    return frozenset(tokens)


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise UsageError(f"{name} = {quote_value(value)}", hint="give True or False")
    return bool(value)


def label(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"the {name} {quote_value(value)} is not a text", hint="give a text, or leave it out")
    return str(value)


def check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{what} has half a surrogate pair at character {error.start}",
            hint="read the text as UTF-8, with errors='replace' if it is damaged",
        ) from error


def kind(value: Any) -> str:
    """The type of a value that may be too long to show."""
    shape = f" of shape {list(value.shape)}" if isinstance(value, (np.ndarray, Tensor)) else ""
    return f"of type {type(value).__name__}{shape}"
