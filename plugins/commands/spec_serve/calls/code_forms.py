"""Readers of calls in a block of code, and of answers in sections that each begin with a name."""

from __future__ import annotations

from spec_serve.calls.call import Call, Tools, properties_of
from spec_serve.calls.forms import Form, Found, read_arguments, read_python, read_python_call
from spec_serve.calls.text import NoCall, Step, Text, has_word, read_char, read_name, skip_closing, skip_space

PRINTED = "print" + "("
CONTENT = "all"
"""Name of the section that is the answer's text (Functionary 3.2)."""


def read_code(closing: str) -> Form:
    """Calls in Python, one in a line, each also within a call of ``print``; or a list of calls."""

    def read(text: Text, at: int, tools: Tools) -> Step[Found]:
        at = yield from skip_space(text, at)
        if (yield from read_char(text, at)) == "[":
            return (yield from read_python(closing)(text, at, tools))
        calls: list[Call] = []
        while True:
            start = yield from skip_space(text, at)
            try:
                call, at = yield from _read_line(text, start, tools)
            except NoCall:
                break
            calls.append(call)
        if not calls:
            raise NoCall
        return calls, (yield from skip_closing(text, at, closing))

    return read


def _read_line(text: Text, at: int, tools: Tools) -> Step[tuple[Call, int]]:
    """A call, or a call that is printed."""
    if not (yield from has_word(text, at, PRINTED)):
        return (yield from read_python_call(text, at, tools))
    call, at = yield from read_python_call(text, at + len(PRINTED), tools)
    if (yield from read_char(text, at)) != ")":
        raise NoCall
    return call, at + 1


def read_section(text: Text, at: int, tools: Tools) -> Step[Found]:
    """A name in a line of its own, and an object of arguments; or ``all``, after which the answer's text follows."""
    name = yield from read_name(text, at)
    at += len(name)
    if (yield from read_char(text, at)) != "\n":
        raise NoCall
    if name == CONTENT and CONTENT not in tools:
        return [], at + 1
    properties_of(name, tools)
    return (yield from read_arguments(text, at + 1, name, tools, ""))
