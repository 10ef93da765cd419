"""Chat templates are untrusted programs: they run in a sandbox, with limits on output and time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from spec_core.errors import UsageError

MAX_CHARACTERS = 4_000_000
MAX_SECONDS = 2.0
MAX_RANGE = 10_000
MEND = "the template comes with the model; give the prompt as text (-p), or use another file of the model"


class Environment(ImmutableSandboxedEnvironment):
    """Every look-up in a template calls this environment, which stops a template that runs too long."""

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        self.deadline = monotonic() + MAX_SECONDS
        self.intercepted_binops = frozenset({"*", "**", "+"})
        self.filters["tojson"] = _tojson
        self.globals.update(raise_exception=_raise, strftime_now=_now, range=self._range)

    def _range(self, *bounds: int) -> range:
        values = range(*bounds)
        self._tick()
        if len(values) > MAX_RANGE:
            raise jinja2.TemplateError(f"a range of {len(values)}")
        return values

    def _tick(self) -> None:
        if monotonic() > self.deadline:
            raise jinja2.TemplateError(f"it ran longer than {MAX_SECONDS:g} seconds")

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self._tick()
        if operator == "**" or (operator == "*" and not _small(left, right)):
            raise jinja2.TemplateError(f"the product of {type(left).__name__} and {type(right).__name__} is too large")
        if (
            operator == "+"
            and hasattr(left, "__len__")
            and hasattr(right, "__len__")
            and len(left) + len(right) > MAX_CHARACTERS
        ):
            raise jinja2.TemplateError("a text is too long")
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        self._tick()
        return super().getattr(obj, attribute)

    def call(self, *args: Any, **keywords: Any) -> Any:
        self._tick()
        return super().call(*args, **keywords)


def _small(left: Any, right: Any) -> bool:
    """A repeated text or list stays short; numbers stay below 2^64."""
    for text, times in ((left, right), (right, left)):
        if hasattr(text, "__len__"):
            return isinstance(times, int) and len(text) * max(0, times) <= MAX_CHARACTERS
    return abs(left) < 1 << 32 and abs(right) < 1 << 32


def _tojson(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _now(format: str) -> str:
    return datetime.now().strftime(format)


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    bos: str = "",
    eos: str = "",
    tools: Sequence[Any] | None = None,
    add_generation_prompt: bool = True,
    **keywords: Any,
) -> str:
    """The prompt of a conversation. Raises UsageError for a template that fails, escapes, or does not end."""
    environment = Environment()
    try:
        chunks = environment.from_string(template).generate(
            messages=[dict(m) for m in messages],
            bos_token=bos,
            eos_token=eos,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            **keywords,
        )
        return _bounded(chunks, environment.deadline)
    except (
        jinja2.TemplateError,
        TypeError,
        ValueError,
        ArithmeticError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as error:
        raise UsageError(f"the chat template failed: {str(error) or type(error).__name__}", hint=MEND) from error


def _bounded(chunks: Any, deadline: float) -> str:
    parts, size = [], 0
    for chunk in chunks:
        size += len(chunk)
        if size > MAX_CHARACTERS:
            raise jinja2.TemplateError(f"it wrote more than {MAX_CHARACTERS} characters")
        if monotonic() > deadline:
            raise jinja2.TemplateError(f"it ran longer than {MAX_SECONDS:g} seconds")
        parts.append(chunk)
    return "".join(parts)
