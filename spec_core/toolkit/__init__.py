"""Functions and classes that plugins share. A plugin imports from here and from ``spec_core``, nothing else.

Drafting: ``TokenDrafter`` and ``PartialDraft`` choose token by token from rows of logits, ``grow_tree`` grows a tree
of the most likely paths, ``confidences`` gives its tokens' own, ``PairDrafter`` runs a layer on pairs of a hidden
state and the token after it, ``draft_head`` reads a head from a file and checks whether it fits the target,
``AcceptanceEstimate`` estimates the acceptance rate, ``forward`` runs a draft model. ``branch_points`` yields where
such a drafter may extend another method's draft, ``tested_extensions`` whether what it appended was tested.
Rules: ``target_distributions`` and ``draft_distributions`` for p and q on the device of the logits,
``target_distribution`` and ``draft_distribution`` for one row of them on the host (``adjust_row`` and ``support`` are
parts of the first), ``rows_on_host`` and ``drafts_on_host`` copy their inputs from a device once per step,
``choosers`` and ``walk_draft`` for exact match, ``uniform`` for coins (a rule's private ones are ``step.coins``).
Logits: ``largest_logits`` and ``most_likely``. Constraints: ``allowed_mask`` and ``forced_tokens``.
Counting: ``draft_counts`` and ``DraftStatistics``.
Texts: ``encode_part``, ``encode_after``, ``stream_after`` and ``decode_after`` for parts of a text.
Processes: ``LimitedProcess`` runs a stranger's program, which calls ``answer_messages``, with limits of the system.
Files of strangers: ``JsonLimits`` counts a JSON text before it is read.
Threads: ``use_threads`` sets the number of torch's. Loops: ``PlanFollower`` follows a controller's plan.

The first use of one of these names imports torch; importing this module does not. ``__init__.pyi`` lists them.
"""

from __future__ import annotations

from spec_core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(globals())
