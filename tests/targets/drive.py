"""Drive a target's forward without a run: sequences, parts and batches as the core would make them."""

from __future__ import annotations

from spec_core import Draft, Needs, Part, RollbackStep, Sequence, Step, Target, TargetOutput, Verdict, toolkit

EVERYTHING = Needs(all_logits=True)


def sequence(target: Target, tokens: list[int], **fields) -> Sequence:
    """A sequence with a fresh slot, and these tokens for its prompt."""
    seq = toolkit.open_sequence(target, **fields)
    seq.tokens += tokens
    seq.prompt_len = len(tokens)
    return seq


def part(seq: Sequence, start: int, pending: list[int], draft: Draft | None = None, decides: bool = True) -> Part:
    return Part(seq, start, list(pending), decides, draft=draft)


def step(target: Target, *parts: Part, needs: Needs = EVERYTHING) -> Step:
    """A step whose forward was run."""
    return toolkit.forward(target, parts, needs)


def forward(target: Target, *parts: Part, needs: Needs = EVERYTHING) -> TargetOutput:
    return step(target, *parts, needs=needs).output


def fresh(target: Target, tokens: list[int], needs: Needs = EVERYTHING) -> TargetOutput:
    """One forward over all tokens of a new sequence."""
    return forward(target, part(sequence(target, tokens), 0, tokens), needs=needs)


def keep(step: Step, verdicts: dict[Sequence, Verdict]) -> None:
    """Decide the verdicts and let the target roll back its rows."""
    for seq, verdict in verdicts.items():
        step.part(seq).verdict = verdict
    step.phase = "rollback"
    step.target.rollback(step=RollbackStep(step))


def greedy(target: Target, prompt: list[int], n: int) -> tuple[list[int], list]:
    """n tokens one by one over the cache, and the logits row each was chosen from."""
    seq = sequence(target, prompt)
    pending, start, tokens, rows = list(prompt), 0, [], []
    for _ in range(n):
        row = forward(target, part(seq, start, pending), needs=Needs()).logits[-1].clone()
        start += len(pending)
        pending = [int(row.argmax())]
        tokens += pending
        rows.append(row)
    return tokens, rows
