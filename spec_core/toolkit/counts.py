"""What statistics count of a decided step."""

from __future__ import annotations

from typing import Any

from spec_core.contract.batch import Part
from spec_core.contract.values import Draft


def drafted_and_accepted(part: Part) -> dict[str, Any]:
    """What statistics count of a deciding part: depth drafted, nodes, tested and kept drafts, emitted tokens.

    Tested are the positions of the kept path, and the one after it if anything was drafted there: in a tree the kept
    path may end at a leaf while other branches go on.
    """
    raw = part.uncut.path if part.uncut else ()
    accepted = min(len(raw), len(part.emitted))
    last = raw[accepted - 1] if accepted else -1
    return {
        "depth": part.draft.depth if part.draft else 0,
        "nodes": part.drafted,
        "accepted": accepted,
        "tested": accepted + _goes_on(part.draft, last),
        "emitted": len(part.emitted),
    }


def _goes_on(draft: Draft | None, node: int) -> bool:
    """Was anything drafted after this token?"""
    if draft is None or draft.parents is None:
        return node + 1 < (len(draft) if draft else 0)
    return node in draft.parents
