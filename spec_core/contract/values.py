"""The values that travel between the core, the target and the plugins.

Alphabet of shapes: K drafted tokens of one sequence, R rows of one forward, V vocabulary, D width, L layers.
All are frozen: what a hook was given cannot change behind its back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Literal

import attrs
import torch
from attrs.validators import deep_iterable, in_, instance_of, is_callable, optional
from torch import Tensor

from spec_core.errors import NotAskedFor, nearest

Law = Literal["deterministic", "rows", "unknown"]
Trace = Literal["states", "inputs"]
LAWS: frozenset[Law] = frozenset({"deterministic", "rows", "unknown"})

tensor_eq = attrs.cmp_using(eq=torch.equal)


UNORDERED = (Mapping, Set, str, bytes, bytearray, memoryview)
"""What can be iterated over and is no row of numbers: the keys of a dict, a set in any order, the bytes of a text."""


def _ids(tokens: Any) -> tuple[int, ...]:
    """Host copy of token ids, made once; a tensor must be one-dimensional and integral."""
    if isinstance(tokens, Tensor):
        if tokens.dtype.is_floating_point or tokens.dtype == torch.bool or tokens.dim() != 1:
            raise TypeError(f"Draft.tokens must be int64 [K], got {tokens.dtype} {list(tokens.shape)}")
        return tuple(tokens.tolist())
    ids = _row(tokens, "token ids")
    if not all(type(i) is int for i in ids):
        ids = tuple(_integer(i) for i in ids)
    return ids


def _row(values: Iterable[Any], what: str) -> tuple[Any, ...]:
    if isinstance(values, UNORDERED):
        raise TypeError(f"{what} are a list or tensor, got the {type(values).__name__} {values!r}")
    return tuple(values)


def _integer(value: Any) -> int:
    """An id: an int, or a number of numpy or torch that is one. A truth value has an index too, and is no id."""
    kind = str(getattr(value, "dtype", type(value).__name__))
    if "bool" in kind or not hasattr(value, "__index__") or getattr(value, "ndim", 0) != 0:
        raise TypeError(f"a token id must be an integer, got {value!r}")
    return value.__index__()


def _laws(given: Iterable[str]) -> frozenset[str]:
    """A misspelt law would be matched with nothing, and what is drafted be judged as something else."""
    names = _names(given)
    for name in sorted(names - LAWS, key=str):
        raise ValueError(f"{name!r} is no law of drafts; the laws, nearest first: {nearest(str(name), LAWS)}")
    return names


def _names(given: Iterable[str]) -> frozenset[str]:
    """A text is iterable too, and would be taken for the set of its letters."""
    if isinstance(given, str):
        raise TypeError(f"{given!r} is one name, a set is wanted: {{{given!r}}}")
    return frozenset(given)


def ints(values: Iterable[int]) -> frozenset[int]:
    return frozenset(values)


def strings(values: str | Iterable[str]) -> tuple[str, ...]:
    """A text alone is one, not its letters."""
    return (values,) if isinstance(values, str) else tuple(values)


def _path(path: Iterable[Any]) -> tuple[int, ...]:
    return tuple(_integer(i) for i in _row(path, "indices of a path"))


def _check_claim(law: Law, probs: Tensor | None) -> None:
    """Only rows that tokens were drawn from belong to a draft: a rule would read others as if they had been."""
    if probs is not None and law != "rows":
        raise ValueError(
            f"probs are the distributions that tokens were drawn from, law 'rows'; a draft of law {law!r} has none: "
            f"leave probs out, or the law where every token was drawn from its row"
        )


def _parents(parents: Any) -> tuple[int, ...] | None:
    return None if parents is None else _ids(parents)


@attrs.frozen(init=False)
class Draft:
    """Tokens proposed by a method for one sequence, to be checked in one target forward.

    ids: the K token ids on the host, drafted in this order.
    law: how they were drawn (``reference``: Leviathan 2211.17192 needs ``rows``); ``deterministic`` is a function
        of committed text and earlier drafts, ``rows`` was drawn from ``probs``, ``unknown`` is neither.
    probs: [K, V] float32 or float64, row i the distribution token i was really drawn from; only for law ``rows``,
        with another it is refused (ValueError).
    parents: K indices, -1 ... i-1; -1 is the last committed token. None is a chain.
    confidence: [K] floats in [0, 1], how likely the method thinks each token is to be accepted; or None.
    """

    ids: tuple[int, ...]
    law: Law
    probs: Tensor | None = attrs.field(eq=tensor_eq)
    parents: tuple[int, ...] | None
    confidence: tuple[float, ...] | None

    def __init__(
        self,
        tokens: Tensor | Iterable[int],
        law: Law | None = None,
        probs: Tensor | None = None,
        parents: Tensor | Iterable[int] | None = None,
        confidence: Tensor | Iterable[float] | None = None,
    ) -> None:
        law = law or ("deterministic" if probs is None else "rows")
        if law not in LAWS:
            raise ValueError(f"law is one of {', '.join(sorted(LAWS))}, got {law!r}")
        _check_claim(law, probs)
        floats = None if confidence is None else tuple(float(c) for c in _row(confidence, "confidences"))
        self.__attrs_init__(_ids(tokens), law, probs, _parents(parents), floats)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> Tensor:
        """The ids as an int64 tensor [K] on the CPU."""
        return torch.tensor(self.ids, dtype=torch.int64)

    @property
    def depths(self) -> tuple[int, ...]:
        """Depth of every draft token: 1 follows the last committed token."""
        if self.parents is None:
            return tuple(range(1, len(self.ids) + 1))
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return tuple(depths)

    @property
    def depth(self) -> int:
        """Length of the longest path; 0 for no tokens."""
        return len(self.ids) if self.parents is None else max(self.depths, default=0)

    def ancestry(self, i: int) -> tuple[int, ...]:
        """Indices from the root down to draft token ``i``, itself included; empty for -1."""
        if self.parents is None:
            return tuple(range(i + 1))
        path: list[int] = []
        while i >= 0:
            path.append(i)
            i = self.parents[i]
        return tuple(reversed(path))

    def children(self, i: int) -> dict[int, int]:
        """Token id -> index of the drafts that follow draft ``i`` (-1: the last committed token).

        Of equal siblings the first counts.
        """
        if self.parents is None:
            return {self.ids[i + 1]: i + 1} if i + 1 < len(self.ids) else {}
        found: dict[int, int] = {}
        for j, parent in enumerate(self.parents):
            if parent == i:
                found.setdefault(self.ids[j], j)
        return found


@attrs.frozen
class Verdict:
    """What of a draft is kept.

    path: draft indices from the root to the last kept token; a chain of k kept tokens is 0 ... k-1.
    token: the one token more, the target's own.
    spent: of a lossy rule, the total variation between what it emits here and the target's law, summed over positions.
    """

    path: tuple[int, ...] = attrs.field(converter=_path)
    token: int = attrs.field(converter=_integer)
    spent: float = 0.0


@attrs.frozen
class Needs:
    """What a forward must deliver beside the logits of the deciding rows.

    hidden: indices i of residual streams: i enters block i, i = L left the last block.
    final: the stream after the final norm, the one that the output matrix reads.
    trees: drafts may branch. all_logits: a logits row for every row of the batch.
    trace: what to record of recurrent layers for draft rows. depth: of the first ``depth`` drafts of each sequence
        only; None is all.
    """

    hidden: frozenset[int] = attrs.field(default=frozenset(), converter=ints)
    final: bool = False
    trees: bool = False
    all_logits: bool = False
    trace: Trace | None = attrs.field(default=None, validator=in_((None, "states", "inputs")))
    depth: int | None = None

    def __or__(self, other: Needs) -> Needs:
        return Needs(
            hidden=self.hidden | other.hidden,
            final=self.final or other.final,
            trees=self.trees or other.trees,
            all_logits=self.all_logits or other.all_logits,
            trace=self.trace or other.trace,
            depth=self.depth if self.trace else other.depth,
        )


@attrs.frozen
class Refusal:
    """Why a plugin cannot serve this target, and what the user can do."""

    reason: str
    mend: str


@attrs.frozen
class Compat:
    """A plugin's answer to ``compat``: its capabilities and demands.

    owns: kinds of target state whose rollback it does.
    needs: what each target forward must deliver for it.
    refusals: reasons why it cannot run here; any refusal stops the run before a weight is read.
    drafts: laws its drafts can have; None is ``deterministic`` for a plugin with a draft hook, empty is none at all.
    judges: for a rule, the laws it can judge; None is all.
    noise: for a rule, ``shared`` if it decides by the noise that drafters may read, else ``private``.
    lossy: for a rule, why the text is not the target's own; None if it is.
    forwards: most forwards of its own per step, by drafted length K; what the conformance kit holds it to.
    notes: what a user may want to know before the run, such as memory it will take; printed by ``spec compat``.
    load: called after all answers are clean; the only moment when weights are read.
    """

    owns: frozenset[str] = attrs.field(default=frozenset(), converter=_names)
    needs: Needs = attrs.field(default=Needs(), validator=instance_of(Needs))
    refusals: tuple[Refusal, ...] = attrs.field(
        default=(), converter=tuple, validator=deep_iterable(instance_of(Refusal))
    )
    drafts: frozenset[str] | None = attrs.field(default=None, converter=attrs.converters.optional(_laws))
    judges: frozenset[str] | None = attrs.field(default=None, converter=attrs.converters.optional(_laws))
    noise: Literal["shared", "private"] = attrs.field(default="shared", validator=in_(("shared", "private")))
    lossy: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    forwards: Callable[[int], int] | None = attrs.field(default=None, validator=optional(is_callable()))
    notes: tuple[str, ...] = attrs.field(default=(), converter=strings)
    load: Callable[[Any], None] | None = attrs.field(default=None, validator=optional(is_callable()))


@attrs.frozen
class TargetInfo:
    """Facts of a target that plugins ask for.

    states: kinds of state a step changes, such as ``attention`` and ``recurrent``.
    context: most positions a sequence may have. vocab_id: identity of the tokenizer, equal ids mean equal tokens.
    trees: whether ``forward`` takes drafts that branch.
    """

    name: str
    vocab: int
    width: int
    layers: int
    context: int
    states: frozenset[str] = frozenset({"attention"})
    trees: bool = True
    vocab_id: str = ""
    dtype: str = "float32"
    device: str = "cpu"
    family: str = ""
    bos: int | None = None
    eog: frozenset[int] = frozenset()
    extras: Mapping[str, Any] = attrs.field(factory=dict)


class Streams(dict[int, Tensor]):
    """{i: hidden states} that were asked for; any other raises NotAskedFor, which says how to ask."""

    def __missing__(self, i: int) -> Tensor:
        there = ", ".join(map(str, sorted(self))) or "none"
        raise NotAskedFor(
            f"hidden[{i}] was not asked for (there: {there}): compat must return Compat(needs=Needs(hidden={{{i}}}))"
        )
