"""What plugins share, under the contract's version: a plugin imports from here and from ``spec_core``, nothing else.

To draft: ``TokenDrafter`` and ``PartialDraft`` choose token by token from rows of logits, ``grow_tree`` grows the
likeliest paths of a tree, ``PairDrafter`` feeds a layer that reads pairs of a hidden state and the token after it,
``draft_head`` finds a head in a file and says whether it fits,
``AcceptanceEstimate`` says how drafts fared, ``forward`` drives a model of one's own.
To judge: ``target_distribution`` and ``drafted_from`` for p and q (``adjust`` and ``support`` are parts of the first),
``choosers`` and ``walk`` for exact match, ``uniform`` for coins (a rule's private ones are ``step.coins``).
To read rows: ``likeliest``. To count: ``drafted_and_accepted`` and ``Tally``.

Imported lazily: naming one of these imports torch, importing this module does not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from spec_core import prepare

if TYPE_CHECKING:
    from spec_core.sampling.choose import adjust as adjust
    from spec_core.sampling.choose import gap as gap
    from spec_core.sampling.choose import largest as largest
    from spec_core.sampling.choose import likeliest as likeliest
    from spec_core.sampling.choose import number as number
    from spec_core.sampling.choose import support as support
    from spec_core.sampling.noise import uniform as uniform
    from spec_core.toolkit.acceptance import AcceptanceEstimate as AcceptanceEstimate
    from spec_core.toolkit.acceptance import AcceptanceEstimates as AcceptanceEstimates
    from spec_core.toolkit.acceptance import match_estimates as match_estimates
    from spec_core.toolkit.choosing import choosers as choosers
    from spec_core.toolkit.choosing import walk as walk
    from spec_core.toolkit.distributions import drafted_from as drafted_from
    from spec_core.toolkit.distributions import target_distribution as target_distribution
    from spec_core.toolkit.drive import evaluate as evaluate
    from spec_core.toolkit.drive import forward as forward
    from spec_core.toolkit.drive import open_sequence as open_sequence
    from spec_core.toolkit.heads import DraftHead as DraftHead
    from spec_core.toolkit.heads import Reading as Reading
    from spec_core.toolkit.heads import draft_head as draft_head
    from spec_core.toolkit.pair_drafter import PairDrafter as PairDrafter
    from spec_core.toolkit.pair_drafter import PairState as PairState
    from spec_core.toolkit.tally import Tally as Tally
    from spec_core.toolkit.tally import drafted_and_accepted as drafted_and_accepted
    from spec_core.toolkit.token_drafter import PartialDraft as PartialDraft
    from spec_core.toolkit.token_drafter import SampleMode as SampleMode
    from spec_core.toolkit.token_drafter import TokenDrafter as TokenDrafter
    from spec_core.toolkit.tree import DraftLimits as DraftLimits
    from spec_core.toolkit.tree import TreeLimits as TreeLimits
    from spec_core.toolkit.tree import TreeNode as TreeNode
    from spec_core.toolkit.tree import grow_tree as grow_tree
    from spec_core.toolkit.tree import tested as tested

_WHERE = {
    "AcceptanceEstimate": "toolkit.acceptance",
    "AcceptanceEstimates": "toolkit.acceptance",
    "DraftHead": "toolkit.heads",
    "DraftLimits": "toolkit.tree",
    "PairDrafter": "toolkit.pair_drafter",
    "PairState": "toolkit.pair_drafter",
    "PartialDraft": "toolkit.token_drafter",
    "Reading": "toolkit.heads",
    "SampleMode": "toolkit.token_drafter",
    "Tally": "toolkit.tally",
    "TokenDrafter": "toolkit.token_drafter",
    "TreeLimits": "toolkit.tree",
    "TreeNode": "toolkit.tree",
    "adjust": "sampling.choose",
    "choosers": "toolkit.choosing",
    "draft_head": "toolkit.heads",
    "drafted_and_accepted": "toolkit.tally",
    "drafted_from": "toolkit.distributions",
    "evaluate": "toolkit.drive",
    "forward": "toolkit.drive",
    "gap": "sampling.choose",
    "grow_tree": "toolkit.tree",
    "largest": "sampling.choose",
    "likeliest": "sampling.choose",
    "match_estimates": "toolkit.acceptance",
    "number": "sampling.choose",
    "open_sequence": "toolkit.drive",
    "support": "sampling.choose",
    "target_distribution": "toolkit.distributions",
    "tested": "toolkit.tree",
    "uniform": "sampling.noise",
    "walk": "toolkit.choosing",
}

__all__ = [*sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'spec_core.toolkit' has no attribute {name!r}")
    prepare()
    value = getattr(importlib.import_module(f"spec_core.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
