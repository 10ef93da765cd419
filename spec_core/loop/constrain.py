"""The constraint and ``min_tokens`` of a request in a step: the masks before ``accept``, and the matched text after.

A token that is not allowed stays in the draft, with probability 0 under the target: a draft that ended before it would
be shorter because of what was drawn, which no rule for sampled drafts allows.
"""

from __future__ import annotations

import numpy as np

from spec_core.contract.batch import Part
from spec_core.contract.constraint import fail_sequence
from spec_core.contract.matcher import WORD, allows_token, draft_masks, words
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.values import TargetInfo
from spec_core.errors import FOREIGN, ConstraintError, NoTokenAllowed, as_exception

FULL = 0xFFFFFFFF


def constrain_choices(step: Step) -> None:
    """Set ``part.masks`` where tokens are not allowed and a verdict is needed. A sequence that fails ends alone."""
    for part in step.parts:
        if part.decides and part.seq.is_held and part.seq.finish != "error":
            try:
                _mask(part, step.target.info)
            except FOREIGN as error:
                fail_sequence(part.seq, as_exception(error))


def _mask(part: Part, info: TargetInfo) -> None:
    seq = part.seq
    rows = _rows_of_constraint(part, info.vocab)
    _forbid_ends(rows, part, info.eog | seq.stop.tokens)
    empty = np.flatnonzero(~rows.any(1)).tolist()
    if 0 in empty:
        raise NoTokenAllowed(
            f"the constraint allows no token after {len(seq.tokens) - seq.prompt_len} tokens of output",
            hint="the constraint has a dead end: no token of this model's vocabulary goes on; change the constraint",
        )
    rows[empty] = FULL  # a rule needs some distribution there; the verdict is cut before it
    rows.flags.writeable = False  # views of it, which plugins read, cannot be written either
    part.masks, part.dead_ends = rows, frozenset(empty)


def _rows_of_constraint(part: Part, vocab: int) -> np.ndarray:
    """[1+K, W] uint32: the tokens that the request's constraint allows."""
    if part.seq.matcher is None:
        return np.full((1 + part.drafted, words(vocab)), FULL, np.uint32)
    return draft_masks(part.seq.matcher, part.draft, part.seq.stop.tokens, vocab)


def _forbid_ends(rows: np.ndarray, part: Part, ends: frozenset[int]) -> None:
    """Forbid the tokens that end a text at rows before ``min_tokens``, unless the constraint allows no other."""
    missing = part.seq.min_tokens - (len(part.seq.tokens) - part.seq.prompt_len)
    if missing <= 0 or not ends:
        return
    others = np.full(rows.shape[1], FULL, np.uint32)
    for token in ends:
        others[token // WORD] &= ~np.uint32(1 << token % WORD)
    depths = (0, *(part.draft.depths if part.draft is not None else ()))
    for row, depth in enumerate(depths):
        if depth < missing and (allowed := rows[row] & others).any():
            rows[row] = allowed


def dead_end(part: Part, i: int) -> bool:
    """Whether no token was allowed where the i-th token of the verdict was chosen."""
    return bool(part.dead_ends) and _row(part, i) in part.dead_ends


def check_allowed(part: Part, i: int, token: int) -> bool:
    """Whether the constraint allows the i-th token of a verdict; if not, its sequence fails."""
    assert part.masks is not None, "asked of constrained sequences alone"
    if allows_token(part.masks[_row(part, i)], token):
        return True
    fail_sequence(
        part.seq,
        ConstraintError(
            f"the rule {part.rule!r} kept token {token}, which the constraint does not allow",
            hint="use a rule that keeps only what the target may choose: the default, or any lossless one",
        ),
    )
    return False


def completes(seq: Sequence, token: int) -> bool:
    """Advance the constraint by a committed token: whether the text is complete now, or the constraint has failed."""
    matcher = seq.matcher
    assert matcher is not None, "asked of constrained sequences alone"
    try:
        if not matcher.advance(token):
            raise ValueError(f"it does not accept token {token}, which its mask allows")
        return matcher.complete
    except FOREIGN as error:
        fail_sequence(seq, as_exception(error))
        return True


def _row(part: Part, i: int) -> int:
    """The row of ``part.masks`` at which the i-th token of the verdict was chosen."""
    if not i:
        return 0
    assert part.full_verdict is not None
    return 1 + part.full_verdict.path[i - 1]
