"""A model in plain torch: every operation as its formula, in any dtype, on any device.

On a CPU in float32 a row has the same bits in every batch: products and sums run over tiles of a fixed number of
rows and positions, so that no library chooses a different order of summation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from spec_kernels.model import ops, sizes
from spec_kernels.model.batch import ForwardBatch
from spec_kernels.model.cache import KVCache
from spec_kernels.model.drafts import PLAIN_DRAFTS, DraftLimits, DraftOptions, Drafts, draft_chains
from spec_kernels.model.executor import AUTO, ExecutorRequest, MemoryPlan
from spec_kernels.model.ops import Model, Weight
from spec_kernels.model.reference_pass import Pass
from spec_kernels.model.rotary import cos_and_sin
from spec_kernels.model.source import Shape, TensorSource
from spec_kernels.model.states import StatePool


class Reference:
    """Executes a description. Weights are floats of ``dtype`` on ``device``."""

    name, device_type, batch_device = "reference", "", ""
    settings: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    threaded = shows_cache = True
    layer_max: ClassVar[Mapping[str, int]] = {}
    exact = chooses_tokens = False

    def __init__(
        self,
        model: Model,
        source: TensorSource,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        lent: Mapping[Any, Tensor] | None = None,
        reason: str = "requested",
    ) -> None:
        """lent: weights of another executor, by ``key``, which are not read again. reason: why no other one runs.

        Raises ValueError for a model with inconsistent sizes.
        """
        sizes.check_sizes(model)
        self.model, self.source, self.dtype, self.device = model, source, dtype, torch.device(device)
        self.reason = reason
        self.weights: dict[Any, Tensor] = dict(lent or {})
        for op in model.ops:
            for weight in ops.weights_of(op):
                if weight.key not in self.weights:
                    self.weights[weight.key] = self._read(source, weight)
        self._vectors: dict[int, Tensor] = {}
        self._rotary: list[tuple[Tensor, Tensor]] = []

    @classmethod
    def problem(cls, model: Model, request: ExecutorRequest) -> str | None:
        """None: it runs every model, on CUDA if it is asked for."""
        if request.device.type == "cuda" and request.kernels == AUTO:
            return "plain torch, which runs every model, is slow there: it is chosen with kernels=reference"
        return None

    @classmethod
    def plan(cls, model: Model, tensors: Iterable[tuple[str, Shape]], request: ExecutorRequest) -> MemoryPlan:
        """Memory of a model: all weights have the dtype of the request."""
        size = request.dtype.itemsize
        row = model.row_numbers * size
        windowed = model.windowed_numbers * size
        return MemoryPlan(sum(math.prod(shape) for _, shape in tensors) * size, row, windowed=windowed)

    @classmethod
    def describe_plan(cls, request: ExecutorRequest) -> str:
        """A sentence for the user."""
        return f"reference ({request.reason})"

    @classmethod
    def load(cls, model: Model, source: TensorSource, request: ExecutorRequest) -> Reference:
        """Read the weights."""
        return cls(model, source, request.dtype, request.device, reason=request.reason)

    def describe(self) -> str:
        """A sentence for the user."""
        return f"reference ({self.reason})"

    @property
    def row_bytes(self) -> int:
        """Bytes of one position in the caches."""
        return self.model.row_numbers * self.dtype.itemsize

    @property
    def windowed_bytes(self) -> int:
        """Bytes of one position in the caches of layers with a window."""
        return self.model.windowed_numbers * self.dtype.itemsize

    def with_layers(self, model: Model, source: TensorSource) -> Reference:
        """An executor of another model that shares weights of equal names with this one."""
        return Reference(model, source, self.dtype, self.device, self.weights, self.reason)

    def cache(self, length: int) -> KVCache | None:
        """Memory of one sequence for ``length`` positions; None without attention."""
        shapes = self.model.cached
        return KVCache(shapes, length, self.dtype, self.device) if shapes else None

    def states(self) -> StatePool | None:
        """A pool of recurrent states; None without recurrent layers."""
        shape = self.model.recurrent
        return None if shape is None else StatePool(shape, self.model.recurring, self.device)

    @torch.inference_mode()
    def run(self, batch: ForwardBatch) -> dict[str, Tensor]:
        """The requested outputs, by name: taps [R, width]; after a ``Pick`` only the picked rows."""
        with batch.steady():
            return Pass(self, batch).run()

    def chooses(self, sampling: Any, tree: bool = False, reads: bool = False) -> bool:
        """Whether drafts in one call may be drawn with this sampling, may branch, and may read rows of their own."""
        return False

    def draft(self, batch: ForwardBatch, limits: Sequence[DraftLimits], options: DraftOptions = PLAIN_DRAFTS) -> Drafts:
        """Greedy chains: see ``draft_chains``."""
        return draft_chains(self, batch, limits, options)

    def _read(self, source: TensorSource, weight: Weight) -> Tensor:
        """[count, k, n], or [k, n] of a single matrix: the layout of products."""
        dtype = torch.float32 if weight.wide else self.dtype
        stored = source.load(weight.name).reshape(weight.count, -1, weight.k)
        chosen = stored if weight.rows is None else stored[:, weight.rows]
        whole = chosen.to(dtype=dtype, device=self.device).mT.contiguous()
        return whole if weight.count > 1 else whole[0]

    def cos_and_sin(self, table: int, positions: int) -> tuple[Tensor, Tensor]:
        """cos and sin [positions or more, pairs] of a table."""
        tables = self._rotary  # another thread may replace them by shorter ones
        if not tables or len(tables[0][0]) < positions:
            pairs = [cos_and_sin(of, positions) for of in self.model.tables]
            tables = self._rotary = [(cos.to(self.device), sin.to(self.device)) for cos, sin in pairs]
        return tables[table]

    def here(self, vector: Tensor) -> Tensor:
        """A small tensor of the description on this executor's device."""
        if self.device.type == "cpu":
            return vector
        if id(vector) not in self._vectors:
            self._vectors[id(vector)] = vector.to(self.device)
        return self._vectors[id(vector)]
