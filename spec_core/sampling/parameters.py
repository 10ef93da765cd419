"""The sampling parameters of a request."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import attrs

from spec_core.errors import UsageError, quote_value
from spec_core.sampling.given import COUNTS, real_number, whole_number

LOWEST = -math.inf


def _check(low: float, high: float, *, open_low: bool = False) -> Any:
    def validate(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        hint = f"give a number {'above' if open_low else 'from'} {low} to {high}"
        if not isinstance(value, float):
            raise UsageError(f"{attribute.name} = {quote_value(value)} is not a number", hint=hint)
        if not (low < value if open_low else low <= value) or value > high:
            raise UsageError(f"{attribute.name} = {value} is out of range", hint=hint)

    return validate


def _whole(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and (type(value) is not int or not 0 <= value < COUNTS):
        hint = f"give a whole number from 0 to {COUNTS - 1}"
        raise UsageError(f"{attribute.name} = {quote_value(value)} is not a count", hint=hint)


def _number(default: float, low: float, high: float, *, open_low: bool = False) -> Any:
    """A field that accepts every real number type and refuses anything else by its name."""
    return attrs.field(default=default, converter=_as(real_number), validator=_check(low, high, open_low=open_low))


def _count(default: int | None) -> Any:
    return attrs.field(default=default, converter=_as(whole_number), validator=_whole)


def _as(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Convert if possible; the validator refuses the rest by name."""

    def convert(value: Any) -> Any:
        converted = kind(value)
        return value if converted is None else converted

    return convert


@attrs.frozen(slots=False)
class Sampling:
    """Sampling parameters. The defaults leave the target's distribution unchanged; temperature 0 is greedy.

    temperature: 0 to 100; 0 takes the most likely token after bias and penalties. top_k: keep the k most likely tokens,
    0 is off. top_p: keep the most likely tokens up to this mass. min_p: drop tokens below this share of the most
    likely one.
    repetition_penalty: divides positive and multiplies negative logits of every token in prompt and output (CTRL,
    1909.05858). presence_penalty: subtracted from the logits of tokens in the output.
    frequency_penalty: the same, once per occurrence (OpenAI).
    logit_bias: {token: added to its logit}. logprobs: None, or how many of the most likely tokens to report.
    """

    NAMES: ClassVar[tuple[str, ...]] = (
        "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    )  # fmt: skip
    """Parameters that are one number each; settings of a text have the same names."""

    temperature: float = _number(0.0, 0, 100)
    top_k: int = _count(0)
    top_p: float = _number(1.0, 0, 1, open_low=True)
    min_p: float = _number(0.0, 0, 1)
    repetition_penalty: float = _number(1.0, 0, 100, open_low=True)
    presence_penalty: float = _number(0.0, -100, 100)
    frequency_penalty: float = _number(0.0, -100, 100)
    logit_bias: Mapping[int, float] = attrs.field(factory=dict)
    logprobs: int | None = _count(None)

    @cached_property
    def greedy(self) -> bool:
        """Temperature 0 without bias or penalty: the choice is the argmax of the target's row."""
        return self.temperature == 0 and not self.adjusts

    @cached_property
    def truncates(self) -> bool:
        """Whether some tokens cannot be drawn at all."""
        return bool(self.top_k or self.top_p < 1 or self.min_p)

    @cached_property
    def adjusts(self) -> bool:
        """Whether bias or penalties change logits before temperature; this may depend on the history."""
        penalties = (self.repetition_penalty != 1.0, self.presence_penalty, self.frequency_penalty, self.logit_bias)
        return any(penalties)

    @cached_property
    def _cuts(self) -> tuple[float, int, float, float]:
        """Parameters of the support of an adjusted row, as the native code reads them."""
        return self.temperature, self.top_k, self.top_p, self.min_p

    @cached_property
    def _terms(self) -> tuple[Any, ...]:
        """All parameters of a choice, as the native code reads them."""
        penalties = self.repetition_penalty, self.presence_penalty, self.frequency_penalty
        return *self._cuts, *penalties, self.logit_bias

    @cached_property
    def _unadjusted(self) -> Sampling:
        """This sampling for rows to which bias and penalties were already applied."""
        return Sampling(*self._cuts) if self.adjusts else self
