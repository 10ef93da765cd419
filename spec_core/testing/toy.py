"""A toy hybrid target: attention rows, a gated delta state and a convolution window, in float64 and plain numpy.

Small enough for thousands of steps, with every kind of state: rows that must be dropped, a recurrent state that cannot
undo a token, a window that must be restored. Its recurrence is written here, independent of any kernel, so that
it can serve as a reference. Rows are computed one by one: a row's result does not depend on other rows of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Any

import attrs
import numpy as np
import torch

from spec_core.contract.batch import Batch, Part, TargetOutput
from spec_core.contract.held import HeldDrafts, check_held
from spec_core.contract.sequence import Sequence, Slot
from spec_core.contract.values import Compat, Needs, TargetInfo
from spec_core.contract.verified_step import RollbackStep
from spec_core.hookspecs import hookimpl
from spec_core.testing.shown_rows import ToyReader

WINDOW = 3
"""Inputs of the convolution, the current one included."""


@attrs.frozen(eq=False)
class Recurrent:
    """State of a gated delta layer: [Dk, Dv], and the last WINDOW - 1 inputs."""

    state: np.ndarray
    window: tuple[np.ndarray, ...]


@attrs.frozen(eq=False)
class Record:
    """The inputs to repeat one token of the recurrence, and the row it follows (-1: the committed state)."""

    source: np.ndarray
    parent: int


@attrs.define(eq=False)
class ToyState:
    """Memory of one slot: attention rows by position, and the recurrent state after ``evaluated`` positions.

    drafts: rows of drafts that a forward may follow.
    """

    keys: list[np.ndarray] = attrs.field(factory=list)
    values: list[np.ndarray] = attrs.field(factory=list)
    recurrent: Recurrent | None = None
    drafts: HeldDrafts | None = None


class ToyTokenizer:
    """One character per token, starting with the space."""

    chat_template: str | None = None
    bos: int | None = None

    def __init__(self, vocab: int, eog: frozenset[int]) -> None:
        self.vocab_size = vocab
        self.eog = eog
        self.identity = f"toy-{vocab}"

    def encode(self, text: str, *, special: bool = False, bos: bool = True) -> list[int]:
        return [(ord(c) - 32) % self.vocab_size for c in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(32 + i) for i in ids)

    def stream(self) -> Any:
        return _Characters()

    def token_bytes(self, token: int) -> bytes:
        return chr(32 + token).encode()


class _Characters:
    def put(self, token: int) -> str:
        return chr(32 + token)

    def end(self) -> str:
        return ""


class ToyTarget:
    """Two blocks, attention and then a gated delta layer, with random weights of ``seed``.

    :param vocab: size of the vocabulary. :param width: of the residual stream.
    :param recurrent: False leaves the second block out. :param trees: whether drafts may branch.
    :param sharpness: scale of the logits; at 3 greedy text is varied and a guess is sometimes right.
    """

    def __init__(
        self,
        seed: int = 0,
        vocab: int = 48,
        width: int = 12,
        context: int = 512,
        recurrent: bool = True,
        trees: bool = True,
        sharpness: float = 3.0,
        eog: frozenset[int] = frozenset(),
    ) -> None:
        rng = np.random.default_rng(seed)
        states = {"attention", "recurrent"} if recurrent else {"attention"}
        self.info = TargetInfo(
            name=f"toy-{seed}",
            vocab=vocab,
            width=width,
            layers=2 if recurrent else 1,
            context=context,
            states=frozenset(states),
            trees=trees,
            vocab_id=f"toy-{vocab}",
            dtype="float64",
            family="toy",
            eog=eog,
            exact="rows",
        )
        self.tokenizer = ToyTokenizer(vocab, eog)
        self.cache_reader = ToyReader(width, lambda seq: seq.slot.state, _rows_of)
        self.forwards = 0
        self._recurs = recurrent
        self._embed = rng.normal(size=(vocab, width))
        self._head = rng.normal(size=(vocab, width)) * sharpness / np.sqrt(width)
        names = ("q", "k", "v", "o", "gq", "gk", "gv", "go")
        self._w = {n: rng.normal(size=(width, width)) / np.sqrt(width) for n in names}
        self._gate = rng.normal(size=(2, width)) / np.sqrt(width)
        self._conv = rng.normal(size=(WINDOW, width)) / np.sqrt(WINDOW)

    # the Target protocol

    def forward(self, batch: Batch, needs: Needs) -> TargetOutput:
        self.forwards += 1
        tokens, positions = batch.tokens.tolist(), batch.positions.tolist()
        streams: list[list[np.ndarray]] = []
        logit_rows: list[int] = []
        trace: dict[int, Any] = {}
        for part in batch.parts:
            held, part.seq.slot.state.drafts = part.seq.slot.state.drafts, None
            check_held(held, part)
            last = part.first_draft_row + part.held + part.branch_rows
            embeds = {row: batch.embeds[row].numpy() for row in range(part.row, last) if row in batch.embeds}
            streams += self._part(part, tokens, positions, embeds, needs, trace)
            first = part.row if needs.all_logits or not part.pending else part.first_draft_row - 1
            logit_rows += range(first, last) if part.decides or needs.all_logits else ()
            part.seq.slot.state.drafts = HeldDrafts(part.end, part.draft)
        rows = np.array(streams)  # [R, L + 1, D]
        final = np.array([_norm(stream[-1]) for stream in streams])
        logits = np.array([self._head @ final[row] for row in logit_rows]).reshape(-1, len(self._head))  # equal bits
        return TargetOutput(
            logits=torch.from_numpy(logits),
            hidden={i: torch.from_numpy(rows[:, i]) for i in needs.hidden},
            final=torch.from_numpy(final) if needs.final else None,
            trace=trace if needs.trace else None,
        )

    @property
    def follow_problem(self) -> str | None:
        """Why drafts cannot follow draft rows of the last forward; None if they can."""
        return "its second block keeps a state" if self._recurs else None

    probe_problem = None
    """Why it cannot evaluate rows that are no drafts: it can."""

    def tensor(self, name: str) -> torch.Tensor:
        weights = {"token_embd.weight": self._embed, "output.weight": self._head}
        return torch.from_numpy(weights[name])

    def open(self, seq: Sequence, want: int) -> int:
        slot = seq.slot
        if slot.state is None:
            slot.state = ToyState()
        slot.state.drafts = None
        if not self._recurs:
            return self._truncate(slot.state, want)
        start = max((p for p in slot.checkpoints if p <= want), default=0)
        slot.state.recurrent = slot.checkpoints[start] if start else self._fresh()
        return self._truncate(slot.state, start)

    def copy(self, seq: Sequence, source: Slot, want: int) -> int:
        held = source.state
        seq.slot.state = ToyState(held.keys[:want], held.values[:want])
        if not self._recurs:
            return want
        seq.slot.checkpoints = {p: c for p, c in source.checkpoints.items() if p <= want}
        return self.open(seq, want)

    def close(self, seq: Sequence) -> None:
        seq.slot.state = None

    def checkpoint(self, seq: Sequence) -> Recurrent | None:
        return seq.slot.state.recurrent

    def restore(self, seq: Sequence, position: int) -> None:
        seq.slot.state.recurrent = seq.slot.checkpoints[position] if position else self._fresh()

    # the plugin

    @hookimpl
    def compat(self) -> Compat:
        return Compat(owns={"attention"})

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        """Keep committed rows and the kept path, drop the others."""
        for seq, verdict in step.verdicts.items():
            part, state = step.part(seq), seq.slot.state
            state.drafts = None
            for rows in (state.keys, state.values):
                kept = [rows[part.end + i] for i in verdict.path]
                rows[part.end :] = kept

    # the mathematics

    def _fresh(self) -> Recurrent:
        width = self.info.width
        return Recurrent(np.zeros((width, width)), (np.zeros(width),) * (WINDOW - 1))

    @staticmethod
    def _truncate(state: ToyState, length: int) -> int:
        del state.keys[length:], state.values[length:]
        return length

    def _part(
        self,
        part: Part,
        tokens: list[int],
        positions: list[int],
        embeds: dict[int, np.ndarray],
        needs: Needs,
        trace: dict[int, Any],
    ) -> list[list[np.ndarray]]:
        """Residual streams [rows][L + 1][D] of one sequence's rows."""
        state: ToyState = part.seq.slot.state
        self._truncate(state, part.start + part.held)
        streams = []
        for row in range(part.row, part.first_draft_row):
            earlier = range(part.start + row - part.row)
            x = embeds.get(row, self._embed[tokens[row]])
            stream, state.recurrent, _ = self._row(x, positions[row], state, earlier, state.recurrent)
            streams.append(stream)
        after: list[Recurrent | None] = []
        parents = part.branch_parents or range(-1, part.drafted - 1)
        for j in range(part.held, len(parents)):
            parent, ancestry = parents[j], _ancestry(parents, j)
            visible = [*range(part.end), *(part.end + i for i in ancestry[:-1])]
            before = after[parent] if parent >= 0 and self._recurs else state.recurrent
            row = part.first_draft_row + j
            x = embeds[row] if row in embeds else self._embed[tokens[row]]
            stream, now, source = self._row(x, positions[row], state, visible, before)
            streams.append(stream)
            after.append(now)
            if needs.trace:
                trace[row] = now if needs.trace == "states" else Record(source, parent)
        return streams

    def _row(
        self, x: np.ndarray, position: int, state: ToyState, visible: Any, before: Recurrent | None
    ) -> tuple[list[np.ndarray], Recurrent | None, np.ndarray]:
        """One token through both blocks; its attention row is appended to the state."""
        stream = [x]
        h = _norm(x) + _where(position, len(x))
        state.keys.append(self._w["k"] @ h)
        state.values.append(self._w["v"] @ h)
        seen, asked = [*visible, len(state.keys) - 1], self._w["q"] @ h
        weight = _softmax(np.array([state.keys[i] @ asked for i in seen]) / np.sqrt(len(x)))
        x = x + self._w["o"] @ sum(w * state.values[i] for w, i in zip(weight, seen, strict=True))
        stream.append(x)
        if not self._recurs:
            return stream, None, x
        assert before is not None
        source = _norm(x)
        after = self.advance(before, source)
        stream.append(x + self._w["go"] @ (after.state.T @ _norm(self._w["gq"] @ source)))
        return stream, after, source

    def advance(self, before: Recurrent, source: np.ndarray) -> Recurrent:
        """One token of the gated delta rule: decay, then add what the key does not retrieve yet."""
        mixed = np.tanh(sum(c * x for c, x in zip(self._conv, (*before.window, source), strict=True)))
        k, v = _norm(self._w["gk"] @ mixed), self._w["gv"] @ mixed
        k = k / np.sqrt(k @ k)
        decay, beta = _sigmoid(self._gate @ source + np.array([2.0, 0.0]))
        state = decay * before.state
        state = state + np.outer(k, beta * (v - state.T @ k))
        return Recurrent(state, (*before.window[1:], source))


def _rows_of(state: ToyState, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [count, D] of the first rows."""
    return torch.from_numpy(np.array(state.keys[:count])), torch.from_numpy(np.array(state.values[:count]))


def _ancestry(parents: Items[int], j: int) -> list[int]:
    """Rows from the root down to row ``j``, itself included."""
    path: list[int] = []
    while j >= 0:
        path.append(j)
        j = parents[j]
    return path[::-1]


def _norm(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def _where(position: int, width: int) -> np.ndarray:
    return np.sin(position / 1.7 ** np.arange(width)) * 0.5


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
