"""The target's choice at every row, and the path of a draft that follows these choices. For rules.

The token chosen at output position t depends only on committed text, seed and t, and, under a rule with private noise,
on the number of the request. Shared noise: Daliri, Musco, Suresh, 2408.07978.
"""

from __future__ import annotations

from collections.abc import Callable

from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.values import Draft, Verdict
from spec_core.sampling.choose import drawn, finite_choice, largest

Choose = Callable[[int], int]
"""Row -> token: row 0 follows committed text, row 1 + j follows draft j."""


def walk(draft: Draft | None, choice: Choose) -> Verdict:
    """Follow the choices down the draft. choice: row -> token; row 0 follows committed text, row 1+j draft j."""
    path: list[int] = []
    token, node = choice(0), -1
    while draft is not None and (child := draft.children(node).get(token)) is not None:
        path.append(child)
        token, node = choice(1 + child), child
    return Verdict(tuple(path), token)


def choosers(step: Step) -> list[tuple[Sequence, Choose]]:
    """The choice function of each undecided sequence. Greedy ones share one argmax, and on a device one transfer."""
    undecided = list(step.undecided)
    plain = {seq for seq in undecided if seq.sampling.greedy and seq.matcher is None}
    best = largest(step.output.logits) if plain else ([], [])
    return [(seq, greedy(step, seq, best) if seq in plain else sampled(step, seq)) for seq in undecided]


def greedy(step: Step, seq: Sequence, best: tuple[list[int], list[float]]) -> Choose:
    at = step.part(seq).at
    return lambda row: finite_choice(*best, at + row)


def sampled(step: Step, seq: Sequence) -> Choose:
    """A choice function that evaluates a row only when the path reaches it."""
    logits, draft = step.logits(seq), step.part(seq).draft
    source = step.choosing(seq)

    def choice(row: int) -> int:
        depth = draft.depths[row - 1] if row and draft else 0
        history = step.history(seq, row), seq.prompt_len, ()
        token, logit, _ = drawn(logits[row], seq.sampling, source, seq.t + depth, history, step.mask(seq, row))
        return finite_choice([token], [logit])

    return choice
