"""Synthetic acceptance: keeps drafts at given rates, whatever their tokens. The text is NOT the target's.

To measure the cost of serving at an acceptance that no method reaches yet. Rates are by position and unconditional, as
in vLLM's ``synthetic_acceptance_rates``; a length is mean tokens per step, as in ``synthetic_acceptance_length``.
"""

from __future__ import annotations

from zlib import crc32

import attrs
import numpy as np

from spec_core import AcceptStep, Compat, Draft, Sequence, StashKey, Verdict, hookimpl
from spec_core.errors import UsageError
from spec_core.toolkit import choosers, uniform

DOMAIN_SYNTHETIC = 2
RATES = (0.8, 0.6, 0.4, 0.2)
"""Rates if neither rates nor a length are set."""
LENGTH_MAX = 1 << 10
"""Max mean acceptance length."""


def _check_rates(instance: object, attribute: attrs.Attribute, rates: tuple[float, ...]) -> None:
    falling = all(a >= b for a, b in zip((1.0, *rates), (*rates, 0.0), strict=True))
    if not rates or not falling:
        raise UsageError(
            f"synthetic.rates = {', '.join(map(str, rates))}: rates must not rise",
            hint="give numbers from 1 down to 0: -o synthetic.rates=0.9,0.7,0.5",
        )


def _check_length(instance: object, attribute: attrs.Attribute, length: float | None) -> None:
    if length is not None and not 1.0 <= length <= LENGTH_MAX:
        raise UsageError(
            f"synthetic.length = {length:g}: a step emits at least the target's own token",
            hint=f"give tokens per step from 1 to {LENGTH_MAX}: -o synthetic.length=2.6",
        )


@attrs.define(eq=False)
class Synthetic:
    """Keep drafts at given rates. Benchmark only; the text is meaningless."""

    rates: tuple[float, ...] = attrs.field(
        default=RATES,
        validator=_check_rates,
        metadata={"help": "probability that a draft is kept up to each position, falling; 0 after the last"},
    )
    seed: int = attrs.field(default=0, metadata={"help": "seed of the acceptance pattern"})
    length: float | None = attrs.field(
        default=None,
        validator=_check_length,
        metadata={"help": "instead of rates: mean tokens per step with a draft, by the two nearest whole numbers"},
    )
    all_steps: bool = attrs.field(
        default=False, metadata={"help": "the length is the mean of all steps, those without a draft too"}
    )
    _account: StashKey[tuple[int, int]] = attrs.field(factory=StashKey, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.all_steps and self.length is None:
            raise UsageError("synthetic.all_steps was set without a length", hint="add -o synthetic.length=2.6")
        if self.length is not None and self.rates != RATES:
            raise UsageError("synthetic.length and synthetic.rates were both set", hint="set one of them")

    @hookimpl
    def compat(self) -> Compat:
        listed = ", ".join(f"{rate:g}" for rate in self.rates)
        acceptance = f"at rates {listed}" if self.length is None else f"of length {self.length:g}"
        acceptance += " over all steps" if self.all_steps else ""
        return Compat(lossy=f"synthetic acceptance {acceptance}: the text is meaningless")

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        rates = self.rates if self.length is None else rates_of_length(self.length)
        for seq, choice in choosers(step):
            draft = step.part(seq).draft
            if draft is not None:
                path = longest_path(draft)
                path = path[: self.due_count(seq, len(path)) if self.all_steps else kept_count(rates, self.coin(seq))]
                step.decide(seq, Verdict(path, choice(1 + path[-1] if path else 0)))

    def due_count(self, seq: Sequence, depth: int) -> int:
        """Number of positions to keep so that all steps so far have the length. depth: positions of the draft.

        A step without a draft emits one token, so the steps since the last draft are the tokens since then.
        """
        assert self.length is not None
        steps, position = seq.stash.get(self._account) or (0, 1)
        steps += seq.output_position - position + 1
        due = self.length * steps - seq.output_position  # the first token is of no step, the last one is the target's
        kept = min(depth, max(0, int(due + self.coin(seq))))
        seq.stash[self._account] = steps, seq.output_position + kept + 1
        return kept

    def coin(self, seq: Sequence) -> float:
        """One uniform per step: the pattern of a prompt depends on the setting's seed, not on text or drafter."""
        prompt = crc32(np.array(seq.tokens[: seq.prompt_len], dtype=np.int64).tobytes())
        return float(uniform(self.seed, seq.output_position, np.array([prompt]), seq.noise_stream, DOMAIN_SYNTHETIC)[0])


def rates_of_length(length: float) -> tuple[float, ...]:
    """Rates of a mean acceptance length with the least variance: the kept length is one of two neighbours."""
    whole = int(length - 1)
    rest = length - 1 - whole
    return (1.0,) * whole + ((rest,) if rest else ())


def kept_count(rates: tuple[float, ...], u: float) -> int:
    """Number of positions that are kept for one uniform: at least i + 1 with probability rates[i], since rates fall."""
    return sum(u < rate for rate in rates)


def longest_path(draft: Draft) -> tuple[int, ...]:
    """The path to the deepest draft, the first of equally deep ones."""
    depths = draft.depths
    return draft.ancestry(depths.index(draft.depth))
