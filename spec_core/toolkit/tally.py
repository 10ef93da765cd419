"""Statistics of one step, and their sums over steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs

from spec_core.contract.batch import Part
from spec_core.contract.values import Draft


class Counts(NamedTuple):
    """Counts of one part with a verdict: depth drafted, nodes, kept and tested drafts, emitted tokens."""

    depth: int
    nodes: int
    accepted: int
    tested: int
    emitted: int


def draft_counts(part: Part) -> dict[str, Any]:
    """Statistics of a part with a verdict: depth drafted, nodes, tested and kept drafts, emitted tokens.

    Tested positions are the kept path's, and the next one if anything was drafted there: in a tree the kept
    path may end at a leaf while other branches are deeper.
    """
    return counts_of(part)._asdict()


def counts_of(part: Part) -> Counts:
    """Counts of a part as a named tuple, which takes less time than a dictionary."""
    draft, emitted = part.draft, len(part.emitted)
    if draft is None:
        return Counts(0, 0, 0, 0, emitted)
    raw = part.full_verdict.path if part.full_verdict else ()
    accepted = min(len(raw), emitted)
    last = raw[accepted - 1] if accepted else -1
    return Counts(draft.depth, len(draft.ids), accepted, accepted + _goes_on(draft, last), emitted)


def _goes_on(draft: Draft, node: int) -> bool:
    """Whether anything was drafted after this token."""
    return node + 1 < len(draft.ids) if draft.parents is None else node in draft.parents


@attrs.define
class DraftStatistics:
    """Sums over steps.

    reached, tested, kept: {number of positions: drafts}. Reached positions are all positions of a draft. Before a
    tested one all tokens were kept, so that the rule could keep it. The token of a kept one was accepted.
    """

    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    drafts: int = 0
    depth: int = 0
    tv_distance: float = 0.0
    reached: dict[int, int] = attrs.field(factory=dict)
    tested: dict[int, int] = attrs.field(factory=dict)
    kept: dict[int, int] = attrs.field(factory=dict)
    by_method: dict[str, list[int]] = attrs.field(factory=dict)

    def add(self, part: Part) -> None:
        """Add one step of one sequence with its verdict."""
        self.steps += 1
        self.emitted += len(part.emitted)
        self.tv_distance += part.full_verdict.tv_distance if part.full_verdict else 0.0
        if part.draft is not None:
            self._add_draft(part)

    def _add_draft(self, part: Part) -> None:
        depth, nodes, accepted, tested, _ = counts_of(part)
        self.drafts += 1
        self.drafted += nodes
        self.accepted += accepted
        self.depth += depth
        _count(self.reached, depth)
        _count(self.kept, accepted)
        _count(self.tested, tested)
        kept = part.full_verdict.path[:accepted] if part.full_verdict else ()
        for piece in part.pieces:
            self._credit(piece.source, len(piece.draft), len(piece.accepted_in(kept)))

    def _credit(self, method: str, nodes: int, accepted: int) -> None:
        counts = self.by_method.setdefault(method, [0, 0, 0])
        counts[0] += 1
        counts[1] += nodes
        counts[2] += accepted

    def merge(self, other: DraftStatistics) -> None:
        for name in ("steps", "drafted", "accepted", "emitted", "drafts", "depth", "tv_distance"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("reached", "tested", "kept"):
            for positions, drafts in getattr(other, name).items():
                _count(getattr(self, name), positions, drafts)
        for method, counts in other.by_method.items():
            _add(self.by_method.setdefault(method, [0, 0, 0]), counts)

    @property
    def positions(self) -> tuple[list[int], list[int], list[int]]:
        """Drafts that reached each position, in which it was tested, and kept: index i is the (i+1)-th token."""
        longest = max(self.reached, default=0)
        return _at_least(self.reached, longest), _at_least(self.tested, longest), _at_least(self.kept, longest)

    def _by_position(self) -> dict[str, list[Any]]:
        """Counts for every position that a draft reached, and the two rates."""
        reached, tested, kept = self.positions
        return {
            "drafted_per_pos": reached,
            "tested_per_pos": tested,
            "accepted_per_pos": kept,
            "marginal": [k / r for k, r in zip(kept, reached, strict=True)],
            "conditional": [k / t for k, t in zip(kept, tested, strict=True) if t],
        }

    def report(self) -> dict[str, Any]:
        """Names and definitions as in docs/metrics.md; a ratio with denominator 0 is None."""
        return {
            "steps": self.steps,
            "emitted": self.emitted,
            "drafts": self.drafts,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "tokens_per_step": ratio(self.emitted, self.steps),
            "mean_acceptance_length": None if not self.drafts else 1 + self.accepted / self.drafts,
            "accepted_per_step": ratio(self.accepted, self.steps),
            "draft_acceptance": ratio(self.accepted, self.drafted),
            "mean_draft_length": ratio(self.depth, self.drafts),
            "tv_distance": self.tv_distance,
            **self._by_position(),
            "methods": {
                name: {"drafts": d, "drafted": n, "accepted": a, "draft_acceptance": ratio(a, n)}
                for name, (d, n, a) in self.by_method.items()
            },
        }


def _count(counts: dict[int, int], positions: int, drafts: int = 1) -> None:
    counts[positions] = counts.get(positions, 0) + drafts


def _at_least(counts: dict[int, int], longest: int) -> list[int]:
    """Number of drafts that reach each position."""
    totals, drafts = [], 0
    for positions in range(longest, 0, -1):
        drafts += counts.get(positions, 0)
        totals.append(drafts)
    return totals[::-1]


def _add(counts: list[int], more: list[int]) -> None:
    counts.extend([0] * (len(more) - len(counts)))
    for i, n in enumerate(more):
        counts[i] += n


def ratio(a: float, b: float) -> float | None:
    return a / b if b else None
