"""Arguments that a run accepts besides the exact types: a location, messages, several prompts, keywords."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs
import numpy as np
from torch import Tensor

from spec_core.contract.request import Request
from spec_core.errors import SpecError, UsageError, nearest_names
from spec_core.sampling.parameters import Sampling
from spec_core.settings.convert import structure
from spec_core.settings.tables import LoadSettings, RunSettings, core_fields

T = TypeVar("T")


def names(table: type) -> list[str]:
    return [field.name for field in attrs.fields(table)]


ELSEWHERE = {
    **dict.fromkeys(
        ("max_new_tokens", "max_completion_tokens", "max_length", "n_predict", "num_predict"),
        "use max_tokens for the max length of the output",
    ),
    "n": "use max_tokens for the max length of the output; "
    "for several texts of one prompt: generate([Request(prompt, noise_stream=i) for i in range(n)])",
    "do_sample": "temperature=0 is greedy, a higher temperature draws",
    "stop_strings": "stop takes texts, stop_tokens takes ids",
    "prompt": "give the prompt once, as the first argument: run.generate(prompt)",
    "messages": "give the messages as the first argument: run.generate(messages)",
    "prompts": "give a list of prompts as the first argument: run.generate([prompt, prompt])",
    "method": "methods is a list: methods=['NAME']",
    "model": "the model is the first argument: Run('MODEL', methods=['NAME'])",
}
"""Keywords of other programs, and what to use here."""


def split_keywords(settings: RunSettings | None, keywords: Mapping[str, Any]) -> tuple[RunSettings, dict[str, Any]]:
    """(settings updated by keywords, options of ``load``). Raises UsageError for other keywords."""
    _check_known("Run", keywords, [*names(RunSettings), *names(LoadSettings)])
    known, own = core_fields(), names(RunSettings)
    running = {name: structure(value, known[name], name) for name, value in keywords.items() if name in own}
    loading = {name: value for name, value in keywords.items() if name not in own}
    return attrs.evolve(settings or RunSettings(), **running), loading


def check_alone(*arguments: Any) -> None:
    """A prepared run has its plugins and its model: raise UsageError where either is passed again."""
    if any(arguments):
        raise UsageError("a prepared run takes no plugins and no options of loading", hint="pass them to prepare()")


def request_of(prompt: Any, keywords: Mapping[str, Any]) -> Request:
    """A request from the user's arguments. Keywords are fields of Request or Sampling. Raises UsageError."""
    fields = [name for name in names(Request) if name != "prompt" or isinstance(prompt, Request)]
    _check_known("a request", keywords, [*fields, *names(Sampling)])
    own = {name: value for name, value in keywords.items() if name in fields}
    sampling = {name: value for name, value in keywords.items() if name not in own}
    if sampling and "sampling" in own:
        raise UsageError(
            f"sampling and {', '.join(sampling)} are both given", hint="set it once: in Sampling, or by keyword"
        )
    request = attrs.evolve(prompt, **own) if isinstance(prompt, Request) else Request(prompt, **own)
    return attrs.evolve(request, sampling=attrs.evolve(request.sampling, **sampling)) if sampling else request


def _check_known(whose: str, keywords: Iterable[str], known: Iterable[str]) -> None:
    for name in keywords:
        if name not in known:
            hint = ELSEWHERE.get(name) or f"keywords: {nearest_names(name, known)}"
            raise UsageError(f"{whose} has no keyword {name!r}", hint=hint)


def is_prompt_list(value: Any) -> bool:
    """Whether this is a list of prompts (texts, requests, lists of ids or messages), not one prompt as a list."""
    one = (str, Request, list, tuple, np.ndarray, Tensor)
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(p, one) and _whole(p) for p in value)


def _whole(value: Any) -> bool:
    """Whether this is not a zero-dimensional array."""
    return getattr(value, "ndim", 1) > 0


def all_of(prompts: list[Any], check: Callable[[Any], T]) -> list[T]:
    """Check every prompt. Raises UsageError with the number of the wrong prompt."""
    checked = []
    for at, one in enumerate(prompts):
        try:
            checked.append(check(one))
        except UsageError as error:
            raise with_prompt_number(at, len(prompts), error) from error
    return checked


def with_prompt_number(at: int, count: int, error: SpecError) -> UsageError:
    """The same refusal, with the number of the prompt."""
    return UsageError(f"prompt {at + 1} of {count}: {error.reason}", hint=error.hint)
