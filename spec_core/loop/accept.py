"""The lossless default of ``accept``: seed-coupled sample-then-match.

At every kept node the target chooses its token by the shared noise; a child that equals it is kept. The token chosen
at output position t depends on committed text, seed and t only, so the text of a seed is the same with every method,
every draft length and every batch, and for plain decoding. What a rule with private noise leaves undecided is chosen
in the same way by noise that no other request and no drafter reads. Sampling by shared noise: Daliri, Musco, Suresh,
"Coupling without Communication and Drafter-Invariant Speculative Decoding", 2408.07978.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.values import Compat, Draft, Verdict
from spec_core.errors import TargetError
from spec_core.hookspecs import hookimpl
from spec_core.sampling.choose import adjust, choose, largest, number

Choose = Callable[[int], int]
RULE = "coupled"
"""The name of the default rule in every run."""


@attrs.define(eq=False)
class Coupled:
    """Keep the drafted tokens that the target itself chooses under the seed's noise."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(noise="shared")

    @hookimpl(trylast=True)
    def accept(self, step: Step) -> None:
        for seq, choice in choosers(step):
            try:
                step.decide(seq, walk(step.part(seq).draft, choice))
            except TargetError as error:
                step.fail(seq, error)


def walk(draft: Draft | None, choice: Choose) -> Verdict:
    """Follow the choices down the draft. choice: row -> token; row 0 follows committed text, row 1+j draft j."""
    path: list[int] = []
    token, node = choice(0), -1
    while draft is not None and (child := draft.children(node).get(token)) is not None:
        path.append(child)
        token, node = choice(1 + child), child
    return Verdict(tuple(path), token)


def choosers(step: Step) -> list[tuple[Sequence, Choose]]:
    """How each undecided sequence chooses. Greedy ones share one argmax, and on a device one transfer."""
    undecided = list(step.undecided)
    if not any(seq.sampling.greedy for seq in undecided):
        return [(seq, sampled(step, seq)) for seq in undecided]
    best = largest(step.checked.logits)
    return [(seq, greedy(step, seq, best) if seq.sampling.greedy else sampled(step, seq)) for seq in undecided]


def greedy(step: Step, seq: Sequence, best: tuple[list[int], list[float]]) -> Choose:
    at = step.part(seq).at
    return lambda row: number(*best, at + row)


def sampled(step: Step, seq: Sequence) -> Choose:
    """Evaluates a row only when the path gets there."""
    logits, draft = step.logits(seq), step.part(seq).draft
    seed, stream, domain = step.choosing(seq)

    def choice(row: int) -> int:
        depth = draft.depths[row - 1] if row and draft else 0
        adjusted = adjust(logits[row], seq.sampling, step.history(seq, row), seq.prompt)
        noise = step.made_noise(seq, depth)
        return choose(adjusted, seq.sampling, seed, seq.t + depth, stream, domain, noise)

    return choice
