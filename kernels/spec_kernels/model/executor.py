"""What an executor is: before weights are read (``ExecutorKind``), and with them (``Executor``).

``spec_kernels.executors`` lists the kinds and chooses one. A class with all names of both protocols is an executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from spec_kernels.model.batch import ForwardBatch
from spec_kernels.model.drafts import PLAIN_DRAFTS, DraftLimits, DraftOptions, Drafts
from spec_kernels.model.kept_rows import STEP
from spec_kernels.model.ops import Model
from spec_kernels.model.source import Shape, TensorSource

AUTO = "auto"
"""The value of every setting that leaves the choice to this package."""


@dataclass(frozen=True)
class ExecutorRequest:
    """Requirements of an executor."""

    device: torch.device
    dtype: torch.dtype
    kernels: str = AUTO
    """Name of a kind."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Values of the settings of kinds, by name. A missing one is ``AUTO``."""
    positions: int = 0
    """Max positions of a sequence and its drafts; 0: not known."""
    widen: bool = False
    """Whether float32 may replace a narrower dtype."""
    release: Callable[[Tensor], None] | None = None
    """Called with stored rows that were copied and are not read again."""
    reason: str = ""
    """Why this kind was chosen, where it is not the best one of the device."""

    @property
    def dtype_name(self) -> str:
        """The dtype without its module."""
        return str(self.dtype).removeprefix("torch.")

    def setting(self, name: str) -> str:
        """The value of a setting."""
        return self.settings.get(name, AUTO)


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of all weights, of one position in the caches, and of the largest step (None: not limited).

    windowed: of one position in layers with a window, where these give rows back (``KeptRows``); 0: all rows are kept.
    page: positions of a piece of their memory.
    """

    weights: int
    row: int
    step: int | None = None
    windowed: int = 0
    page: int = STEP


class LayerExecutor(Protocol):
    """What further layers, such as a draft head, run on. source: the tensors of the target."""

    @property
    def source(self) -> TensorSource: ...
    def with_layers(self, model: Model, source: TensorSource) -> Executor:
        """An executor of another model that shares weights of equal names with this one."""


class Executor(Protocol):
    """A model with its weights."""

    model: Model
    source: TensorSource

    @property
    def row_bytes(self) -> int:
        """Bytes of one position in the caches."""

    @property
    def exact(self) -> bool:
        """Whether a row has equal bits in every batch by construction."""

    @property
    def chooses_tokens(self) -> bool:
        """Whether a forward makes the choices of its batch."""

    def with_layers(self, model: Model, source: TensorSource) -> Executor:
        """An executor of another model that shares weights of equal names with this one."""

    def cache(self, length: int) -> Any:
        """Memory of one sequence for ``length`` positions; None without attention."""

    def states(self) -> Any:
        """A pool of recurrent states; None without recurrent layers."""

    def run(self, batch: ForwardBatch) -> dict[str, Tensor]:
        """The requested outputs, by name."""

    def chooses(self, sampling: Any, tree: bool = False, reads: bool = False) -> bool:
        """Whether drafts in one call may be drawn with this sampling, may branch, and may read rows of their own."""

    def draft(self, batch: ForwardBatch, limits: Sequence[DraftLimits], options: DraftOptions = PLAIN_DRAFTS) -> Drafts:
        """A draft after the last row of every sequence, see ``draft_chains``."""

    def describe(self) -> str:
        """A sentence for the user."""


class WindowedExecutor(Executor, Protocol):
    """An executor whose caches are ``KeptRows``."""

    @property
    def windowed_bytes(self) -> int:
        """Bytes of one position in the caches of layers with a window."""


class ExecutorKind(Protocol):
    """An executor before weights are read."""

    @property
    def name(self) -> str:
        """The value of the setting ``kernels``."""

    @property
    def device_type(self) -> str:
        """The type of the devices that it is made for; empty: any."""

    @property
    def settings(self) -> Mapping[str, tuple[str, ...]]:
        """The values of the settings that it reads."""

    @property
    def batch_device(self) -> str:
        """The device of tokens and positions of a batch; empty: the model's."""

    @property
    def threaded(self) -> bool:
        """Whether torch's number of threads changes its speed."""

    @property
    def shows_cache(self) -> bool:
        """Whether other models can read its caches."""

    @property
    def layer_max(self) -> Mapping[str, int]:
        """Limits of draft layers, see ``TargetInfo.layer_max``."""

    def problem(self, model: Model, request: ExecutorRequest) -> str | None:
        """Why it cannot run a model; None if it can. Reads no values of weights."""

    def plan(self, model: Model, tensors: Iterable[tuple[str, Shape]], request: ExecutorRequest) -> MemoryPlan:
        """Memory of a model. tensors: stored type and shape of each."""

    def describe_plan(self, request: ExecutorRequest) -> str:
        """A sentence for the user, as far as it is known without weights."""

    def load(self, model: Model, source: TensorSource, request: ExecutorRequest) -> Executor:
        """Read the weights."""


def describe_conversions(counts: Mapping[str, int], form: str) -> str:
    """Conversions of weights, as ``Q3_K as F32`` with their counts, in words; empty if there are none."""
    words = ", ".join(f"{count} of {both}" for both, count in sorted(counts.items()))
    return f"; weights without a {form} form: {words}" if words else ""
