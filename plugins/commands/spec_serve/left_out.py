"""What a request has that this server cannot offer: tools, items and blocks, left out with a line in the log.

Coding agents send them always, and cannot be told not to. What would change the meaning of the answer is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Tag

log = logging.getLogger("spec_serve")
T = TypeVar("T")
SHOWN_MAX = 8
"""Names in a line of the log."""


class LeftOut(BaseModel):
    """A part of a request that is read for its type alone."""

    model_config = ConfigDict(extra="allow")

    type: str


def report_left_out(where: str, parts: Iterable[Any]) -> None:
    """Log the types of parts that were left out, in one line."""
    types = dict.fromkeys(str(part.type)[:60] for part in parts)
    if types:
        names = ", ".join(list(types)[:SHOWN_MAX]) + (", ..." if len(types) > SHOWN_MAX else "")
        log.warning("left out of %s: %s; this server cannot offer them", where, names)


def without_left_out(where: str, parts: Iterable[Any] | None) -> list[Any]:
    """The parts that can be offered; the others are logged."""
    kept: list[Any] = []
    others: list[Any] = []
    for part in parts or ():
        (others if isinstance(part, LeftOut) else kept).append(part)
    report_left_out(where, others)
    return kept


def or_left_out(kind: Any, leaves: Callable[[Any], bool]) -> Any:
    """The type of a part that is of ``kind``, or left out where ``leaves`` says so of its type.

    The tags are in brackets, so that the place of an error does not have them.
    """

    def choose(part: Any) -> str:
        name = part.get("type") if isinstance(part, dict) else getattr(part, "type", None)
        if isinstance(part, LeftOut):
            return "[left out]"
        return "[left out]" if isinstance(name, str) and leaves(name) else "[kept]"

    return Annotated[Annotated[kind, Tag("[kept]")] | Annotated[LeftOut, Tag("[left out]")], Discriminator(choose)]
