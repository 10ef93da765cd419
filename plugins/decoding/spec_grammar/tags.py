"""Free text that switches to a grammar: calls of functions, or other marked parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

import attrs

from spec_core import Target, Tokenizer, UsageError
from spec_core.toolkit import encode_part
from spec_grammar.compiled import Compiled, Grammars

FREE = "/(?s:.*)/"


@attrs.frozen(eq=False)
class Tag:
    """A part of the text: ``begin``, then a text of ``content``, then ``end``."""

    begin: str
    content: Compiled
    end: str = ""


@attrs.define(eq=False)
class StructuralTags(Compiled):
    """Free text with tags in it: where ``trigger`` appears, one of the tags must follow. Each begins with the trigger.

    Control tokens of the model in ``trigger``, ``begin`` and ``end`` are recognised by their names. count_min: at 0 the
    text is free between tags; at 1 it consists of tags alone, at least one. several: more than one tag may follow,
    with ``between`` between them. otherwise: what the text may be in place of tags, with count_min 1. after: the end of
    a row of tags; with ``before`` the trigger begins the row, and no tag repeats it.
    """

    trigger: str
    tags: Sequence[Tag]
    count_min: int = 0
    several: bool = True
    between: str = "\n"
    otherwise: Compiled | None = None
    before: str = ""
    after: str = ""

    what = "the structural tags"

    def check(self) -> None:
        if not self.trigger or not self.tags:
            raise UsageError("structural tags need a trigger and at least one tag", hint="give both")
        for tag in self.tags:
            if not (self.before or tag.begin).startswith(self.trigger):
                raise UsageError(
                    f"the tag {tag.begin[:40]!r} does not begin with the trigger {self.trigger[:40]!r}",
                    hint="let every begin start with the trigger",
                )
            tag.content.check()
        if self.otherwise is not None:
            self.otherwise.check()

    def grammars(self, target: Target) -> Grammars:
        inner: Grammars = []
        options = []
        for i, tag in enumerate(self.tags):
            first, *rest = tag.content.grammars(target)
            inner += [{"name": f"content_{i}", **first}, *rest]
            begin = tag.begin if self.count_min or self.before else tag.begin.removeprefix(self.trigger)
            options.append(f"{literal(begin, target)} @content_{i} {literal(tag.end, target)}")
        if self.otherwise is not None:
            first, *rest = self.otherwise.grammars(target)
            inner += [{**first, "name": "otherwise"}, *rest]
        return [{"name": "tags", "lark_grammar": self._whole(" | ".join(options), target)}, *inner]

    def _whole(self, options: str, target: Target) -> str:
        tag = f"tag: {options}"
        more = f"({literal(self.between, target)} tag)*" if self.several else ""
        after = literal(self.after, target)
        if self.count_min:
            other = " | @otherwise" if self.otherwise is not None else ""
            return f"start: {literal(self.before, target)} tag {more} {after}{other}\n{tag}"
        row = f"{literal(self.before.removeprefix(self.trigger), target)} tag {more} {after}" if self.before else "tag"
        whole = f"start: (opening {row})* rest" if self.several else f"start: (opening {row})? rest"
        return f"{whole}\n{self._opening(target)}\nrest: FREE\nFREE: {FREE}\n{tag}"

    def _opening(self, target: Target) -> str:
        """Free text up to the trigger: as a control token it is no text; else free text ends with its first one."""
        trigger = literal(self.trigger, target)
        if "<[" in trigger:
            return f"opening: FREE {trigger}"
        return f"opening[lazy]: {FREE} {trigger}"


def literal(text: str, target: Target) -> str:
    """A text in Lark's notation; control tokens that it names as their numbers."""
    if not text:
        return ""
    tokenizer = target.tokenizer
    assert tokenizer is not None
    ids = encode_part(tokenizer, text, special=True)
    control = lambda token: not tokenizer.token_bytes(token)
    if not any(map(control, ids)):
        return json.dumps(text, ensure_ascii=False)
    return " ".join(_part(special, list(group), tokenizer) for special, group in groupby(ids, control))


def _part(special: bool, ids: list[int], tokenizer: Tokenizer) -> str:
    if special:
        return " ".join(f"<[{token}]>" for token in ids)
    return json.dumps(b"".join(map(tokenizer.token_bytes, ids)).decode(), ensure_ascii=False)
