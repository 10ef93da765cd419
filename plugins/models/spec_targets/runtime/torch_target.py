"""The Target for GGUF files and Hugging Face directories: a model, its memory, and its rollback."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import accumulate
from typing import Any, cast

import attrs
import torch
from spec_kernels.model import batch as rows_of
from spec_kernels.model.batch import Choices, SequenceRows, numbers
from spec_kernels.model.drafts import DraftLimits, DraftOptions, Drafts
from spec_kernels.model.executor import AUTO, Executor, WindowedExecutor
from spec_kernels.model.kept_rows import Horizon
from spec_kernels.model.ops import Model
from spec_kernels.model.overlay import overlay_weights
from spec_kernels.model.part import part_of
from spec_kernels.model.recurrence import Lines, Recurrence, RecurrentSlot
from spec_kernels.model.source import TensorSource
from spec_kernels.model.states import StatePlaces
from torch import Tensor

from spec_core import (
    Batch,
    Compat,
    Needs,
    Part,
    RollbackStep,
    Rows,
    Sampling,
    Sequence,
    Slot,
    TargetInfo,
    TargetOutput,
    hookimpl,
)
from spec_core.errors import SequencesFailed
from spec_core.toolkit import CacheReader, ImageEncoder, LayerExecutor, NextTokenLayer, Overlay, TrainingTexts
from spec_targets.architectures.config import Config
from spec_targets.formats.collector import without_collection
from spec_targets.formats.stamps import FileStamps
from spec_targets.pictures.picture_rows import added_rows, positions_of, shift_of
from spec_targets.runtime import slot_memory
from spec_targets.runtime.failures import device_failures, no_memory
from spec_targets.runtime.overlay import OverlayTensors, overlay_inputs, weights_of
from spec_targets.runtime.part_of_target import PartOfTarget, PartRows
from spec_targets.runtime.plan import ModelPlan
from spec_targets.runtime.probe import explain_inexact
from spec_targets.runtime.slot_memory import (
    REWIND,
    SlotMemory,
    begin_rows,
    draft_parents,
    hold_drafts,
    logit_rows,
    reserve_rows,
    reserved_rows,
    windowed_rows,
)
from spec_targets.runtime.weights import Weights

FIRST_ROWS = 64
"""Rows that a new slot's cache has beyond the prompt's."""


@attrs.define(eq=False)
class TorchTarget:
    """A decoder of attention and recurrent layers. ``executor`` is None until ``with_weights``; draft layers run on
    ``layer_executor``, which is the same. threads: requested, 0 measures. cache_reader: None where executors read no
    other model's cache. image_encoder: None for models that read text alone. notes: facts about the file for the user.

    every, checkpoints_max: a hybrid keeps up to ``checkpoints_max`` (at least 3) checkpoints of its recurrent state: at
    the last two positions of a prompt, where the next turn may differ from this one, every half of ``every`` tokens,
    and at the last token. A slot's prefix can be reused from them, and at most ``every`` of its tokens are evaluated
    again, also of a last draft that was kept but not evaluated into the state.
    rewind: positions before its end at which a text with windows can go on, and before the end of its prompt.
    """

    info: TargetInfo
    tokenizer: Any
    config: Config
    weights: Weights
    plan: ModelPlan
    threads: int = 0
    next_token_layer: NextTokenLayer | None = None
    training_texts: TrainingTexts | None = None
    cache_reader: CacheReader | None = None
    image_encoder: ImageEncoder | None = None
    notes: tuple[str, ...] = ()
    stamps: FileStamps | None = None
    every: int = 256
    checkpoints_max: int = 8
    rewind: int = REWIND
    executor: Executor | None = None
    layer_executor: LayerExecutor | None = None
    pool: StatePlaces | None = attrs.field(init=False, default=None)
    state_rows: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        if self.executor is not None:
            self.pool = self.executor.states()
            self.state_rows = slot_memory.state_rows(self.info, 1 + self.checkpoints_max)

    def with_weights(self, weights: bool | str = AUTO, threads: int | None = None) -> TorchTarget | None:
        """The target with its weights, None if its files were changed since. See ``spec_core.commands.describe``."""
        if self.stamps is not None and self.stamps.changed:
            return None
        return self.read_weights(weights, threads)

    @without_collection()
    def read_weights(self, weights: bool | str = AUTO, threads: int | None = None) -> TorchTarget:
        """The target with its weights, from the files that were opened for its metadata."""
        plan = self.plan if isinstance(weights, bool) or weights == AUTO else self.plan.with_storage(weights)
        executor, thread_words = plan.load(self.threads if threads is None else threads)
        request = plan.request
        why = explain_inexact(executor, request.device, request.dtype, self.config.context)
        windowed = cast(WindowedExecutor, executor).windowed_bytes if plan.memory.windowed else 0
        info = attrs.evolve(
            self.info,
            kernels=executor.describe(),
            threads=thread_words,
            row_bytes=executor.row_bytes,
            chooses=executor.chooses_tokens,
            windowed=windowed_rows(plan.model, plan.memory, windowed),
            exact="rows" if why is None else "no",
            exact_why=why or "",
        )
        return attrs.evolve(self, info=info, plan=plan, executor=executor, layer_executor=executor)

    # the Target protocol

    def forward(self, batch: Batch, needs: Needs) -> TargetOutput:
        begin_rows(batch.parts)
        recurrence = None if self.pool is None else self._recurrence(batch, needs)
        logits = logit_rows(batch.parts, needs)
        choices = Choices(tuple(batch.choices.values())) if batch.choices else None
        asked = rows_of.ForwardBatch(
            tokens=batch.tokens,
            positions=positions_of(batch, self.config.axes) if self.config.axes else batch.positions,
            sequences=self._all_sequence_rows(batch.parts),
            given=batch.embeds,
            added=added_rows(batch) if self.config.added else (),
            logits=logits,
            final=None if needs.final else logits,
            taps={"logits", *(f"hidden.{i}" for i in needs.hidden), *(("final",) if needs.final else ())},
            recurrence=recurrence,
            choices=choices,
        )
        with device_failures(self.info.device):
            outputs = self.executor.run(asked)
        hold_drafts(batch.parts)
        hidden = {i: outputs[f"hidden.{i}"] for i in needs.hidden}
        trace = None if recurrence is None else recurrence.trace
        read = None if choices is None else choices.read
        return TargetOutput(outputs["logits"], hidden, outputs.get("final"), trace, read)

    def chooses(self, sampling: Sampling) -> bool:
        """Whether drafts in one call may be drawn with this sampling."""
        return self.executor.chooses(sampling)

    def draft(
        self, parts: list[tuple[Sequence, int, list[int]]], limits: list[DraftLimits], keep: bool = False
    ) -> Drafts:
        """Chains of several sequences in one call, none twice.

        parts: (sequence, start, tokens) of each: rows ``start`` and up hold ``tokens``, which the draft follows.
        limits: of each. keep: the rows [n, V] that tokens were chosen from. The slots then hold the rows of all tokens
        but the last.
        """
        batch = self._continuing(parts, [of.depth for of in limits], [start for _, start, _ in parts])
        with device_failures(self.info.device):
            return self.executor.draft(batch, limits, DraftOptions(keep=keep))

    def run_part(
        self,
        executor: Executor,
        overlay: Overlay | None,
        rows: PartRows,
        chosen: list[int],
    ) -> Tensor:
        """Logits of an executor over caches of this target. rows: see ``PartialForward``. chosen: rows of the batch."""
        batch = self._continuing(list(rows), [1] * len(rows), [seq.evaluated for seq, _, _ in rows])
        batch.logits = batch.final = chosen
        batch.inputs = overlay_inputs(overlay, batch)
        for one in batch.sequences if overlay is not None else ():
            one.mutual = overlay.both_ways
        with device_failures(self.info.device):
            return executor.run(batch)["logits"]

    def _continuing(
        self, parts: list[tuple[Sequence, int, list[int]]], more: list[int], committed: list[int]
    ) -> rows_of.ForwardBatch:
        """Rows that drafts begin with. more: room after each, in rows. committed: rows of each that stay."""
        sequences, ends = [], list(accumulate(len(tokens) for _, _, tokens in parts))
        for (seq, start, tokens), room, end, kept in zip(parts, more, ends, committed, strict=True):
            seq.slot.state.drafts = None
            cache = reserve_rows(seq.slot, start + len(tokens) + room, self._horizon(seq, kept))
            sequences.append(SequenceRows(cache, end - len(tokens), len(tokens), start))
        last_rows = [end - 1 for end in ends]
        shifts = [shift_of(seq) for seq, _, _ in parts] if self.config.axes else [0] * len(parts)
        return rows_of.ForwardBatch(
            tokens=numbers([token for _, _, tokens in parts for token in tokens], self.info.row_device),
            positions=numbers(
                [at + shift for shift, s in zip(shifts, sequences, strict=True) for at in range(s.start, s.end)],
                self.info.row_device,
            ),
            sequences=sequences,
            logits=last_rows,
            final=last_rows,
        )

    @property
    def follow_problem(self) -> str | None:
        """Why drafts cannot follow draft rows of the last forward; None if they can."""
        if self.config.recurrent:
            return "its recurrent blocks keep a state"
        if not self.info.device.startswith("cpu"):
            return f"the executor on {self.info.device} keeps no rows of drafts"
        return None

    @property
    def probe_problem(self) -> str | None:
        """Why rows that are no drafts cannot be evaluated; None if they can."""
        return None if self.info.device.startswith("cpu") else f"the executor on {self.info.device} reads drafts alone"

    @property
    def partial_problem(self) -> str | None:
        """Why no part of the blocks can run; None if it can."""
        if self.config.recurrent:
            return "its recurrent blocks keep a state"
        return None

    def partial_forward(
        self, blocks: Iterable[int], window: int = 0, overlay: Overlay | None = None, sinks: int = 0
    ) -> PartOfTarget:
        """Some blocks, with the embedding and the output, in the caches of this target's sequences."""
        if (problem := self.partial_problem) is not None:
            raise ValueError(problem)
        model: Model = self.executor.model
        source: TensorSource = self.weights
        if overlay is not None:
            model, source = overlay_weights(model, weights_of(overlay)), OverlayTensors(overlay, source)
        model = part_of(model, sorted(set(blocks)), self.info.layers, window, sinks)
        return PartOfTarget(partial(self.run_part, self.executor.with_layers(model, source), overlay))

    def overlay_problem(self, overlay: Overlay) -> str | None:
        """Why rows cannot run with these weights, from shapes alone; None if they can."""
        if (problem := self.partial_problem) is not None:
            return problem
        try:
            overlay_weights(self.plan.model, weights_of(overlay))
        except ValueError as error:
            return str(error)
        return None

    def has_tensor(self, name: str) -> bool:
        """Whether ``tensor`` gives a weight of this name, from shapes alone."""
        return self.weights.shape(self._stored_name(name)) is not None

    def _stored_name(self, name: str) -> str:
        tied = name == "output.weight" and self.weights.shape(name) is None
        return "token_embd.weight" if tied else name

    def tensor(self, name: str) -> Tensor:
        """A weight by its GGUF name, in the file's own row order."""
        if not self.has_tensor(name):
            raise KeyError(name)
        name = self._stored_name(name)
        return self.weights.load(name).to(dtype=self._dtype, device=self.info.device)

    def open(self, seq: Sequence, want: int) -> int:
        """A hybrid continues only from checkpoints of its slot, layers with a window where their rows are kept."""
        slot = seq.slot
        if slot.state is None:
            try:
                cache = self.executor.cache(min(len(seq.tokens) + FIRST_ROWS, self.info.context + 1))
            except (torch.OutOfMemoryError, MemoryError) as error:
                raise no_memory(self.info.device, error) from error
            slot.state = SlotMemory(cache, None if self.pool is None else RecurrentSlot(self.pool))
            slot.reserved = reserved_rows(self.info, cache) + self.state_rows
            return 0
        slot.state.drafts = None
        return self._begin(seq, want)

    def copy(self, seq: Sequence, source: Slot, want: int) -> int:
        """Attention rows are copied; checkpoints never change, so they are shared."""
        held: SlotMemory = source.state
        cache = None if held.cache is None else held.cache.copy()
        seq.slot.state = SlotMemory(cache, None if self.pool is None else RecurrentSlot(self.pool))
        seq.slot.reserved = reserved_rows(self.info, cache) + self.state_rows
        seq.slot.checkpoints = {p: c for p, c in source.checkpoints.items() if p <= want}
        return self._begin(seq, want)

    def _begin(self, seq: Sequence, want: int) -> int:
        """The last position up to ``want`` at which the slot can go on; its recurrent state is restored."""
        slot = seq.slot
        if slot.state.recurrent is None:
            return slot.start_at(want)
        start = max((p for p in slot.checkpoints if p <= want and slot.start_at(p) == p), default=0)
        self.restore(seq, start)
        return start

    def close(self, seq: Sequence) -> None:
        """Close without a lock."""
        held, seq.slot.state = seq.slot.state, None
        if held is not None and held.recurrent is not None:
            held.recurrent.close()

    def checkpoint(self, seq: Sequence) -> Any:
        """(matrices, windows) of all recurrent layers, see ``StatePlaces``; None if there are none."""
        recurrent = seq.slot.state.recurrent
        return None if recurrent is None else recurrent.copy()

    def restore(self, seq: Sequence, position: int) -> None:
        """Attention rows need no restoring: the next forward overwrites them from its start on."""
        if seq.slot.state.recurrent is not None:
            seq.slot.state.recurrent.put(seq.slot.checkpoints[position] if position else None)

    # the plugin

    @hookimpl
    def compat(self) -> Compat:
        return Compat(owns={"attention"}, shares=True, notes=self.notes)

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        """A kept chain is already in place; the rows of a kept tree path are moved together."""
        for seq, verdict in step.verdicts.items():
            if verdict.path and verdict.path[-1] >= len(verdict.path) and seq.slot.state.cache is not None:
                end = step.part(seq).end
                seq.slot.state.drafts = None
                seq.slot.state.cache.compact(end, [end + i for i in verdict.path])

    # inside a forward

    @property
    def _dtype(self) -> torch.dtype:
        return getattr(torch, self.info.dtype)

    def _horizon(self, seq: Sequence, start: int) -> Horizon | None:
        """What layers with a window still need of a sequence that goes on at ``start``; None if they keep all rows."""
        horizon = Horizon(start, self.rewind, seq.prompt_len, self.info.context + 1)
        return horizon if self.plan.memory.windowed else None

    def _all_sequence_rows(self, parts: Iterable[Part]) -> list[SequenceRows]:
        """Rows of every part. Raises SequencesFailed for sequences whose caches cannot grow."""
        rows, errors = [], {}
        for part in parts:
            try:
                rows.append(self._sequence_rows(part))
            except (torch.OutOfMemoryError, MemoryError) as error:
                errors[part.seq] = no_memory(self.info.device, error)
        if errors:
            raise SequencesFailed(errors)
        return rows

    def _sequence_rows(self, part: Part) -> SequenceRows:
        count, held = len(part.pending) + part.branch_rows, part.held
        cache = reserve_rows(part.seq.slot, part.start + held + count, self._horizon(part.seq, part.start))
        if part.seq.slot.reserved != (rows := reserved_rows(self.info, cache) + self.state_rows):
            part.seq.slot.reserved = rows
        parents, encoded = part.branch_parents, part.seq.encoded
        mutual = encoded is not None and encoded.block_at(part.start) is not None
        return SequenceRows(cache, part.row, count, part.start + held, parents, mutual, held if parents else 0)

    def _recurrence(self, batch: Batch, needs: Needs) -> Recurrence:
        """States that rows continue, and places of new states: the one after the last pending row is the slot's own."""
        lines = Lines()
        for part in batch.parts:
            slot: RecurrentSlot = part.seq.slot.state.recurrent
            parents = draft_parents(part)
            traced = min(part.drafted, part.drafted if needs.depth is None else needs.depth)
            kept = slot.spare(traced) if needs.trace == "states" else []
            lines.add(slot.current, part.start, len(part.pending), parents, kept, traced)
        return Recurrence(self.pool, lines.lineage(), needs.trace, lines.drafts)


class RecurrentTarget(TorchTarget):
    """A target with recurrent layers, which can continue only from stored states: it learns what was committed."""

    @hookimpl
    def process(self, rows: Rows) -> None:
        """Make checkpoints."""
        for seq in rows.spans:
            self._keep(seq)

    def _keep(self, seq: Sequence) -> None:
        kept, here = seq.slot.checkpoints, seq.evaluated
        half = self.every // 2
        if seq.prompt_len - 1 <= here <= seq.prompt_len or here // half > max(kept, default=0) // half:
            kept[here] = self.checkpoint(seq)
        stay = sorted(p for p in kept if p <= seq.prompt_len)[-2:]
        while len(kept) > self.checkpoints_max:
            del kept[min(p for p in kept if p not in stay)]
