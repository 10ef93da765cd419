"""The values that travel between the core, the target and the plugins.

Alphabet of shapes: K drafted tokens of one sequence, R rows of one forward, V vocabulary, D width, L layers.
All are frozen: what a hook was given does not change later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Literal

import attrs
import torch
from attrs.validators import deep_iterable, in_, instance_of, is_callable, optional
from torch import Tensor

from spec_core.errors import NotAskedFor, nearest
from spec_core.sampling.given import ints, strings

Proposal = Literal["deterministic", "sampled", "unknown"]
Trace = Literal["states", "inputs"]
PROPOSALS: frozenset[Proposal] = frozenset({"deterministic", "sampled", "unknown"})

tensor_eq = attrs.cmp_using(eq=torch.equal)


UNORDERED = (Mapping, Set, str, bytes, bytearray, memoryview)
"""Iterables that are no row of numbers: a dict would give its keys, a set has no order, a text gives characters."""
ROWS, INT = (list, tuple), frozenset({int})
"""What comes without exception nearly always."""


def _ids(tokens: Any) -> tuple[int, ...]:
    """Host copy of token ids, made once; a tensor must be one-dimensional and integral."""
    if isinstance(tokens, Tensor):
        if tokens.dtype.is_floating_point or tokens.dtype == torch.bool or tokens.dim() != 1:
            raise TypeError(f"Draft.tokens must be int64 [K], got {tokens.dtype} {list(tokens.shape)}")
        return tuple(tokens.tolist())
    return _integers(tokens, "token ids")


def _integers(values: Iterable[Any], what: str) -> tuple[int, ...]:
    row = _row(values, what)
    return row if INT.issuperset(map(type, row)) else tuple(map(_integer, row))


def _row(values: Iterable[Any], what: str) -> tuple[Any, ...]:
    if type(values) not in ROWS and isinstance(values, UNORDERED):
        raise TypeError(f"{what} are a list or tensor, got the {type(values).__name__} {values!r}")
    return tuple(values)


def _integer(value: Any) -> int:
    """A token id: an int, or an integer of numpy or torch. A bool is refused, though it converts to an integer."""
    if type(value) is int:
        return value
    kind = str(getattr(value, "dtype", type(value).__name__))
    if "bool" in kind or not hasattr(value, "__index__") or getattr(value, "ndim", 0) != 0:
        raise TypeError(f"a token id must be an integer, got {value!r}")
    return value.__index__()


def _proposals(given: Iterable[str]) -> frozenset[str]:
    """Refuse a misspelt name: no rule would match it, and its drafts would be judged as another kind of proposal."""
    names = _names(given)
    for name in sorted(names - PROPOSALS, key=str):
        raise ValueError(f"{name!r} is not a kind of proposal; known, nearest first: {nearest(str(name), PROPOSALS)}")
    return names


def _names(given: Iterable[str]) -> frozenset[str]:
    """A single text is refused: iterating over it would give its letters as names."""
    if isinstance(given, str):
        raise TypeError(f"{given!r} is one name, a set is wanted: {{{given!r}}}")
    return frozenset(given)


def _path(path: Iterable[Any]) -> tuple[int, ...]:
    return _integers(path, "indices of a path")


def _check_claim(proposal: Proposal, probs: Tensor | None) -> None:
    """A rule takes ``probs`` for the distributions that the tokens were drawn from: others are refused."""
    if probs is not None and proposal != "sampled":
        raise ValueError(
            f"probs are what tokens of a proposal 'sampled' were drawn from; one that is {proposal!r} has none: "
            f"leave probs out, or the proposal where every token was drawn from its row"
        )


def _parents(parents: Any) -> tuple[int, ...] | None:
    return None if parents is None else _ids(parents)


@attrs.frozen(init=False)
class Draft:
    """Tokens proposed by a method for one sequence, to be checked in one target forward.

    ids: the K token ids on the host, drafted in this order.
    proposal: how the tokens were chosen: ``deterministic`` by a function of committed text and earlier drafts,
        ``sampled`` by drawing from ``probs`` (what Leviathan et al., 2211.17192, need), ``unknown`` otherwise.
    probs: [K, V] float32 or float64, row i the distribution that token i was drawn from; with another proposal than
        ``sampled`` it is refused (ValueError).
    parents: K indices, -1 ... i-1; -1 is the last committed token. None is a chain.
    confidence: [K] floats in [0, 1], how likely the method thinks each token is to be accepted; or None.
    """

    ids: tuple[int, ...]
    proposal: Proposal
    probs: Tensor | None = attrs.field(eq=tensor_eq)
    parents: tuple[int, ...] | None
    confidence: tuple[float, ...] | None

    def __init__(
        self,
        tokens: Tensor | Iterable[int],
        proposal: Proposal | None = None,
        probs: Tensor | None = None,
        parents: Tensor | Iterable[int] | None = None,
        confidence: Tensor | Iterable[float] | None = None,
    ) -> None:
        proposal = proposal or ("deterministic" if probs is None else "sampled")
        if proposal not in PROPOSALS:
            raise ValueError(f"proposal is one of {', '.join(sorted(PROPOSALS))}, got {proposal!r}")
        _check_claim(proposal, probs)
        floats = None if confidence is None else tuple(float(c) for c in _row(confidence, "confidences"))
        self.__attrs_init__(_ids(tokens), proposal, probs, _parents(parents), floats)

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
    """Which tokens of a draft are kept, and the token that follows them.

    path: draft indices from the root to the last kept token; a chain of k kept tokens is 0 ... k-1.
    next_token: the token after the path, the target's own.
    tv_distance: of a lossy rule, the total variation distance between what it emits here and the target's distribution,
        summed over positions.
    """

    path: tuple[int, ...] = attrs.field(converter=_path)
    next_token: int = attrs.field(converter=_integer)
    tv_distance: float = 0.0


@attrs.frozen
class Needs:
    """What a forward must deliver beside the logits of the rows that decide.

    hidden: indices i of hidden states: i < L is the residual stream at the entry of block i, i = L after the last.
    final: the hidden state after the final norm, which the output matrix reads.
    trees: drafts may branch. all_logits: a logits row for every row of the batch.
    trace: what to record of recurrent layers for draft rows: their states, or the inputs of their update.
    depth: record it only for the first ``depth`` drafted tokens of each sequence; None is all.
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
    """Why a plugin cannot serve this target, and what the user can do.

    reason: what was found and what was needed. hint: what to do.
    """

    reason: str
    hint: str


def _refusals(given: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """Annotated, as ``tuple`` itself is not for type checkers."""
    return tuple(given)


@attrs.frozen
class Compat:
    """A plugin's answer to ``compat``: its capabilities and demands.

    owns: kinds of target state whose rollback it does.
    needs: what each target forward must deliver for it.
    refusals: reasons why it cannot run here; any refusal stops the run before a weight is read.
    drafts: the kinds of proposal its drafts can be; None is ``deterministic`` for a plugin with a draft hook, empty is
        none at all.
    judges: for a rule, the kinds of proposal it can judge; None is all.
    noise: for a rule, ``shared`` if it decides by the noise that drafters may read, else ``private``.
    lossy: for a rule, why the text is not the target's own; None if it is.
    forwards: most forwards of its own per step, by drafted length K; what the conformance kit holds it to.
    notes: what a user may want to know before the run, such as memory it will take; printed by ``spec compat``.
    load: called after all answers are clean; the only moment when weights are read.
    report: what the plugin did in the run, for statistics and JSON; with a text ``summary``, also for people.
    """

    owns: frozenset[str] = attrs.field(default=frozenset(), converter=_names)
    needs: Needs = attrs.field(default=Needs(), validator=instance_of(Needs))
    refusals: tuple[Refusal, ...] = attrs.field(
        default=(), converter=_refusals, validator=deep_iterable(instance_of(Refusal))
    )
    drafts: frozenset[str] | None = attrs.field(default=None, converter=attrs.converters.optional(_proposals))
    judges: frozenset[str] | None = attrs.field(default=None, converter=attrs.converters.optional(_proposals))
    noise: Literal["shared", "private"] = attrs.field(default="shared", validator=in_(("shared", "private")))
    lossy: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    forwards: Callable[[int], int] | None = attrs.field(default=None, validator=optional(is_callable()))
    notes: tuple[str, ...] = attrs.field(default=(), converter=strings)
    load: Callable[[Any], None] | None = attrs.field(default=None, validator=optional(is_callable()))
    report: Callable[[], Mapping[str, Any]] | None = attrs.field(default=None, validator=optional(is_callable()))


@attrs.frozen
class TargetInfo:
    """Facts of a target that plugins ask for.

    vocab: V, rows of the output matrix. width: D. layers: L, blocks of the trunk.
    states: kinds of state a step changes, such as ``attention`` and ``recurrent``.
    context: most positions a sequence may have. vocab_id: identity of the tokenizer, equal ids mean equal tokens.
    trees: whether ``forward`` takes drafts that branch. family: the architecture, as its file calls it.
    bos: the id a text begins with, or None. eog: ids that end a text.
    extras: facts without a field of their own, such as the file.
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
    """{i: hidden states} that some plugin asked for; any other i raises NotAskedFor, which says how to ask."""

    def __missing__(self, i: int) -> Tensor:
        there = ", ".join(map(str, sorted(self))) or "none"
        raise NotAskedFor(
            f"hidden[{i}] was not asked for (there: {there}): compat must return Compat(needs=Needs(hidden={{{i}}}))"
        )
