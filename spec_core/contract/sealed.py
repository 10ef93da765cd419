"""What a hook reads of a step: nothing that a plugin writes into it changes a text or a log-probability.

While the hook of a plugin runs, its parts, sequences and slots belong to classes of this module. A field cannot
be set, and a container or tensor that the core, the target or another plugin still reads is read as a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
from torch import Tensor

from spec_core.contract.batch import Batch, Part, Piece, TargetOutput
from spec_core.contract.encoded_prompt import EncodedPrompt
from spec_core.contract.fields import write
from spec_core.contract.matcher import Matcher
from spec_core.contract.sequence import Sequence, Slot
from spec_core.contract.step import Step
from spec_core.contract.values import Draft

BEFORE_VERDICTS = ("draft", "accept")
"""Hooks after which a rule, or the default one, still reads logits and ``Draft.probs``."""
CLASS = "__class__"


class Copied:
    """A field that a plugin reads as a copy."""

    def __init__(self, field: Any, copy: Callable[[Any, Any], Any]) -> None:
        """copy: (item, its value) -> what is read."""
        self.field, self.copy = field, copy

    def __get__(self, item: Any, cls: type) -> Any:
        return self.copy(item, self.field.__get__(item, cls))

    def __set__(self, item: Any, value: Any) -> None:
        self.field.__set__(item, value)


def copier(make: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """The copy of a field whose value alone decides: ``make(value)``; None stays None."""
    return lambda _, value: None if value is None else make(value)


def read_copies(**copies: Callable[[Any, Any], Any]) -> Callable[[type], type]:
    """A decorator: these fields of the class that is sealed are read as copies."""

    def decorate(cls: type) -> type:
        for name, copy in copies.items():
            setattr(cls, name, Copied(getattr(cls, name), copy))
        return cls

    return decorate


class Sealed:
    """Raises AttributeError where a plugin sets or deletes a field."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__mro__[2].__name__}.{name} is read-only in hooks: only the core sets it")

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)


class CopiedRows(Mapping[int, Tensor]):
    """Rows by position; every read makes a copy."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Mapping[int, Tensor]) -> None:
        self._rows = rows

    def __getitem__(self, position: int) -> Tensor:
        return self._rows[position].clone()

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


@attrs.frozen
class ReadMatcher:
    """The state of a constraint, to be read. Use ``allowed_mask`` and ``forced_tokens`` of ``spec_core.toolkit``."""

    _matcher: Matcher

    @property
    def complete(self) -> bool:
        return self._matcher.complete

    def masks(self, drafted: Any) -> np.ndarray:
        return self._matcher.masks(drafted).copy()

    def forced_tokens(self, count_max: int) -> list[int]:
        return list(self._matcher.forced_tokens(count_max))


@attrs.frozen
class ShownText:
    """The text of a sequence so far."""

    whole: str


def _copy_prompt(prompt: EncodedPrompt) -> EncodedPrompt:
    return EncodedPrompt(
        list(prompt.tokens),
        CopiedRows(prompt.embeds),
        prompt.blocks,
        None if prompt.positions is None else prompt.positions.clone(),
        tuple(CopiedRows(rows) for rows in prompt.added),
        prompt.pictured,
    )


@read_copies(tokens=copier(list), checkpoints=copier(dict), seen=copier(dict))
class SealedSlot(Sealed, Slot):
    """A slot as methods and rules read it."""

    __slots__ = ()


@read_copies(tokens=copier(list), seen=copier(dict))
class OwnedSlot(Sealed, Slot):
    """A slot in a hook of an owner of state, which writes the state of its rows."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("state", "checkpoints", "reserved"):
            write(self, name, value)
        else:
            super().__setattr__(name, value)


@read_copies(
    embeds=copier(CopiedRows),
    encoded=copier(_copy_prompt),
    matcher=copier(ReadMatcher),
    text=copier(lambda text: ShownText(text.whole)),
)
class SealedSequence(Sealed, Sequence):
    __slots__ = ()


def _own_draft(part: Part, draft: Draft | None) -> Draft | None:
    """A draft whose ``probs`` are a copy, made once in a hook."""
    if draft is None or draft.probs is None or part.copies is None:
        return draft
    if id(draft) not in part.copies:
        copy = Draft(draft.ids, draft.proposal, draft.probs.clone(), draft.parents, draft.confidence)
        part.copies[id(draft)] = copy
    return part.copies[id(draft)]


def _own_pieces(part: Part, pieces: list[Piece]) -> list[Piece]:
    return [Piece(p.source, _own_draft(part, p.draft) or p.draft, p.first, p.leaf) for p in pieces]


@read_copies(
    pending=copier(list),
    emitted=copier(list),
    masks=copier(np.ndarray.view),
    draft=_own_draft,
    pieces=_own_pieces,
    probes=copier(list),
)
class SealedPart(Sealed, Part):
    __slots__ = ()


def own_batch(step: Step) -> Batch | None:
    """The batch as the plugin whose hook runs reads it."""
    batch, copies = step.batch, step.copies
    if batch is None or copies is None:
        return batch
    if "batch" not in copies:
        tokens, positions = batch.tokens.clone(), batch.positions.clone()
        copies["batch"] = Batch(
            tokens, positions, batch.parts, CopiedRows(batch.embeds), MappingProxyType(batch.choices)
        )
    return copies["batch"]


def own_output(step: Step) -> TargetOutput | None:
    """The output of the forward for one plugin. The logits are a copy until all verdicts and log-probabilities are
    read from them; the trace is for owners of state alone.
    """
    output, copies = step.output, step.copies
    if output is None or copies is None:
        return output
    if "output" not in copies:
        logits = output.logits.clone() if step.phase in BEFORE_VERDICTS else output.logits
        hidden = {i: rows[:] for i, rows in output.hidden.items()}
        final = None if output.final is None else output.final[:]
        trace = output.trace if step.plugin in step.owners else None
        copies["output"] = TargetOutput(logits, hidden, final, trace, output.choices)
    return copies["output"]


def seal_step(step: Step) -> None:
    """Seal a step for the hook of ``step.plugin``."""
    slot_class = OwnedSlot if step.plugin in step.owners else SealedSlot
    drafts_are_read = step.phase in BEFORE_VERDICTS
    for part in step.parts:
        seq = part.seq
        part.copies = {} if drafts_are_read else None
        write(seq.slot, CLASS, slot_class)
        write(seq, CLASS, SealedSequence)
        write(part, CLASS, SealedPart)
    for seq in step.absent:
        write(seq.slot, CLASS, SealedSlot)
        write(seq, CLASS, SealedSequence)
    step.copies = {}


def unseal_step(step: Step) -> None:
    """End what ``seal_step`` began."""
    step.copies = None
    for part in step.parts:
        write(part, CLASS, Part)
        write(part.seq, CLASS, Sequence)
        write(part.seq.slot, CLASS, Slot)
    for seq in step.absent:
        write(seq, CLASS, Sequence)
        write(seq.slot, CLASS, Slot)
