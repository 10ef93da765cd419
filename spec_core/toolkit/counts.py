"""What statistics count of a decided step."""

from __future__ import annotations

from typing import Any, NamedTuple

from spec_core.contract.batch import Part
from spec_core.contract.values import Draft


class Counts(NamedTuple):
    """Of a deciding part: depth drafted, nodes, kept and tested drafts, emitted tokens."""

    depth: int
    nodes: int
    accepted: int
    tested: int
    emitted: int


def drafted_and_accepted(part: Part) -> dict[str, Any]:
    """What statistics count of a deciding part: depth drafted, nodes, tested and kept drafts, emitted tokens.

    Tested are the positions of the kept path, and the one after it if anything was drafted there: in a tree the kept
    path may end at a leaf while other branches go on.
    """
    return counted(part)._asdict()


def counted(part: Part) -> Counts:
    """The same, cheaper."""
    draft, emitted = part.draft, len(part.emitted)
    if draft is None:
        return Counts(0, 0, 0, 0, emitted)
    raw = part.uncut.path if part.uncut else ()
    accepted = min(len(raw), emitted)
    last = raw[accepted - 1] if accepted else -1
    return Counts(draft.depth, len(draft.ids), accepted, accepted + _goes_on(draft, last), emitted)


def _goes_on(draft: Draft, node: int) -> bool:
    """Was anything drafted after this token?"""
    return node + 1 < len(draft.ids) if draft.parents is None else node in draft.parents
