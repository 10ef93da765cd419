"""Readers of forms between many marks: Kimi's and DeepSeek's."""

from __future__ import annotations

from spec_serve.calls.call import Call, Tools, properties_of
from spec_serve.calls.forms import (
    DEEPSEEK_CALL,
    DEEPSEEK_CALL_END,
    DEEPSEEK_END,
    DEEPSEEK_SEPARATOR,
    KIMI_ARGUMENTS,
    KIMI_CALL,
    KIMI_CALL_END,
    KIMI_END,
    Found,
    read_arguments,
)
from spec_serve.calls.text import (
    NoCall,
    Step,
    Text,
    choose_word,
    has_word,
    read_char,
    read_name,
    skip_closing,
    skip_space,
)


def read_kimi(text: Text, at: int, tools: Tools) -> Step[Found]:
    """After ``<|tool_calls_section_begin|>``: ``<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{...}``."""
    calls: list[Call] = []
    while True:
        start = yield from skip_space(text, at)
        if not (yield from has_word(text, start, KIMI_CALL)):
            break
        try:
            call, at = yield from _read_kimi_call(text, start + len(KIMI_CALL), tools)
        except NoCall:
            break
        calls.append(call)
    if not calls:
        raise NoCall
    return calls, (yield from skip_closing(text, at, KIMI_END))


def read_kimi_call(text: Text, at: int, tools: Tools) -> Step[Found]:
    """After ``<|tool_call_begin|>`` without the opening of a section."""
    call, at = yield from _read_kimi_call(text, at, tools)
    return [call], (yield from skip_closing(text, at, KIMI_END))


def _read_kimi_call(text: Text, at: int, tools: Tools) -> Step[tuple[Call, int]]:
    at = yield from skip_space(text, at)
    written = yield from read_name(text, at)
    name, at = written.removeprefix("functions."), at + len(written)
    properties_of(name, tools)
    index = ""
    if (yield from has_word(text, at, ":")):
        index = yield from read_name(text, at + 1)
        at += 1 + len(index)
    at = yield from skip_space(text, at)
    if not (yield from has_word(text, at, KIMI_ARGUMENTS)):
        raise NoCall
    [call], at = yield from read_arguments(text, at + len(KIMI_ARGUMENTS), name, tools, KIMI_CALL_END)
    return (Call(call.name, call.arguments, f"functions.{name}:{index}") if index else call), at


def read_deepseek(text: Text, at: int, tools: Tools) -> Step[Found]:
    """After ``<｜tool▁calls▁begin｜>``: calls between ``<｜tool▁call▁begin｜>`` and ``<｜tool▁call▁end｜>``."""
    calls: list[Call] = []
    while True:
        start = yield from skip_space(text, at)
        if not (yield from has_word(text, start, DEEPSEEK_CALL)):
            break
        try:
            [call], at = yield from read_deepseek_call(text, start + len(DEEPSEEK_CALL), tools)
        except NoCall:
            break
        calls.append(call)
    if not calls:
        raise NoCall
    return calls, (yield from skip_closing(text, at, DEEPSEEK_END))


def read_deepseek_call(text: Text, at: int, tools: Tools) -> Step[Found]:
    """``function<｜tool▁sep｜>f`` and an object in a block of Markdown, or ``f<｜tool▁sep｜>`` and an object."""
    first = yield from read_name(text, at)
    at += len(first)
    if not (yield from has_word(text, at, DEEPSEEK_SEPARATOR)):
        raise NoCall
    at = yield from skip_space(text, at + len(DEEPSEEK_SEPARATOR))
    fenced = first == "function" and (yield from read_char(text, at)) != "{"
    name = (yield from read_name(text, at)) if fenced else first
    at = yield from skip_space(text, at + len(name) if fenced else at)
    block = yield from choose_word(text, at, ("```json", "```"))
    [call], at = yield from read_arguments(text, at + len(block), name, tools, "```" if block else "")
    return [call], (yield from skip_closing(text, at, DEEPSEEK_CALL_END))
