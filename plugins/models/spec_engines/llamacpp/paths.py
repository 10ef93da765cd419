"""Drafts that branch, as llama.cpp takes them: every path from the root to a leaf is a sequence of its own."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from spec_core import Draft
from spec_core.errors import TargetError
from spec_engines.llamacpp.binding import LEAVES


@attrs.frozen
class Paths:
    """The paths of a draft. depths: of its tokens, 1 after committed text. owners: of each token, the paths that hold
    it, by the number of their leaf. count: paths.
    """

    depths: tuple[int, ...]
    owners: tuple[tuple[int, ...], ...]
    count: int

    @classmethod
    def of(cls, draft: Draft) -> Paths:
        """Paths of a draft. Raises TargetError for more leaves than llama.cpp was prepared for."""
        parents = draft.parents or ()
        leaves = sorted(set(range(len(draft.ids))) - set(parents))
        if len(leaves) > LEAVES:
            raise TargetError(
                f"a draft has {len(leaves)} leaves, llama.cpp was prepared for {LEAVES}",
                hint=f"limit the tokens of a tree: -o nodes_max={LEAVES}",
            )
        owners: list[list[int]] = [[] for _ in draft.ids]
        for number, leaf in enumerate(leaves):
            for node in draft.ancestry(leaf):
                owners[node].append(number)
        return cls(draft.depths, tuple(map(tuple, owners)), len(leaves))

    def behind(self, kept: Sequence[int]) -> int:
        """A path that holds these tokens, which follow one another."""
        return self.owners[kept[-1]][0]
