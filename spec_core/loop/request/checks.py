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


def sampling(given: Any, vocab: int) -> Sampling:
    if not isinstance(given, Sampling):
        raise UsageError(f"sampling is {kind(given)}", hint="give a Sampling, such as Sampling(temperature=0.8)")
    if not isinstance(given.logit_bias, Mapping):
        raise UsageError(f"logit_bias is {kind(given.logit_bias)}", hint="give {token: number}")
    best = None if given.logprobs is None else min(given.logprobs, vocab)
    bias = ReadOnlyDict(_bias(*pair, vocab) for pair in given.logit_bias.items())
    return attrs.evolve(given, logprobs=best, logit_bias=bias)


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


def checked_seed(given: Any) -> int:
    seed = whole_number(given)
    if seed is None or not 0 <= seed < SEEDS:
        raise UsageError(f"seed {quote_value(given)} is not a 64-bit number", hint=f"give one from 0 to {SEEDS - 1}")
    return seed


def index_below(name: str, given: Any, count: int) -> int:
    value = whole_number(given)
    if value is None or not 0 <= value < count:
        raise UsageError(f"{name} = {quote_value(given)}", hint=f"give a whole number from 0 to {count - 1}")
    return value


def number_within(name: str, given: Any, limit: int) -> int:
    value = whole_number(given)
    if value is None or not -limit <= value <= limit:
        raise UsageError(f"{name} = {quote_value(given)}", hint=f"give a whole number from {-limit} to {limit}")
    return value


def share(name: str, given: Any) -> float:
    value = real_number(given)
    if value is None or not 0 <= value <= 1:
        raise UsageError(f"{name} = {quote_value(given)}", hint="give a number from 0 to 1")
    return value


# where it ends, and the rest


def stop_texts(given: Any, target: Target) -> tuple[str, ...]:
    stops = texts("stop", given, "a text or a list of texts; ids are stop_tokens")
    if stops and target.tokenizer is None:
        raise UsageError("stop texts need a tokenizer, this target has none", hint="use stop tokens (--stop-token ID)")
    if "" in stops:
        raise UsageError("an empty stop text would end every output at once", hint="leave it out")
    return stops


def texts(name: str, given: Any, needed: str) -> tuple[str, ...]:
    items = _items(name, given, needed)
    for item in items:
        if not isinstance(item, str):
            raise UsageError(f"{name} holds {quote_value(item)}, which is not a text", hint=f"give {needed}")
        check_text(name, item)
    return items


def _items(name: str, given: Any, needed: str) -> tuple[Any, ...]:
    """The items of a list; a text is one item, not a list of its characters."""
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, Iterable) or isinstance(given, TEXTLESS) or getattr(given, "ndim", 1) != 1:
        raise UsageError(f"{name} is {kind(given)}", hint=f"give {needed}")
    return tuple(given)


def stop_tokens(given: Any, vocab: int) -> frozenset[int]:
    tokens = set()
    for item in _items("stop_tokens", given, "a list of token ids"):
        token = whole_number(item)
        if token is None or not 0 <= token < vocab:
            raise UsageError(
                f"stop token {quote_value(item)} is outside the vocabulary of {vocab}",
                hint=f"give whole numbers from 0 to {vocab - 1}",
            )
        tokens.add(token)
    return frozenset(tokens)


def flag(name: str, given: Any) -> bool:
    if not isinstance(given, (bool, np.bool_)):
        raise UsageError(f"{name} = {quote_value(given)}", hint="give True or False")
    return bool(given)


def label(name: str, given: Any) -> str:
    if not isinstance(given, str):
        raise UsageError(f"the {name} {quote_value(given)} is not a text", hint="give a text, or leave it out")
    return str(given)


def check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{what} has half a surrogate pair at character {error.start}",
            hint="read the text as UTF-8, with errors='replace' if it is damaged",
        ) from error


def kind(given: Any) -> str:
    """The type of a value that may be too long to show."""
    shape = f" of shape {list(given.shape)}" if isinstance(given, (np.ndarray, Tensor)) else ""
    return f"of type {type(given).__name__}{shape}"
