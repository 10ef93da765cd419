"""Readers of the forms in which models write calls: each reads what follows its opening, to the end of the calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spec_serve.calls.call import Call, Tools, call_of_object, create_call, properties_of, value_of_text
from spec_serve.calls.text import (
    NoCall,
    Step,
    Text,
    choose_word,
    find_end,
    find_word,
    has_word,
    read_char,
    read_name,
    skip_closing,
    skip_space,
)
from spec_serve.calls.values import GEMMA, JSON, PYTHON, read_value

Found = tuple[list[Call], int]
"""Calls, and the index after them."""
Form = Callable[[Text, int, Tools], Step[Found]]
"""Reads the calls after an opening. Raises NoCall."""

TAG, TAG_END, FUNCTION, FUNCTION_END = "<tool_call>", "</tool_call>", "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
INVOKES, INVOKES_END = "<minimax:tool_call>", "</minimax:tool_call>"
ATEM, ATEM_END = "<atem:function_calls>", "</atem:function_calls>"
LINES, LINES_END = "<function_calls>", "</function_calls>"
KEY, KEY_END, VALUE, VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"
MISTRAL, MISTRAL_ID, MISTRAL_ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
KIMI, KIMI_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
KIMI_CALL, KIMI_ARGUMENTS, KIMI_CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
DEEPSEEK, DEEPSEEK_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
DEEPSEEK_CALL, DEEPSEEK_SEPARATOR, DEEPSEEK_CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
GEMMA_CALL, GEMMA_CALL_END, GEMMA_QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
GEMMA3_CALL, GEMMA3_CALL_END, GEMMA3_QUOTE = "<start_function_call>", "<end_function_call>", "<escape>"
NAMED = "call:"
"""Before a function's name in Gemma's forms."""
AFTER_PARAMETER = (PARAMETER, FUNCTION_END, TAG_END, TAG, FUNCTION)
KEY_MAX = 256
"""Characters of a parameter's name."""
Span = tuple[str, int, int]
"""The name of a parameter, and where its value begins and ends."""


def read_tagged(text: Text, at: int, tools: Tools) -> Step[Found]:
    """After ``<tool_call>``: objects, a ``<function=...>``, or a name with ``<arg_key>``."""
    at = yield from skip_space(text, at)
    c = yield from read_char(text, at)
    if c == "[":
        return (yield from read_objects(text, at, tools, TAG_END))
    if c == "{":
        calls, at = yield from _read_row(text, at, tools, ("",))
        return calls, (yield from skip_closing(text, at, TAG_END))
    if (yield from has_word(text, at, FUNCTION)):
        calls, at = yield from read_function(text, at + len(FUNCTION), tools)
        return calls, (yield from skip_closing(text, at, TAG_END))
    return (yield from _read_pairs(text, at, tools))


def read_function(text: Text, at: int, tools: Tools) -> Step[Found]:
    """After ``<function=``: a name, then parameters as text between tags, or one object (Llama 3.1, Functionary)."""
    name = yield from read_name(text, at)
    properties, at = properties_of(name, tools), at + len(name)
    if (yield from read_char(text, at)) != ">":
        raise NoCall
    at = yield from skip_space(text, at + 1)
    if (yield from read_char(text, at)) == "{":
        arguments, at = yield from read_value(text, at, JSON)
        call = call_of_object({"name": name, "arguments": arguments}, tools)
        return [call], (yield from skip_closing(text, at, FUNCTION_END))
    spans: list[Span] = []
    while (yield from has_word(text, at, PARAMETER)):
        key, start = yield from _read_key(text, at + len(PARAMETER), ">")
        end, at = yield from _find_value_end(text, start, PARAMETER_END, AFTER_PARAMETER)
        spans.append((key, start, end))
        at = yield from skip_space(text, at)
    closed = yield from choose_word(text, at, (FUNCTION_END, TAG_END))
    if not closed and not spans:
        raise NoCall
    values = {key: _trim_lines(text.whole[start:end]) for key, start, end in spans}
    arguments = {key: value_of_text(value, properties.get(key)) for key, value in values.items()}
    return [create_call(name, arguments, tools)], at + (len(closed) if closed == FUNCTION_END else 0)


def read_invokes(opening: str, closing: str, prefix: str = "") -> Form:
    """Some ``<invoke name="f">`` with parameters as text between tags. prefix: of the names of tags."""
    begin, end, parameter, parameter_end = (f"<{prefix}invoke name=\"", f"</{prefix}invoke>",
        f"<{prefix}parameter name=\"", f"</{prefix}parameter>")  # fmt: skip
    following = parameter, end, closing, begin, opening

    def read(text: Text, at: int, tools: Tools) -> Step[Found]:
        at, calls = (yield from skip_space(text, at)), []
        while (yield from has_word(text, at, begin)):
            name, at = yield from _read_key(text, at + len(begin), '">')
            at, spans = (yield from skip_space(text, at)), []
            while (yield from has_word(text, at, parameter)):
                key, start = yield from _read_key(text, at + len(parameter), '">')
                last, at = yield from _find_value_end(text, start, parameter_end, following)
                spans.append((key, start, last))
                at = yield from skip_space(text, at)
            closed = yield from has_word(text, at, end)
            if not closed and not spans:
                raise NoCall
            properties = properties_of(name, tools)
            arguments = {key: value_of_text(text.whole[a:b], properties.get(key)) for key, a, b in spans}
            calls.append(create_call(name, arguments, tools))
            at = yield from skip_space(text, at + len(end) * closed)
        if not calls:
            raise NoCall
        return calls, (yield from skip_closing(text, at, closing))

    return read


def _read_key(text: Text, at: int, closing: str) -> Step[tuple[str, int]]:
    """The name of a parameter up to the closing, and the index after it."""
    end = yield from find_word(text, at, closing)
    if end < 0 or end - at > KEY_MAX:
        raise NoCall
    key = text.whole[at:end].strip()
    if not key or "<" in key:
        raise NoCall
    return key, end + len(closing)


def _find_value_end(text: Text, at: int, closing: str, following: Sequence[str]) -> Step[tuple[int, int]]:
    """The end of a value, and the index after its closing, which one of these words must follow.

    Where no closing is followed by them, the value ends with the first of the closing and these words.
    """
    end = yield from find_end(text, at, closing, following)
    if end >= 0:
        return end, end + len(closing)
    ends = []
    for word in (closing, *following):
        if (place := (yield from find_word(text, at, word))) >= 0:
            ends.append((place, len(closing) if word == closing else 0))
    if not ends:
        raise NoCall
    end, width = min(ends)
    return end, end + width


def _trim_lines(text: str) -> str:
    """Without the line ends that belong to the tags around it."""
    return text.removeprefix("\n").removesuffix("\n")


def _read_pairs(text: Text, at: int, tools: Tools) -> Step[Found]:
    """A name, and keys and values as text between tags (GLM)."""
    name = yield from read_name(text, at)
    properties, spans = properties_of(name, tools), []
    at = yield from skip_space(text, at + len(name))
    while (yield from has_word(text, at, KEY)):
        key, at = yield from _read_key(text, at + len(KEY), KEY_END)
        at = yield from skip_space(text, at)
        if not (yield from has_word(text, at, VALUE)):
            raise NoCall
        start = at + len(VALUE)
        end, at = yield from _find_value_end(text, start, VALUE_END, (KEY, TAG_END, TAG))
        spans.append((key, start, end))
        at = yield from skip_space(text, at)
    if (yield from has_word(text, at, TAG_END)):
        at += len(TAG_END)
    elif not spans:
        raise NoCall
    arguments = {key: value_of_text(text.whole[start:end], properties.get(key)) for key, start, end in spans}
    return [create_call(name, arguments, tools)], at


def _read_row(text: Text, at: int, tools: Tools, separators: Sequence[str]) -> Step[Found]:
    """Objects in a row with one of these separators between them; the first must be a call."""
    value, at = yield from read_value(text, at, JSON)
    calls = [call_of_object(value, tools)]
    while True:
        after = yield from skip_space(text, at)
        separator = yield from choose_word(text, after, separators)
        start = yield from skip_space(text, after + len(separator))
        if (separator == "" and "" not in separators) or (yield from read_char(text, start)) != "{":
            return calls, at
        try:
            value, end = yield from read_value(text, start, JSON)
            calls.append(call_of_object(value, tools))
        except NoCall:
            return calls, at
        at = end


def read_objects(text: Text, at: int, tools: Tools, closing: str = "") -> Step[Found]:
    """A list of objects; its last bracket, and the closing after it, may be missing."""
    at = yield from skip_space(text, at)
    if (yield from read_char(text, at)) != "[":
        raise NoCall
    calls: list[Call] = []
    at += 1
    while True:
        at = yield from skip_space(text, at)
        c = yield from read_char(text, at)
        if not c and calls:
            return calls, at
        if c != "{":
            raise NoCall
        value, at = yield from read_value(text, at, JSON)
        calls.append(call_of_object(value, tools))
        after = yield from skip_space(text, at)
        c = yield from read_char(text, after)
        if c != ",":
            return calls, (yield from skip_closing(text, after + 1 if c == "]" else at, closing))
        at = after + 1


def read_listed(closing: str) -> Form:
    """A list of objects, or one object, between an opening and a closing."""

    def read(text: Text, at: int, tools: Tools) -> Step[Found]:
        at = yield from skip_space(text, at)
        if (yield from read_char(text, at)) != "{":
            return (yield from read_objects(text, at, tools, closing))
        calls, at = yield from _read_row(text, at, tools, ("",))
        return calls, (yield from skip_closing(text, at, closing))

    return read


def read_mistral(text: Text, at: int, tools: Tools) -> Step[Found]:
    """After ``[TOOL_CALLS]``: a list of objects, or a name, ``[ARGS]`` and an object (from Mistral Small 3.2 on)."""
    at = yield from skip_space(text, at)
    if (yield from read_char(text, at)) in ("[", "{"):
        return (yield from read_listed("")(text, at, tools))
    name = yield from read_name(text, at)
    properties_of(name, tools)
    at = yield from skip_space(text, at + len(name))
    if (yield from has_word(text, at, MISTRAL_ID)):
        begin, at = at, (yield from find_word(text, at, MISTRAL_ARGUMENTS))
        if not 0 <= at - begin <= KEY_MAX:
            raise NoCall
    if (yield from has_word(text, at, MISTRAL_ARGUMENTS)):
        at += len(MISTRAL_ARGUMENTS)
    return (yield from read_arguments(text, at, name, tools, ""))


def read_arguments(text: Text, at: int, name: str, tools: Tools, closing: str) -> Step[Found]:
    """An object of arguments, and a closing."""
    at = yield from skip_space(text, at)
    if (yield from read_char(text, at)) != "{":
        raise NoCall
    arguments, at = yield from read_value(text, at, JSON)
    call = create_call(name, arguments, tools)
    return [call], (yield from skip_closing(text, at, closing))


def read_gemma(closing: str) -> Form:
    """``call:f{a:1}`` in Gemma's notation, and the next one where it follows the closing at once."""

    def read(text: Text, at: int, tools: Tools) -> Step[Found]:
        calls: list[Call] = []
        while True:
            start = yield from skip_space(text, at)
            if not (yield from has_word(text, start, NAMED)):
                break
            try:
                call, at = yield from _read_gemma_call(text, start + len(NAMED), tools)
            except NoCall:
                break
            calls.append(call)
            at = yield from skip_closing(text, at, closing)
        if not calls:
            raise NoCall
        return calls, at

    return read


def _read_gemma_call(text: Text, at: int, tools: Tools) -> Step[tuple[Call, int]]:
    name = yield from read_name(text, at)
    properties_of(name, tools)
    at = yield from skip_space(text, at + len(name))
    if (yield from read_char(text, at)) != "{":
        raise NoCall
    arguments, at = yield from read_value(text, at, GEMMA)
    return create_call(name, arguments, tools), at


def read_python(closing: str, lines: bool = False) -> Form:
    """``[f(a=1), g()]``, also without brackets; or objects, as LFM2 is asked for by some prompts.

    lines: calls also follow each other without a comma.
    """

    def read(text: Text, at: int, tools: Tools) -> Step[Found]:
        at = yield from skip_space(text, at)
        listed = (yield from read_char(text, at)) == "["
        start = yield from skip_space(text, at + listed)
        if (yield from read_char(text, start)) == "{":
            return (yield from read_listed(closing)(text, at, tools))
        calls, at = [], start
        while True:
            call, at = yield from read_python_call(text, at, tools)
            calls.append(call)
            after = yield from skip_space(text, at)
            c = yield from read_char(text, after)
            if lines and after > at and c.isidentifier():
                at = after
                continue
            if c not in (",", ";"):
                break
            at = yield from skip_space(text, after + 1)
        return calls, (yield from skip_closing(text, after + 1 if listed and c == "]" else at, closing))

    return read


def read_python_call(text: Text, at: int, tools: Tools) -> Step[tuple[Call, int]]:
    """``f(a=1)``."""
    written = yield from read_name(text, at)
    name, at = (written if written in tools else written.removesuffix(".call")), at + len(written)
    properties_of(name, tools)
    if (yield from read_char(text, at)) != "(":
        raise NoCall
    arguments: dict[str, Any] = {}
    at = yield from skip_space(text, at + 1)
    while (yield from read_char(text, at)) != ")":
        key = yield from read_name(text, at)
        at = yield from skip_space(text, at + len(key))
        if (yield from read_char(text, at)) != "=":
            raise NoCall
        arguments[key], at = yield from read_value(text, at + 1, PYTHON)
        at = yield from skip_space(text, at)
        c = yield from read_char(text, at)
        if c == ",":
            at = yield from skip_space(text, at + 1)
        elif c != ")":
            raise NoCall
    return create_call(name, arguments, tools), at + 1


KEYS = ("name", "arguments", "parameters", "type", "id", "function")
"""Keys with which the object of a call may begin."""


def read_whole(text: Text, at: int, tools: Tools) -> Step[Found]:
    """A text that is calls to its end: objects with ``;`` between them, a list of objects, or a list in Python."""
    c = yield from read_char(text, at)
    if c == "{":
        yield from _check_first_key(text, at + 1)
        calls, end = yield from _read_row(text, at, tools, (";", ",", ""))
    elif c == "[":
        start = yield from skip_space(text, at + 1)
        if (yield from read_char(text, start)) == "{":
            yield from _check_first_key(text, start + 1)
            calls, end = yield from read_objects(text, at, tools)
        else:
            calls, end = yield from read_python("")(text, at, tools)
    else:
        raise NoCall
    if (yield from skip_space(text, end)) < len(text.whole):
        raise NoCall
    return calls, end


def read_tag_of_python(text: Text, at: int, tools: Tools) -> Step[Found]:
    """After ``<|python_tag|>``: objects with ``;`` between them, or a call in Python."""
    at = yield from skip_space(text, at)
    if (yield from read_char(text, at)) == "{":
        return (yield from _read_row(text, at, tools, (";", ",", "")))
    return (yield from read_python("")(text, at, tools))


def _check_first_key(text: Text, at: int) -> Step[None]:
    """Raise NoCall where an object begins with another key than a call."""
    at = yield from skip_space(text, at)
    if not (yield from choose_word(text, at, [f'"{key}"' for key in KEYS])):
        raise NoCall


def read_after(first: str) -> Form:
    """A list of objects whose first character belongs to the opening."""

    def read(text: Text, at: int, tools: Tools) -> Step[Found]:
        return (yield from read_objects(text, at - len(first), tools))

    return read
