"""The constraint of a request in a step: the masks before ``accept``, and the text that it has matched after.

A token that is not allowed stays in the draft, with probability 0 under the target: a draft that ended before it would
be shorter because of what was drawn, which no rule for sampled drafts allows.
"""

from __future__ import annotations

import numpy as np

from spec_core.contract.batch import Part
from spec_core.contract.constraint import fail
from spec_core.contract.matcher import allows, draft_masks
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.errors import FOREIGN, ConstraintError, NoTokenAllowed, as_exception

FULL = 0xFFFFFFFF


def constrain(step: Step) -> None:
    """Set ``part.masks`` of every sequence that has a constraint and needs a verdict. One that fails ends alone."""
    for part in step.parts:
        if part.decides and part.seq.matcher is not None and part.seq.finish != "error":
            try:
                _mask(part, step.target.info.vocab)
            except FOREIGN as error:
                fail(part.seq, as_exception(error))


def _mask(part: Part, vocab: int) -> None:
    seq = part.seq
    rows = draft_masks(seq.matcher, part.draft, seq.stop.tokens, vocab)
    empty = np.flatnonzero(~rows.any(1)).tolist()
    if 0 in empty:
        raise NoTokenAllowed(
            f"the constraint allows no token after {len(seq.tokens) - seq.prompt_len} tokens of output",
            hint="the constraint has a dead end: no token of this model's vocabulary goes on; change the constraint",
        )
    rows[empty] = FULL  # a rule needs some distribution there; the verdict is cut before it
    part.masks, part.dead_ends = rows, frozenset(empty)


def dead_end(part: Part, i: int) -> bool:
    """Whether no token was allowed where the i-th token of the verdict was chosen."""
    return bool(part.dead_ends) and _row(part, i) in part.dead_ends


def check_allowed(part: Part, i: int, token: int) -> bool:
    """Whether the constraint allows the i-th token of a verdict; if not, its sequence fails."""
    if allows(part.masks[_row(part, i)], token):
        return True
    fail(
        part.seq,
        ConstraintError(
            f"the rule {part.rule!r} kept token {token}, which the constraint does not allow",
            hint="use a rule that keeps only what the target may choose: the default, or any lossless one",
        ),
    )
    return False


def completes(seq: Sequence, token: int) -> bool:
    """Advance the constraint by a committed token: whether the text is complete now, or the constraint has failed."""
    try:
        if not seq.matcher.advance(token):
            raise ValueError(f"it does not accept token {token}, which its mask allows")
        return seq.matcher.complete
    except FOREIGN as error:
        fail(seq, as_exception(error))
        return True


def _row(part: Part, i: int) -> int:
    """The row of ``part.masks`` at which the i-th token of the verdict was chosen."""
    return 1 + part.full_verdict.path[i - 1] if i else 0
