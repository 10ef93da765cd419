"""Runs a target's forward directly: to score a text, or to run a method's own draft model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from spec_core.contract.batch import Part, TargetOutput
from spec_core.contract.checks import check_parents
from spec_core.contract.held import is_prefix
from spec_core.contract.layout import lay_out_batch
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.target import Target
from spec_core.contract.target_parts import follow_problem
from spec_core.contract.values import Needs
from spec_core.errors import UsageError, quote_value
from spec_core.sampling.parameters import Sampling
from spec_core.sampling.stop import Stop
from spec_core.toolkit.finalizers import close_on_collect

PLAIN = Needs()


def open_sequence(
    target: Target, embeds: Mapping[int, Tensor] | None = None, close_when_dropped: bool = False
) -> Sequence:
    """An empty sequence with memory in the target; ``target.close(seq)`` frees the memory.

    embeds: {position: [D]} rows that will be given as embeddings. close_when_dropped: close it when it is garbage
    collected; do not close it yourself. Raises SpecError if there is not enough memory.
    """
    seq = Sequence([], 0, 0, Sampling(), Stop(), embeds=embeds or {})
    target.open(seq, 0)
    if close_when_dropped:
        close_on_collect(seq, target, (seq.slot,))
    return seq


def forward(target: Target, parts: Iterable[Part], needs: Needs = PLAIN, follows: Step | None = None) -> Step:
    """One forward over these parts; ``step.output`` is its output, ``step.batch`` its rows.

    The output is a view into the target's memory: valid until its next forward. The sequences are not changed.
    The logits after draft token j of a part are row ``part.logits_row + 1 + j``.

    follows: what the last forward of these sequences returned, where its draft rows stay and more drafts follow them:
    each ``Part(seq, end, [], True, draft=draft)`` begins at the ``end`` of the part before, and its draft with the
    draft of that part. Only tokens after it are evaluated, and have rows. For targets without a ``follow_problem``;
    raises ValueError for others, for another beginning, and if the sequence was evaluated or copied since.
    """
    step = Step(target, {}, trees=needs.trees)
    for part in parts:
        if follows is not None:
            part.held = held_drafts(target, part, follows)
        step.add(part)
    step.batch = lay_out_batch(step, needs, target.info.row_device)
    step.output = target.forward(step.batch, needs)
    return step


def held_drafts(target: Target, part: Part, follows: Step) -> int:
    """How many tokens of a part's draft the forward before has evaluated. Raises ValueError if it does not follow."""
    if (problem := follow_problem(target)) is not None:
        raise ValueError(f"{target.info.name} evaluates no drafts that follow its last forward's: {problem}")
    before = next((one for one in follows.parts if one.seq is part.seq), None)
    if follows.target is not target or before is None:
        raise ValueError("the step that a forward follows is of another target, or without this sequence")
    if part.pending or part.start != before.end:
        raise ValueError(f"a part that follows begins at {before.end}, without pending rows, got {part.start}")
    if part.draft is None or len(part.draft) <= before.drafted:
        raise ValueError("a part that follows has more draft tokens than the one before: give the whole draft")
    if not is_prefix(before.drafted, before.draft, part.draft):
        raise ValueError("the draft of a part that follows begins with the whole draft of the one before")
    check_parents(part.draft)
    return before.drafted


def evaluate(target: Target, tokens: list[int], needs: Needs = PLAIN) -> TargetOutput:
    """One forward over a text from position 0, in a new sequence that is closed afterwards.

    ``Needs(all_logits=True)``: logits are [T, V]. Raises UsageError for tokens that the target cannot evaluate.
    """
    _check(tokens, target)
    seq = open_sequence(target)
    try:
        output = forward(target, [Part(seq, 0, tokens, decides=True)], needs).output
        assert output is not None
        return output
    finally:
        target.close(seq)


def _check(tokens: list[int], target: Target) -> None:
    vocab, context = target.info.vocab, target.info.context
    if not 0 < len(tokens) <= context:
        raise UsageError(
            f"{len(tokens)} tokens, the context is {context}",
            hint="give fewer tokens, or a larger --context" if tokens else "give at least one token",
        )
    for at, token in enumerate(tokens):
        if not 0 <= token < vocab:
            raise UsageError(
                f"token {quote_value(token)} at position {at} is outside the vocabulary of {vocab}",
                hint="tokenize the text with this model's own tokenizer",
            )
