"""Functions and classes that plugins share. A plugin imports from here and from ``spec_core``, nothing else.

Drafting: ``TokenDrafter`` and ``PartialDraft`` choose token by token from rows of logits, ``grow_tree`` grows a tree
of the likeliest paths, ``confidences`` are those of its tokens, ``PairDrafter`` runs a layer on pairs of a hidden state
and the token after it, ``draft_head`` reads a head from a file and checks whether it fits the target,
``AcceptanceEstimate`` estimates the acceptance rate, ``forward`` runs a draft model. ``branch_points`` yields where
such a drafter may extend another method's draft, ``tested_extensions`` whether what it appended was tested.
Rules: ``target_distributions`` and ``draft_distributions`` for p and q on the device of the logits,
``target_distribution`` and ``draft_distribution`` for one row of them on the host (``adjust`` and ``support`` are parts
of the first), ``rows_on_host`` and ``drafts_on_host`` copy their inputs from a device once per step,
``choosers`` and ``walk`` for exact match, ``uniform`` for coins (a rule's private ones are ``step.coins``).
Logits: ``likeliest``. Constraints: ``allowed_mask`` and ``forced_tokens``. Counting: ``draft_counts`` and
``DraftStatistics``.
Texts: ``encode_part``, ``encode_after``, ``stream_after`` and ``decode_after`` for parts of a text.
Processes: ``LimitedProcess`` runs a stranger's program, which calls ``answer_messages``, with limits of the system.
Threads: ``use_threads`` sets the number of torch's. Loops: ``Orders`` follows ``step.rest`` and ``step.hold``.

The first use of one of these names imports torch; importing this module does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spec_core.lazy import lazy

if TYPE_CHECKING:
    from spec_core.contract.parts import decode_after as decode_after
    from spec_core.contract.parts import encode_after as encode_after
    from spec_core.contract.parts import encode_part as encode_part
    from spec_core.contract.parts import stream_after as stream_after
    from spec_core.contract.target_parts import LayerExecutor as LayerExecutor
    from spec_core.contract.target_parts import NextTokenLayer as NextTokenLayer
    from spec_core.contract.target_parts import TrainingTexts as TrainingTexts
    from spec_core.contract.target_parts import UnreadableLayer as UnreadableLayer
    from spec_core.contract.target_parts import layer_executor as layer_executor
    from spec_core.contract.target_parts import next_token_layer as next_token_layer
    from spec_core.contract.target_parts import training_texts as training_texts
    from spec_core.contract.values import RecurrentSizes as RecurrentSizes
    from spec_core.sampling.choose import adjust as adjust
    from spec_core.sampling.choose import finite_choice as finite_choice
    from spec_core.sampling.choose import gap as gap
    from spec_core.sampling.choose import largest as largest
    from spec_core.sampling.choose import likeliest as likeliest
    from spec_core.sampling.choose import support as support
    from spec_core.sampling.noise import uniform as uniform
    from spec_core.toolkit.acceptance import AcceptanceEstimate as AcceptanceEstimate
    from spec_core.toolkit.acceptance import AcceptanceEstimates as AcceptanceEstimates
    from spec_core.toolkit.acceptance import match_estimates as match_estimates
    from spec_core.toolkit.choosing import choosers as choosers
    from spec_core.toolkit.choosing import walk as walk
    from spec_core.toolkit.constrained import allowed_mask as allowed_mask
    from spec_core.toolkit.constrained import forced_tokens as forced_tokens
    from spec_core.toolkit.distributions import draft_distribution as draft_distribution
    from spec_core.toolkit.distributions import draft_distributions as draft_distributions
    from spec_core.toolkit.distributions import target_distribution as target_distribution
    from spec_core.toolkit.distributions import target_distributions as target_distributions
    from spec_core.toolkit.drive import evaluate as evaluate
    from spec_core.toolkit.drive import forward as forward
    from spec_core.toolkit.drive import open_sequence as open_sequence
    from spec_core.toolkit.fields import layer_ids_field as layer_ids_field
    from spec_core.toolkit.fields import p_min_field as p_min_field
    from spec_core.toolkit.fields import sample_field as sample_field
    from spec_core.toolkit.heads import DraftHead as DraftHead
    from spec_core.toolkit.heads import HeadFile as HeadFile
    from spec_core.toolkit.heads import Reading as Reading
    from spec_core.toolkit.heads import draft_head as draft_head
    from spec_core.toolkit.limited_process import LimitedProcess as LimitedProcess
    from spec_core.toolkit.limited_process import ProcessEnded as ProcessEnded
    from spec_core.toolkit.limited_process import answer_messages as answer_messages
    from spec_core.toolkit.orders import Orders as Orders
    from spec_core.toolkit.pair_drafter import PairDrafter as PairDrafter
    from spec_core.toolkit.pair_drafter import PairState as PairState
    from spec_core.toolkit.pair_tree import learn_draft as learn_draft
    from spec_core.toolkit.place import BranchPoint as BranchPoint
    from spec_core.toolkit.place import branch_points as branch_points
    from spec_core.toolkit.place import extension_estimate as extension_estimate
    from spec_core.toolkit.place import tested_extensions as tested_extensions
    from spec_core.toolkit.tally import DraftStatistics as DraftStatistics
    from spec_core.toolkit.tally import draft_counts as draft_counts
    from spec_core.toolkit.threads import use_threads as use_threads
    from spec_core.toolkit.token_drafter import PartialDraft as PartialDraft
    from spec_core.toolkit.token_drafter import SampleMode as SampleMode
    from spec_core.toolkit.token_drafter import TokenDrafter as TokenDrafter
    from spec_core.toolkit.transfer import drafts_on_host as drafts_on_host
    from spec_core.toolkit.transfer import rows_on_host as rows_on_host
    from spec_core.toolkit.tree import DraftLimits as DraftLimits
    from spec_core.toolkit.tree import TreeLimits as TreeLimits
    from spec_core.toolkit.tree import TreeNode as TreeNode
    from spec_core.toolkit.tree import confidences as confidences
    from spec_core.toolkit.tree import grow_tree as grow_tree
    from spec_core.toolkit.tree import tested_nodes as tested_nodes

_WHERE = {
    "AcceptanceEstimate": "toolkit.acceptance",
    "AcceptanceEstimates": "toolkit.acceptance",
    "BranchPoint": "toolkit.place",
    "DraftHead": "toolkit.heads",
    "DraftLimits": "toolkit.tree",
    "DraftStatistics": "toolkit.tally",
    "HeadFile": "toolkit.heads",
    "LayerExecutor": "contract.target_parts",
    "LimitedProcess": "toolkit.limited_process",
    "NextTokenLayer": "contract.target_parts",
    "Orders": "toolkit.orders",
    "PairDrafter": "toolkit.pair_drafter",
    "PairState": "toolkit.pair_drafter",
    "PartialDraft": "toolkit.token_drafter",
    "ProcessEnded": "toolkit.limited_process",
    "Reading": "toolkit.heads",
    "RecurrentSizes": "contract.values",
    "SampleMode": "toolkit.token_drafter",
    "TokenDrafter": "toolkit.token_drafter",
    "TrainingTexts": "contract.target_parts",
    "TreeLimits": "toolkit.tree",
    "TreeNode": "toolkit.tree",
    "UnreadableLayer": "contract.target_parts",
    "adjust": "sampling.choose",
    "allowed_mask": "toolkit.constrained",
    "answer_messages": "toolkit.limited_process",
    "branch_points": "toolkit.place",
    "choosers": "toolkit.choosing",
    "confidences": "toolkit.tree",
    "decode_after": "contract.parts",
    "draft_counts": "toolkit.tally",
    "draft_distribution": "toolkit.distributions",
    "draft_distributions": "toolkit.distributions",
    "draft_head": "toolkit.heads",
    "drafts_on_host": "toolkit.transfer",
    "encode_after": "contract.parts",
    "encode_part": "contract.parts",
    "evaluate": "toolkit.drive",
    "extension_estimate": "toolkit.place",
    "finite_choice": "sampling.choose",
    "forced_tokens": "toolkit.constrained",
    "forward": "toolkit.drive",
    "gap": "sampling.choose",
    "grow_tree": "toolkit.tree",
    "largest": "sampling.choose",
    "layer_executor": "contract.target_parts",
    "layer_ids_field": "toolkit.fields",
    "learn_draft": "toolkit.pair_tree",
    "likeliest": "sampling.choose",
    "match_estimates": "toolkit.acceptance",
    "next_token_layer": "contract.target_parts",
    "open_sequence": "toolkit.drive",
    "p_min_field": "toolkit.fields",
    "rows_on_host": "toolkit.transfer",
    "sample_field": "toolkit.fields",
    "stream_after": "contract.parts",
    "support": "sampling.choose",
    "target_distribution": "toolkit.distributions",
    "target_distributions": "toolkit.distributions",
    "tested_extensions": "toolkit.place",
    "tested_nodes": "toolkit.tree",
    "training_texts": "contract.target_parts",
    "uniform": "sampling.noise",
    "use_threads": "toolkit.threads",
    "walk": "toolkit.choosing",
}

__all__ = [*sorted(_WHERE)]


__getattr__ = lazy(globals(), _WHERE)


def __dir__() -> list[str]:
    return __all__
