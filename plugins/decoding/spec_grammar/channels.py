"""Answers in channels, as gpt-oss writes them: thinking is free, the call or answer after it has a grammar."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from spec_core import Target, UsageError
from spec_grammar.compiled import Compiled, Grammars
from spec_grammar.tags import FREE, literal


@attrs.define(eq=False)
class Channels(Compiled):
    """Any number of messages that are no answer, then a call of a function or an answer.

    The text follows ``<|start|>assistant``. calls: the grammar of the arguments, by function. answer: the grammar of
    the answer, None for free text. demanded: a call, and no answer.
    """

    calls: Mapping[str, Compiled]
    answer: Compiled | None = None
    demanded: bool = False

    what = "the channels"

    def check(self) -> None:
        if self.demanded and not self.calls:
            raise UsageError("a call is demanded, but there are no functions", hint="give one")
        for inner in (*self.calls.values(), *([self.answer] if self.answer is not None else [])):
            inner.check()

    def grammars(self, target: Target) -> Grammars:
        inner: Grammars = []
        options = []
        for i, (name, arguments) in enumerate(self.calls.items()):
            inner += _rename_first(f"arguments_{i}", arguments, target)
            header = literal(f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>", target)
            options.append(f"{header} @arguments_{i}")
        if not self.demanded:
            inner += [] if self.answer is None else _rename_first("answer", self.answer, target)
            rule = "FREE" if self.answer is None else "@answer"
            options.append(f"{literal('<|channel|>final<|message|>', target)} {rule}")
        return [{"name": "channels", "lark_grammar": _whole(" | ".join(options), target)}, *inner]


def _rename_first(name: str, compiled: Compiled, target: Target) -> Grammars:
    first, *rest = compiled.grammars(target)
    return [{**first, "name": name}, *rest]


def _whole(last: str, target: Target) -> str:
    message = literal("<|message|>", target)
    end = literal("<|end|><|start|>assistant", target)
    channel = literal("<|channel|>", target)
    before = f'message: {channel} ("analysis" | "commentary") {message} FREE {end}'
    return f"start: message* last\n{before}\nlast: {last}\nFREE: {FREE}"
