"""Rows that are evaluated with a step and never kept: guesses whose outputs a method reads, and vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import torch
from torch import Tensor

from spec_core.contract.hidden_states import HiddenStates, requested_final

COMMITTED = -1
"""The parent of a row that follows the last committed token."""


@attrs.frozen(init=False)
class Probes:
    """Rows for ``step.probe``. They are no drafts: no rule sees them, and no statistic counts them.

    ids: token ids; -1 where the row is given as a vector.
    parents: -1 is the last committed token, 0 ... K-1 the draft tokens that the sequence has when ``probe`` is called,
        K + j row j of these. None: a chain after the last committed token.
    embeds: {index: [D]} in place of a token's embedding, finite.
    """

    ids: tuple[int, ...]
    parents: tuple[int, ...] | None
    embeds: Mapping[int, Tensor] = attrs.field(eq=False)

    def __init__(
        self,
        ids: Tensor | Iterable[int],
        parents: Tensor | Iterable[int] | None = None,
        embeds: Mapping[int, Tensor] | None = None,
    ) -> None:
        vectors = dict(embeds or {})
        self.__attrs_init__(_integers(ids), None if parents is None else _integers(parents), vectors)

    def __len__(self) -> int:
        return len(self.ids)


def _integers(values: Any) -> tuple[int, ...]:
    numbers = values.tolist() if isinstance(values, Tensor) else list(values)
    if any(type(number) is not int for number in numbers):
        raise TypeError(f"ids and parents of probes must be integers, got {numbers!r:.60}")
    return tuple(numbers)


@attrs.frozen(eq=False)
class ProbePiece:
    """What one method probes in a step. first: its first row among the probes of the sequence.

    links: what each row follows: -1 the last committed token, i >= 0 draft token i, and -2 - j probe j.
    """

    source: str
    ids: tuple[int, ...]
    links: tuple[int, ...]
    embeds: Mapping[int, Tensor]
    first: int


def probe_parents(pieces: Iterable[ProbePiece], drafted: int) -> tuple[int, ...]:
    """The parents of all probes, numbered after the draft tokens."""
    return tuple(link if link >= COMMITTED else drafted - 2 - link for piece in pieces for link in piece.links)


@attrs.frozen(eq=False)
class ProbeRows:
    """Outputs of a method's own probes, in their order. logits: [n, V]. hidden: {i: [n, D]}."""

    logits: Tensor
    hidden: Mapping[int, Tensor] = attrs.field(converter=HiddenStates)
    _final: Tensor | None

    @property
    def final(self) -> Tensor:
        """[n, D] after the final norm."""
        return requested_final(self._final)


def create_piece(
    source: str, probes: Probes, drafted: int, first: int, room: int, vocab: int, width: int
) -> ProbePiece:
    """Checked probes of a sequence. Raises ValueError or TypeError if they break the contract."""
    if not isinstance(probes, Probes):
        raise TypeError(f"probe needs Probes, got {type(probes).__name__}")
    count = len(probes)
    if not 0 < count <= room:
        raise ValueError(f"{count} rows are probed; {room} may be, as Needs(probes=...) and the step allow")
    parents = range(COMMITTED, count - 1) if probes.parents is None else probes.parents
    if len(parents) != count:
        raise ValueError(f"{len(parents)} parents for {count} probes")
    if probes.parents is None:
        links = [COMMITTED, *(-2 - first - j for j in range(count - 1))]
    else:
        links = [_link(parent, i, drafted, first) for i, parent in enumerate(parents)]
    vectors = {i: _checked_vector(vector, i, width) for i, vector in probes.embeds.items()}
    for i, token in enumerate(probes.ids):
        if (token == -1) != (i in vectors) or not -1 <= token < vocab:
            raise ValueError(f"probe {i} has the id {token}: give a token of the {vocab}, or -1 and a vector in embeds")
    if vectors and max(vectors) >= count:
        raise ValueError(f"a vector is given for probe {max(vectors)} of {count}")
    return ProbePiece(source, probes.ids, tuple(links), vectors, first)


def _link(parent: int, i: int, drafted: int, first: int) -> int:
    if not COMMITTED <= parent < drafted + i:
        raise ValueError(f"probe {i} has the parent {parent}: -1, one of {drafted} draft tokens, or an earlier probe")
    return parent if parent < drafted else -2 - first - (parent - drafted)


def _checked_vector(vector: Tensor, i: int, width: int) -> Tensor:
    if not isinstance(vector, Tensor) or tuple(vector.shape) != (width,) or not vector.is_floating_point():
        shape = list(vector.shape) if isinstance(vector, Tensor) else type(vector).__name__
        raise ValueError(f"the vector of probe {i} is {shape}, floats [{width}] are needed")
    if not bool(torch.isfinite(vector).all()):
        raise ValueError(f"the vector of probe {i} is not finite")
    return vector.detach().clone()
