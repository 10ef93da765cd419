"""Synthetic acceptance: keeps drafts at given rates, whatever their tokens. The text is NOT the target's.

To measure the cost of serving at an acceptance rate that no method reaches yet. Rates are by position and
unconditional, as in vLLM's ``synthetic_acceptance_rates``.
"""

from __future__ import annotations

from zlib import crc32

import attrs
import numpy as np

from spec_core import Compat, Draft, Sequence, Step, Verdict, hookimpl
from spec_core.errors import UsageError
from spec_core.toolkit import choosers, uniform

DOMAIN_SYNTHETIC = 2


def _check(instance: object, attribute: attrs.Attribute, rates: tuple[float, ...]) -> None:
    falling = all(a >= b for a, b in zip((1.0, *rates), (*rates, 0.0), strict=True))
    if not rates or not falling:
        raise UsageError(
            f"synthetic.rates = {', '.join(map(str, rates))}: rates must not rise",
            hint="give numbers from 1 down to 0: -o synthetic.rates=0.9,0.7,0.5",
        )


@attrs.define(eq=False)
class Synthetic:
    """Keep drafts at given rates. Benchmark only; the text is meaningless."""

    rates: tuple[float, ...] = attrs.field(
        default=(0.8, 0.6, 0.4, 0.2),
        validator=_check,
        metadata={"help": "probability that a draft is kept up to each position, falling; 0 after the last"},
    )
    seed: int = attrs.field(default=0, metadata={"help": "seed of the acceptance pattern"})

    @hookimpl
    def compat(self) -> Compat:
        rates = ", ".join(f"{rate:g}" for rate in self.rates)
        return Compat(lossy=f"synthetic acceptance at rates {rates}: the text is meaningless")

    @hookimpl
    def accept(self, step: Step) -> None:
        for seq, choice in choosers(step):
            draft = step.part(seq).draft
            if draft is not None:
                path = longest(draft)[: kept_count(self.rates, self.coin(seq))]
                step.decide(seq, Verdict(path, choice(1 + path[-1] if path else 0)))

    def coin(self, seq: Sequence) -> float:
        """One uniform per step: the pattern of a prompt depends on the setting's seed, not on text or drafter."""
        prompt = crc32(np.array(seq.tokens[: seq.prompt_len], dtype=np.int64).tobytes())
        return float(uniform(self.seed, seq.output_position, np.array([prompt]), seq.noise_stream, DOMAIN_SYNTHETIC)[0])


def kept_count(rates: tuple[float, ...], u: float) -> int:
    """Number of positions that are kept for one uniform: at least i + 1 with probability rates[i], since rates fall."""
    return sum(u < rate for rate in rates)


def longest(draft: Draft) -> tuple[int, ...]:
    """The path to the deepest draft, the first of equally deep ones."""
    depths = draft.depths
    return draft.ancestry(depths.index(draft.depth))
