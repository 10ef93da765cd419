"""The options of a training run, as the command line passes them."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import attrs

from spec_core.errors import UsageError

Kind = Literal["eagle3", "dflash", "dspark"]


class FromFlags:
    """Made from the flags of a command, by the names of the fields."""

    @classmethod
    def of(cls, flags: Mapping[str, Any]) -> Self:
        return cls(**{name: flags[name] for name in names(cls)})


def names(*classes: type) -> list[str]:
    """Names of the fields of attrs classes."""
    return [field.name for cls in classes for field in attrs.fields(cls)]


@attrs.frozen
class DataOptions(FromFlags):
    """Options of the data for training and evaluation.

    data: a JSONL file; None: the texts or prompts of the target. generate: prompts that the target answers first; None:
    the default of the target. answer: max tokens of an answer. temperature: of the answers; one is drawn for each.
    held_out: max prompts of the evaluation.
    """

    data: Path | None
    generate: int | None
    answer: int
    temperature: tuple[float, ...]
    held_out: int


@attrs.frozen
class ScheduleOptions(FromFlags):
    """minutes or steps: how long the training lasts. batch: texts of a step. length: max tokens of a text. lr: learning
    rate; None: by the width of the head."""

    minutes: float | None
    steps: int | None
    batch: int
    length: int
    lr: float | None
    seed: int


@attrs.frozen
class OutputOptions(FromFlags):
    """out: path of the head. stored: type of its matrices. layout: file format. log: file of the losses, if wanted."""

    out: Path
    stored: str
    layout: str
    log: Path | None


@attrs.frozen
class HeadOptions(FromFlags):
    """first: a head whose weights are the initial ones."""

    kind: ClassVar[Kind]

    first: Path | None


@attrs.frozen
class NewHeadOptions(HeadOptions):
    """Options of a head whose weights are all trained.

    sources: hidden states that are read; None: the default of the kind. heads: attention heads. ff: width of the
    feed-forward layer. draft_vocab: number of draftable tokens.
    """

    sources: tuple[int, ...] | None
    heads: int | None
    ff: int | None
    draft_vocab: int | None


@attrs.frozen
class Eagle3Options(NewHeadOptions):
    """depth: number of drafted tokens that training unrolls. norm_before_residual: see ``heads.shape.Shape``."""

    kind: ClassVar[Kind] = "eagle3"

    depth: int
    norm_before_residual: bool


@attrs.frozen
class DFlashOptions(NewHeadOptions):
    """Options of a DFlash head. block: tokens of a block, with the known one first. mask: id of the token that stands
    for an unknown one; None: a token that does not occur in the data."""

    kind: ClassVar[Kind] = "dflash"

    layers: int
    block: int
    mask: int | None


@attrs.frozen
class DSparkOptions(HeadOptions):
    """Options of a DSpark head. base: location of the DFlash head that it extends; None: the target's own. rank: of its
    Markov matrices."""

    kind: ClassVar[Kind] = "dspark"

    base: str | None
    rank: int


@attrs.frozen
class TrainOptions:
    data: DataOptions
    schedule: ScheduleOptions
    output: OutputOptions
    head: NewHeadOptions | DSparkOptions


def check_layout(layout: str) -> None:
    """Raise UsageError for a layout whose package is not installed."""
    if layout == "gguf" and importlib.util.find_spec("gguf") is None:
        raise UsageError(
            "--format gguf needs the package gguf, which is not installed",
            hint="pip install 'spec-core[train]', or pass another --format",
        )
