"""Drafts that an executor makes in one call: what is asked for, and what it found."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.ops import Input, Model


class DraftNoise(Protocol):
    """Noise of the tokens of one chain: they are drawn at this temperature, with the noise of the request.

    source: seed, stream and domain. position: of the output. Both are the first token's, see
    ``spec_core.sampling.noise``; onward: what is added to position and domain for every token.
    """

    @property
    def temperature(self) -> float: ...
    @property
    def source(self) -> tuple[int, int, int]: ...
    @property
    def position(self) -> int: ...
    @property
    def onward(self) -> tuple[int, int]: ...
    def chance(self, gap: float) -> float:
        """The chance of a token, by the distance of its score to the second."""


class DraftLimits(Protocol):
    """Limits of one sequence's draft.

    depth: max path length    nodes: max tokens    width: max children of a node, and nodes evaluated at each depth; 1
        is a chain, in which ``nodes`` is ``depth``
    p_min: nothing follows a path that is less likely; in a tree it is left out, but for the first token after a node
    trust: share of drafts that is accepted, 0 to 1; multiplies the chance of every token
    stops: nothing follows such a token
    chooser: a capsule of ``spec_chooser`` (chooser.h), which a tree needs; None takes the most likely token
    noise: what the chooser of a chain draws with, for executors that do not call it
    before: drafted tokens before it that the same chooser chose, at most 256 together with ``depth``
    rows: nodes evaluated in a forward, the most likely of any depth, where rows depend on no other row: until
        the best paths are found, in which the first token alone may be less likely than ``p_min``; 0: see ``width``
    shared: what such a row depends on, "path", "token" or "depth"; equal rows are evaluated once
    """

    @property
    def depth(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def p_min(self) -> float: ...
    @property
    def trust(self) -> float: ...
    @property
    def stops(self) -> Collection[int]: ...
    @property
    def chooser(self) -> Any: ...
    @property
    def noise(self) -> DraftNoise | None: ...
    @property
    def before(self) -> Sequence[int]: ...
    @property
    def rows(self) -> int: ...
    @property
    def shared(self) -> str: ...


@dataclass(frozen=True, eq=False, slots=True)
class Drafted:
    """One draft of n tokens: of a tree the most likely first. chances: of each, where what it follows is accepted.

    parents: index of the token that each follows, -1 is committed text; None: a chain
    rows: [n, V] logits that the tokens of a chain were chosen from, where they were to be kept
    """

    tokens: list[int]
    parents: list[int] | None
    chances: list[float]
    rows: Tensor | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Drafts:
    """One for every sequence, and what they cost: forwards, and rows of all of them.

    states: requested rows [R, D] of the tap that is fed back, of drafts with one forward
    """

    found: list[Drafted]
    forwards: int
    rows: int
    states: Tensor | None = None


@dataclass(frozen=True, eq=False, slots=True)
class DraftOptions:
    """What forwards of drafts read, and what is kept of them.

    state: the tap that the next forward takes as its only input. ids: int64, the token of every row of logits; None:
    their own numbers. keep: the rows of logits that tokens of chains were chosen from. read: in place of ``state``, of
    every sequence the rows [depth, width] of all inputs, one for each forward. sure: a tap of width 1, whose sigmoid is
    the chance of a token.
    """

    state: str | None = None
    ids: Tensor | None = None
    keep: bool = False
    read: Sequence[Mapping[str, Tensor]] | None = None
    sure: str | None = None


PLAIN_DRAFTS = DraftOptions()
"""Forwards read tokens alone."""


def draft_chains(
    executor: Any, batch: ForwardBatch, limits: Sequence[DraftLimits], options: DraftOptions = PLAIN_DRAFTS
) -> Drafts:
    """A greedy chain after the last row of every sequence, for which one row of logits is wanted; a forward a token.

    executor: runs the forwards. limits: of every sequence. Its cache has room for ``depth`` - 1 places more. options:
    no rows are kept, as no chooser reads any here.
    """
    state, ids, read, sure = options.state, options.ids, options.read, options.sure
    if options.keep or any(of.chooser is not None or of.width > 1 for of in limits):
        raise NotImplementedError("only greedy chains are drafted here")
    batch = replace(batch, taps={"logits", *filter(None, (state, sure))})
    drafts = [Drafted([], None, []) for _ in limits]
    going, survival = list(range(len(limits))), [1.0] * len(limits)
    forwards = rows = 0
    while True:
        out = executor.run(batch)
        forwards, rows = forwards + 1, rows + batch.positions.numel()
        chances, best = out["logits"].float().softmax(-1).nan_to_num(0.0).max(-1)
        tokens = (best if ids is None else ids[best]).tolist()
        own = chances.tolist() if sure is None else [sigmoid(score) for score in out[sure][:, 0].tolist()]
        for i, token, chance in zip(going, tokens, own, strict=True):
            drafts[i].tokens.append(token)
            drafts[i].chances.append(chance)
            survival[i] *= chance * limits[i].trust
        on = [at for at, i in enumerate(going) if goes_on(drafts[i], survival[i], limits[i])]
        if not on:
            return Drafts(drafts, forwards, rows, None if state is None else out[state])
        inputs = {} if state is None else {batch_input(executor.model): out[state][on]}
        if read is not None:
            inputs = rows_at([(read[going[at]], len(drafts[going[at]].tokens)) for at in on])
        batch = next_rows(batch, on, [tokens[at] for at in on], inputs, stays=bool(executor.model.borrowed))
        going = [going[at] for at in on]


def rows_at(places: Sequence[tuple[Mapping[str, Tensor], int]]) -> dict[str, Tensor]:
    """Row i of every input, [n, width], for each (inputs by name, i)."""
    return {name: torch.stack([of[name][i] for of, i in places]) for name in places[0][0]}


def sigmoid(score: float) -> float:
    """1 / (1 + exp(-score)), with the bits of the native loop; 0 for NaN."""
    return 1 / (1 + math.exp(-score)) if score > -700 else 0.0


def cut_chain(tokens: Sequence[int], certainty: Sequence[float], limits: DraftLimits) -> Drafted:
    """The part of a chain that its limits allow. certainty: of each token its chance, or of drawn ones their gap."""
    draft, survival = Drafted([], None, []), 1.0
    for token, value in zip(tokens, certainty, strict=True):
        chance = value if limits.noise is None else limits.noise.chance(value)
        draft.tokens.append(token)
        draft.chances.append(0.0 if math.isnan(chance) else chance)
        survival *= draft.chances[-1] * limits.trust
        if not goes_on(draft, survival, limits):
            break
    return draft


def goes_on(draft: Drafted, survival: float, limits: DraftLimits) -> bool:
    """Whether another token is worth its forward. survival: probability that the draft so far is accepted."""
    full = len(draft.tokens) == limits.depth or draft.tokens[-1] in limits.stops
    return survival >= limits.p_min and not full


def next_rows(
    batch: ForwardBatch, on: Sequence[int], tokens: list[int], inputs: Mapping[str, Tensor], stays: bool = False
) -> ForwardBatch:
    """One row more of some sequences of a batch. on: which; tokens: one of each. stays: in the place of the last row,
    for layers that store nothing."""
    device, past = batch.positions.device, [batch.sequences[i] for i in on]
    positions = batch.positions[[s.first + s.rows - 1 for s in past]] + (not stays)
    sequences = [SequenceRows(s.cache, i, 1, s.end - stays) for i, s in enumerate(past)]
    return ForwardBatch(torch.tensor(tokens, device=device), positions, sequences, inputs=inputs, taps=batch.taps)


def batch_input(model: Model) -> str:
    """The name of a model's only input."""
    (name,) = (op.out for op in model.ops if isinstance(op, Input))
    return name
