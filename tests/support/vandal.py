"""Plugins that write into everything that a hook hands out, as deep as it goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import attrs
import numpy as np
import torch

from spec_core import Compat, HookStep, Stash, hookimpl
from spec_core.contract.encoded_prompt import PicturedPrompt

HOOKS = ("draft", "accept", "rollback", "process")
OWN = {"stash", "state", "target", "failures", "error"}
"""Fields that belong to plugins, or to the target: it alone has the memory of its rows and weights."""
PROPERTIES = {"verdicts", "undecided", "undrafted", "leaves", "draft_results"}


def spoil(item: Any, own: frozenset[str] = frozenset(), seen: set[int] | None = None) -> Iterator[str]:
    """Write into an object and all that it leads to; yields the name of every field that could be set."""
    seen = set() if seen is None else seen
    if id(item) in seen or isinstance(item, (Stash, PicturedPrompt, type)):
        return
    seen.add(id(item))
    if isinstance(item, torch.Tensor):
        item.detach().fill_(1)
    elif isinstance(item, np.ndarray):
        with suppress(ValueError):
            item.flags.writeable = True
        with suppress(ValueError):
            item[...] = 0
    elif isinstance(item, HookStep):
        for name in [name for name in dir(type(item)) if name[0] != "_" and name not in OWN | PROPERTIES]:
            if isinstance(getattr(type(item), name), property):
                yield from spoil(getattr(item, name), own, seen)
                yield from _set(item, name)
        yield from _set(item, "_shown")
    elif attrs.has(type(item)):
        for field in attrs.fields(type(item)):
            if field.name[0] != "_" and field.name not in OWN | own:
                yield from spoil(getattr(item, field.name), own, seen)
                yield from _set(item, field.name)
    elif isinstance(item, Mapping):
        for value in list(item.values()):
            yield from spoil(value, own, seen)
        for change in ("clear", "popitem"):
            with suppress(Exception):
                getattr(item, change)()
        with suppress(Exception):
            item[0] = 1  # type: ignore[index]
    elif isinstance(item, (list, tuple)):
        for value in item:
            yield from spoil(value, own, seen)
        with suppress(Exception):
            item[0] = 1  # type: ignore[index]
        with suppress(Exception):
            item += [1]  # type: ignore[operator]
        with suppress(Exception):
            item.clear()  # type: ignore[union-attr]


def _set(item: Any, name: str) -> Iterator[str]:
    value = getattr(item, name)
    for other in (0, 1, None, "stop", [], {}, 1e9, frozenset()):
        if type(other) is type(value) or value is None or other is None:
            with suppress(Exception):
                setattr(item, name, other)
                yield f"{type(item).__name__}.{name}"
                return


@attrs.define(eq=False)
class Vandal:
    """hooks: in which it writes. written: fields that it could set."""

    hooks: tuple[str, ...] = HOOKS
    written: set[str] = attrs.field(factory=set)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=())

    def write(self, hook: str, step: Any) -> None:
        if hook not in self.hooks:
            return
        for part in list(step.parts):
            if hook != "draft":
                for row in range(1 + part.drafted if part.decides else 0):
                    self.written |= {*spoil(step.history(part.seq, row)), *spoil(step.mask(part.seq, row))}
                self.written |= {*spoil(step.logits(part.seq))}
                for member in ("advance", "rollback"):
                    with suppress(Exception):
                        getattr(part.seq.matcher, member)(1)
                with suppress(Exception):
                    part.seq.text.put(5)
            for row in part.seq.embeds.values():
                row.fill_(0)
        self.written |= {*spoil(step)}

    @hookimpl(tryfirst=True)
    def draft(self, step: Any) -> None:
        self.write("draft", step)

    @hookimpl(tryfirst=True)
    def accept(self, step: Any) -> None:
        self.write("accept", step)

    @hookimpl(tryfirst=True)
    def rollback(self, step: Any) -> None:
        self.write("rollback", step)

    @hookimpl(tryfirst=True)
    def process(self, rows: Any) -> None:
        self.write("process", rows.step)
        if "process" in self.hooks:
            for span in rows.spans.values():
                self.written |= {*spoil(span.next_embeds)}
