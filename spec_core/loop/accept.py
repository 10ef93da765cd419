"""The lossless default of ``accept``: seed-coupled sample-then-match.

At every kept node the target chooses its token by the shared noise; a child that equals it is kept. The token chosen
at output position t depends on committed text, seed and t only, so the text of a seed is the same with every method,
every draft length and every batch, and for plain decoding. What a rule with private noise leaves undecided is chosen
in the same way by noise that no other request and no drafter reads. Sampling by shared noise: Daliri, Musco, Suresh,
"Coupling without Communication and Drafter-Invariant Speculative Decoding", 2408.07978.
"""

from __future__ import annotations

import attrs

from spec_core.contract.step import Step
from spec_core.contract.values import Compat
from spec_core.errors import TargetError
from spec_core.hookspecs import hookimpl
from spec_core.toolkit.choosing import matched


@attrs.define(eq=False)
class Coupled:
    """Keep the drafted tokens that the target itself chooses under the seed's noise."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(noise="shared")

    @hookimpl(trylast=True)
    def accept(self, step: Step) -> None:
        for seq, found in matched(step):
            if isinstance(found, TargetError):
                step.fail(seq, found)
            else:
                step.decide(seq, found)
