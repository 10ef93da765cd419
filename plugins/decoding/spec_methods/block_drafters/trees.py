"""Trees over a block: the most likely paths through its rows, best first (DDTree, 2604.12989).

One forward gives the rows of all depths, and a path's chance is the product of its tokens' chances in their rows. With
a sequential part a row depends on the token before it, and is made for the tokens that the tree reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
from torch import Tensor

from spec_core import Draft, DraftStep, Sequence
from spec_core.toolkit import DraftLimits, TokenDrafter, TreeLimits, TreeNode, confidences, grow_tree
from spec_methods.block_drafters.sequential import Independent, SequentialPart

ROWS = 8
"""Rows of logits that are made at once."""
Path = tuple[int, ...]
Candidates = list[tuple[int, float]]
"""Tokens, the most likely first, with their chances."""


@attrs.define(eq=False)
class BlockNode(TreeNode):
    """path: drafted tokens up to its own."""

    path: Path


@attrs.define(eq=False)
class BlockTree:
    """The tree of one sequence while it grows.

    rows: logits [n, Vd] by depth. states: [n, D] after the last norm. trust: share of drafts that are accepted, by
    which every chance is multiplied where the head estimates none.
    """

    step: DraftStep
    seq: Sequence
    drafter: TokenDrafter
    sequential: SequentialPart
    limits: TreeLimits
    rows: Tensor
    states: Tensor
    trust: float
    _known: dict[Path, Candidates] = attrs.field(factory=dict, init=False)

    def draft(self) -> Draft | None:
        """The most likely paths, parents first; None where no token can follow."""
        nodes = grow_tree(self._children((), -1, 1.0), lambda n, at: self._children(n.path, at, n.chance), self.limits)
        return self.finish([n.token for n in nodes], [n.parent for n in nodes], confidences(nodes))

    def finish(self, ids: list[int], parents: list[int], chances: list[float]) -> Draft | None:
        """The draft of these nodes; None without any."""
        drawn = self.drafter.uses_target_noise(self.step, self.seq)
        return Draft(ids, "unknown" if drawn else "deterministic", None, parents, chances) if ids else None

    def whole(self, part: Independent) -> DraftLimits | None:
        """Limits of the tree made in one call; None where its tokens have to be chosen here."""
        able = part.executor.chooses(self.seq.sampling, tree=True, reads=True)
        chooser = self.drafter.chooser(self.step, self.seq, self.limits.depth, ranks=True) if able else None
        if chooser is None:
            return None
        shared: Any = "path" if self._depends_on_path else "token" if part.sequential else "depth"
        fields = attrs.asdict(self.limits, recurse=False)
        rows = min(self.limits.nodes, ROWS)
        return DraftLimits(**fields, trust=self.trust, chooser=chooser, rows=rows, shared=shared)

    def _children(self, path: Path, parent: int, chance: float) -> Iterator[BlockNode]:
        """Likely tokens after a path. The most likely first token is drafted in any case, since the forward is done."""
        for rank, (token, own) in enumerate(self._candidates(path)):
            after = chance * own
            if after >= self.limits.p_min or (rank == 0 and not path):
                yield BlockNode(token, parent, len(path) + 1, after, (*path, token))

    def _candidates(self, path: Path) -> Candidates:
        """Tokens after a path, with chances given that it is accepted. Paths that make no difference share them."""
        key = path if self._depends_on_path else (len(path), self._before(path))
        if key not in self._known:
            self._known[key] = self._choose(path)
        return self._known[key]

    def _choose(self, path: Path) -> Candidates:
        depth = len(path)
        [row] = self.sequential.follow([(self._before(path), self.rows[depth], self.states[depth])])
        tokens = self.drafter.candidates(self.step, self.seq, list(path), row.logits, self.limits.width)
        if row.chance is None or not tokens:
            return [(token, min(1.0, own) * self.trust) for token, own in tokens]
        (best, _), *others = tokens
        left = (1.0 - row.chance) / max(sum(own for _, own in others), 1.0)
        return [(best, row.chance), *((token, min(1.0, own * left)) for token, own in others)]

    def _before(self, path: Path) -> int:
        """The token that the next row depends on; any where rows are independent."""
        if not self.sequential.sequential:
            return -1
        return path[-1] if path else self.seq.tokens[-1]

    @property
    def _depends_on_path(self) -> bool:
        sampling = self.seq.sampling
        penalties = sampling.repetition_penalty != 1.0 or sampling.presence_penalty or sampling.frequency_penalty
        return self.seq.matcher is not None or bool(penalties)
