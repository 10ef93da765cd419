"""Bits of activations in products with quantised weights: what was asked for, or what the weights' types decide.

Rounding activations to 8 bits adds noise to logits, and so does the rounding that the weights carry already. ``NOISE``
is their ratio where all weights are of one type: KL divergence per token that int8 activations add, divided by the one
that weights add when they move at random within their own rounding step (``benchmarks/activations.py`` measures it).
Noise of independent products adds up, so for a mix of types the ratio is 1 / sum(p / NOISE), where p is the part of the
quantised weights that have a type. ``auto`` is int8 up to ``ALLOWED``, else int15.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spec_kernels.model.ops import Clusters, HeadLinear, Linear, Mixture, Model
from spec_kernels.native import ACTIVATIONS
from spec_kernels.native.weights import Arena, Tiles

AUTO = "auto"
CHOICES = (AUTO, *ACTIVATIONS)
ALLOWED = 0.05
NOISE = {
    "Q4_0": 0.0026, "Q4_1": 0.0043, "Q4_K": 0.0043, "Q5_0": 0.010, "Q5_1": 0.018, "Q5_K": 0.018,
    "Q6_K": 0.06, "Q8_0": 0.58,
}  # fmt: skip


@dataclass(frozen=True)
class Activations:
    """name: one of ``ACTIVATIONS``. why: what decided it, in words; empty where the user did."""

    name: str
    why: str = ""

    @property
    def bits(self) -> int:
        return ACTIVATIONS[self.name]

    def __str__(self) -> str:
        return f"{self.name} ({self.why})" if self.why else self.name


def choose_activations(choice: str, model: Model, arena: Arena) -> Activations:
    """choice: one of ``CHOICES``."""
    return Activations(choice) if choice != AUTO else by_types(sizes_of_types(model, arena))


def by_types(sizes: dict[str, int]) -> Activations:
    """The rule. sizes: number of weights of every quantised type."""
    if not sizes:
        return Activations("int15", "auto: no weights are quantised")
    share = ratio(sizes)
    name = "int8" if share <= ALLOWED else "int15"
    sign = "<=" if share <= ALLOWED else ">"
    return Activations(name, f"auto: int8 adds {share:.2%} of the weights' own noise, {sign} {ALLOWED:.0%}")


def ratio(sizes: dict[str, int]) -> float:
    """Noise of int8 activations divided by the noise of the weights' own rounding."""
    return sum(sizes.values()) / sum(count / NOISE[type] for type, count in sizes.items())


def sizes_of_types(model: Model, arena: Arena) -> dict[str, int]:
    """Number of weights of every quantised type that rows are multiplied with; an embedding table only where it is the
    output matrix too."""
    sizes: dict[str, int] = {}
    for tiles in {id(t): t for t in _tiles_of_products(model, arena)}.values():
        if not tiles.floats:
            sizes[tiles.type] = sizes.get(tiles.type, 0) + tiles.count * tiles.n * tiles.k
    return sizes


def _tiles_of_products(model: Model, arena: Arena) -> Iterable[Tiles]:
    for op in model.ops:
        if isinstance(op, Linear):
            pair = len(op.weights) == 2 and arena.is_paired(*op.weights)
            yield from (arena[some] for some in ([op.weights] if pair else [(w,) for w in op.weights]))
        elif isinstance(op, Mixture):
            yield from (arena[op.inputs], arena[(op.down,)])
        elif isinstance(op, Clusters | HeadLinear):
            yield arena[(op.weight,)]
