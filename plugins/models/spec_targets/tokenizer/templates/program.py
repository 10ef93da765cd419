"""The program of a template process: answers requests for prompts. Run as a program, by its path.

The system ends it when it uses too much time or memory, so nothing here counts loops or lengths but that of the prompt.
A message is a marshalled (template, variables, characters of the longest prompt); an answer is a byte that says what
follows, and a text.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from spec_core.toolkit import answer_messages

TEXT = b"T"
"""Kind of an answer that is a prompt."""
FAILED = b"E"
"""Kind of an answer that is a message of an error."""
FULL = b"M"
"""Kind of an answer without memory left."""
REASON_MAX = 300


def answer(message: bytes) -> bytes:
    template, variables, longest = marshal.loads(message)
    try:
        chunks = compile_template(template).generate(**variables)
        return TEXT + "".join(limit_length(chunks, longest)).encode("utf-8", "surrogatepass")
    except MemoryError:
        return FULL
    except Exception as error:
        reason = str(error) or type(error).__name__
        return FAILED + reason[:REASON_MAX].encode("utf-8", "replace")


def limit_length(chunks: Iterator[str], longest: int) -> Iterator[str]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > longest:
            raise ValueError(f"it wrote more than {longest} characters")
        yield chunk


# the environment, as transformers has it


@lru_cache(8)
def compile_template(template: str) -> Any:
    return environment().from_string(template)


@lru_cache(1)
def environment() -> Any:
    import jinja2.nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` marks what a model is trained on; it is part of the prompt."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_whole"), [], [], body).set_lineno(line)

        def _whole(self, caller: Any) -> Any:
            return caller()

    class Namespace(jinja2.utils.Namespace):
        """One without attributes that begin with an underscore."""

        def __init__(*args: Any, **keywords: Any) -> None:
            self, values = args[0], dict(*args[1:], **keywords)
            for name in values:
                check_name(name)
            jinja2.utils.Namespace.__init__(self, values)

        def __setitem__(self, name: str, value: Any) -> None:
            check_name(name)
            super().__setitem__(name, value)

    def check_name(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace cannot have the attribute {name!r}")

    def raise_exception(message: Any) -> NoReturn:
        raise jinja2.exceptions.TemplateError(str(message))

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = to_json
    env.globals.update(raise_exception=raise_exception, strftime_now=time_now, dict=Dict(), namespace=Namespace)
    return env


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def time_now(format: str) -> str:
    return datetime.now().strftime(format)


class Dict:
    """``dict`` of a template: a function without the attributes of the class."""

    def __call__(self, *args: Any, **keywords: Any) -> dict[Any, Any]:
        return dict(*args, **keywords)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


if __name__ == "__main__":
    environment()  # imported before there are limits
    answer_messages(answer)
