"""A model some of whose weights are others for some rows: in place of its own, or added to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from spec_kernels.model.ops import Add, Concat, Gate, Input, Linear, Model, Norm, Op, Tap, Weight
from spec_kernels.model.part import ENTRY

TAKEN, PLAIN = "overlay.taken", "overlay.plain"
"""Inputs of width 1, whose sigmoid is 1 or 0: the rows that take the overlay, and the others."""
LARGE = 200.0
"""A number whose sigmoid is 1 in float32; that of its negative is 0."""
PARTS = {
    "attn_qkv": {"q": "attn_q", "k": "attn_k", "v": "attn_v"},
    "attn_q": {"gate": "attn_gate"},
    "ffn_up": {"up_gate": "ffn_gate"},
}
"""Names of matrices that are rows of one stored tensor, by the tensor and the value that a product writes."""


@dataclass(frozen=True, eq=False)
class OverlayWeights:
    """Other weights by the GGUF names of the model's own.

    whole: matrices in place of its own. pairs: (down [r, k], up [n, r]): ``up`` times ``down`` is added to a matrix.
    vectors: biases, and norms of heads, in place of its own. mixed: not all rows take them, see ``TAKEN``.
    """

    whole: Mapping[str, Weight] = field(default_factory=dict)
    pairs: Mapping[str, tuple[Weight, Weight]] = field(default_factory=dict)
    vectors: Mapping[str, Tensor] = field(default_factory=dict)
    mixed: bool = False

    @property
    def names(self) -> set[str]:
        return {*self.whole, *self.pairs, *self.vectors}


def overlay_weights(model: Model, weights: OverlayWeights) -> Model:
    """The model with these weights. Raises ValueError for a name that it lacks, and for other shapes than its own."""
    writer = _Writer(weights)
    ops = tuple(writer.write_ops(model))
    if unknown := sorted(weights.names - writer.found):
        raise ValueError(f"the target has no {unknown[0]!r} that rows can have of their own")
    inputs = (Input(TAKEN, 1), Input(PLAIN, 1)) if weights.mixed else ()
    return replace(model, ops=(*inputs, *ops))


class _Writer:
    """Writes operations with other weights. found: the names that the model has."""

    def __init__(self, weights: OverlayWeights) -> None:
        self.weights, self.block = weights, ""
        self.found: set[str] = set()

    def write_ops(self, model: Model) -> Iterator[Op]:
        for op in model.ops:
            if isinstance(op, Tap) and op.name.startswith(ENTRY):
                self.block = f"blk.{op.name.removeprefix(ENTRY)}."
            if isinstance(op, Linear):
                yield from self._write_product(op)
            elif isinstance(op, Norm):
                yield from self._write_norm(op)
            else:
                yield op

    def _write_norm(self, op: Norm) -> Iterator[Op]:
        """A norm of heads, in place."""
        name = f"{self.block}attn_{op.x}_norm.weight"
        weight = self.weights.vectors.get(name) if op.x == op.out else None
        if weight is None:
            yield op
            return
        self._find(name, tuple(weight.shape), tuple(op.weight.shape))
        if not self.weights.mixed:
            yield replace(op, weight=weight)
            return
        other = f"overlay.{op.x}"
        yield Concat((op.x,), other)
        yield Norm(other, other, weight, op.eps)
        yield op
        yield from _choose(op.x, other)

    def _write_product(self, op: Linear) -> Iterator[Op]:
        names = [_matrix_name(out, weight) for out, weight in zip(op.outs, op.weights, strict=True)]
        pairs = {i: self.weights.pairs[name] for i, name in enumerate(names) if name in self.weights.pairs}
        own = replace(op, weights=tuple(map(self._matrix, names, op.weights)), biases=self._biases(names, op))
        is_other = [
            a is not b or c is not d for a, b, c, d in zip(own.weights, op.weights, own.biases, op.biases, strict=True)
        ]
        if self.weights.mixed and "output.weight" in names and (pairs or any(is_other)):
            raise ValueError("'output.weight' can be another matrix for all rows only")
        for i, (down, up) in pairs.items():
            self._check_pair(names[i], op.weights[i], down, up)
        yield from self._write_downs(op.x, pairs)
        others = [i for i, other in enumerate(is_other) if other and self.weights.mixed]
        for i in others:  # before the product, which may write over what it reads
            yield Linear(op.x, (f"overlay.{i}",), (own.weights[i],), (own.biases[i],), op.add)
        yield op if self.weights.mixed else own
        for i in others:
            yield from _choose(op.outs[i], f"overlay.{i}")
        for i, (_, up) in pairs.items():
            yield Linear(f"overlay.down.{i}", (op.outs[i],), (up,), (None,), op.outs[i])

    def _write_downs(self, x: str, pairs: Mapping[int, tuple[Weight, Weight]]) -> Iterator[Op]:
        """Products with the first matrices of pairs, 0 in rows that do not take them."""
        if not pairs:
            return
        outs = tuple(f"overlay.down.{i}" for i in pairs)
        yield Linear(x, outs, tuple(down for down, _ in pairs.values()), (None,) * len(pairs))
        if self.weights.mixed:
            yield from (Gate(out, TAKEN, out, "sigmoid") for out in outs)

    def _matrix(self, name: str, weight: Weight) -> Weight:
        other = self.weights.whole.get(name)
        if other is None:
            return weight
        self._find(name, (other.n, other.k), (weight.n, weight.k))
        return other

    def _biases(self, names: list[str], op: Linear) -> tuple[Tensor | None, ...]:
        return tuple(
            self._bias(name.removesuffix("weight") + "bias", weight, bias)
            for name, weight, bias in zip(names, op.weights, op.biases, strict=True)
        )

    def _bias(self, name: str, weight: Weight, bias: Tensor | None) -> Tensor | None:
        other = self.weights.vectors.get(name)
        if other is None:
            return bias
        self._find(name, tuple(other.shape), (weight.n,))
        return other

    def _check_pair(self, name: str, weight: Weight, down: Weight, up: Weight) -> None:
        self._find(name, (up.n, down.k), (weight.n, weight.k))
        if up.k != down.n:
            raise ValueError(f"{name!r}: the pair has ranks {down.n} and {up.k}")

    def _find(self, name: str, shape: tuple[int, ...], needed: tuple[int, ...]) -> None:
        """Note that the model has a name. Raises ValueError for another shape."""
        self.found.add(name)
        if shape != needed:
            raise ValueError(f"{name!r} has shape {list(shape)}, the target's has {list(needed)}")


def _choose(out: str, other: str) -> Iterator[Op]:
    """Take ``other`` in place of ``out`` in the rows with the overlay."""
    yield Gate(other, TAKEN, other, "sigmoid")
    yield Gate(out, PLAIN, out, "sigmoid")
    yield Add(out, other, out)


def _matrix_name(out: str, weight: Weight) -> str:
    """The name of the matrix that writes a value: its own, where a stored tensor holds several."""
    if out == "logits":
        return "output.weight"
    *prefix, stem, end = weight.name.split(".")
    return ".".join([*prefix, PARTS.get(stem, {}).get(out, stem), end])
