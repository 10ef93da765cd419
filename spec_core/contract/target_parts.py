"""Optional parts of a target, beyond the protocol: attributes that a loader sets, each read by a function here.

A target without a part has no attribute of that name, or None. Every layer executor runs the operations of
``spec_kernels.model.ops``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs
from torch import Tensor

from spec_core.contract.encoded_prompt import EncodedPrompt
from spec_core.contract.overlay import Overlay
from spec_core.contract.picture_budget import PictureBudget

Messages = list[dict[str, str]]


class LayerExecutor(Protocol):
    """``target.layer_executor``: runs further layers, such as a draft head, with the target's own weights.

    Without one, draft layers run apart from the target, with the matrices that ``tensor`` gives.

    source: the target's tensors, a ``spec_kernels.model.source.TensorSource``.
    """

    source: Any

    def with_layers(self, model: Any, source: Any) -> Any:
        """An executor of a ``spec_kernels.model.ops.Model``; weights of equal names are shared with the target."""


class NextTokenLayer(Protocol):
    """``target.next_token_layer``: the layer after the trunk that predicts one token further.

    problem: why it cannot be used, or None. names: of its tensors. source: these tensors, a ``TensorSource``.
    heads: dimensions of an attention head, and how many of them rotate. deeper: the layer that reads this one's states
    and predicts one token further still; None without one.

    A layer whose last norm engines read in two ways has the attribute ``last_norms`` as well, see
    ``last_norm_readings``, and ``with_last_norm(norm)``: the layer, and the layers after it, with one of them.
    """

    @property
    def problem(self) -> str | None: ...
    @property
    def names(self) -> frozenset[str]: ...
    @property
    def source(self) -> Any: ...
    @property
    def heads(self) -> tuple[int, int]: ...
    @property
    def deeper(self) -> NextTokenLayer | None: ...

    def operations(self, source: Any) -> Iterable[Any]:
        """Operations, from tensors of the layer and of a trunk: input ``hidden``, taps ``final`` and ``logits``."""

    def rotation(self) -> tuple[Tensor, float]:
        """Radians per position of every rotated pair, float32 [pairs], and the factor of cos and sin."""


@attrs.frozen
class UnreadableLayer:
    """A layer that exists and cannot be used. problem: why."""

    problem: str
    names: frozenset[str] = frozenset()
    source: Any = None
    heads: tuple[int, int] = (0, 0)
    deeper: NextTokenLayer | None = None

    def operations(self, source: Any) -> Iterable[Any]:
        """Unknown operations. Raises NotImplementedError."""
        raise NotImplementedError(self.problem)

    def rotation(self) -> tuple[Tensor, float]:
        """Unknown rotation. Raises NotImplementedError."""
        raise NotImplementedError(self.problem)


class CachedHeads(Protocol):
    """Attention heads whose keys and values are in a cache: ``kv_heads`` of width ``dim``; a query sees ``window``
    rows, 0: all."""

    @property
    def kv_heads(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def window(self) -> int: ...


class CachedRows(Protocol):
    """Keys and values of the first ``count`` rows of a sequence, for reading only, until its next forward.

    memory: what a layer executor takes as the ``cache`` of a sequence, for models whose ``borrowed`` are the reader's
    ``shapes``: their attention reads the rows in place.
    """

    @property
    def memory(self) -> Any: ...
    @property
    def count(self) -> int: ...

    def read(self, block: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """Keys and values [K, count - start, D] that a block of the target attends to, of the rows from ``start`` on;
        keys as rotated, floats. Raises ValueError for rows that a block with a window has given back."""


class CacheReader(Protocol):
    """``target.cache_reader``: the target's keys and values, for drafters that attend to them.

    shapes: of every layer of the cache; ``spec_kernels.model.shapes.HeadShape`` where there is a layer executor.
    """

    @property
    def shapes(self) -> Sequence[CachedHeads]: ...

    def heads(self, block: int) -> CachedHeads | None:
        """The heads of attention in a block of the target; None for a block without attention."""

    def layer(self, block: int) -> int:
        """The layer of the cache that a block with attention reads; several blocks may read one."""

    def rows(self, seq: Any, count: int) -> CachedRows:
        """The first ``count`` rows of a sequence, which have been evaluated."""


class PartialForward(Protocol):
    """Some blocks of a target, with its embedding and output, which read and extend the cache of its sequences."""

    def forward(self, rows: Sequence[tuple[Any, int, list[int]]]) -> Tensor:
        """Logits [n, V] after the last token of each of n sequences, valid until the next forward.

        rows: (sequence, start, tokens), with start at or after ``seq.evaluated``: the keys and values of these tokens
        take the places after it in the blocks that run, and are void after the target's next forward. Rows before
        ``seq.evaluated`` are read and stay as they are. A sequence of the run may have them only in ``draft``.
        Raises ValueError for a start before ``seq.evaluated``.
        """

    def forward_rows(self, rows: Sequence[tuple[Any, int, list[int]]], first: int = 0) -> list[Tensor]:
        """Logits [rows, V] of each sequence, of its rows from number ``first`` on; otherwise as ``forward``.

        A row predicts what its weights were trained for: the token after it, or its own.
        """


class ImageEncoder(Protocol):
    """``target.image_encoder``: reads prompts with pictures. Several threads may call it."""

    def load(self) -> None:
        """Read what is needed for the first picture now. Raises UsageError where a package is missing, LoadError."""

    def memory(self, pixels: int) -> int:
        """Bytes that it may take, at most, with one prompt of this number of pixels at a time: from metadata alone."""

    def encode_prompt(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        pictures: Sequence[Any],
        budget: PictureBudget | None = None,
        /,
        **keywords: Any,
    ) -> EncodedPrompt:
        """Token ids and rows of a text, or of messages with the model's chat template.

        pictures: in the order of their places, as a user gives them: at least paths, bytes of files, and arrays
        [height, width, 3] of uint8. A part ``{"type": "image"}`` of a message is a place; in a text it is the model's
        own word, and a text without one begins with its pictures. budget: what the pictures may take, None is no limit.
        keywords: of the chat template.
        Raises UsageError for a picture that cannot be read, if there are more or fewer than places, and if the budget
        does not suffice.
        """


class TrainingTexts(Protocol):
    """``target.training_texts``: texts that belong to a model, for ``spec train``."""

    def texts(self) -> list[str]:
        """Texts to learn from."""

    def prompts(self, count: int) -> Sequence[str | Messages]:
        """Prompts that the model answers first, at most ``count``."""


def layer_executor(target: Any) -> LayerExecutor | None:
    """The layer executor of a target; None without one, and where no weights were read."""
    return getattr(target, "layer_executor", None)


def next_token_layer(target: Any) -> NextTokenLayer | None:
    """The layer of a target that predicts one token further; None without one."""
    return getattr(target, "next_token_layer", None)


def next_token_layers(target: Any) -> tuple[NextTokenLayer, ...]:
    """The layers of a target that predict further: the first one token, each of the others one more."""
    layers, layer = [], next_token_layer(target)
    while layer is not None:
        layers.append(layer)
        layer = layer.deeper
    return tuple(layers)


def last_norm_readings(layer: NextTokenLayer) -> tuple[str, ...]:
    """The readings of a layer's last norm in public engines, ``rms`` or ``layer``, that of the file's writer first."""
    readings: tuple[str, ...] = getattr(layer, "last_norms", ("rms",))
    return readings


def has_tensor(target: Any, name: str) -> bool:
    """Whether a target has a weight of this name, from metadata; True where it cannot say."""
    return bool(target.has_tensor(name)) if hasattr(target, "has_tensor") else True


def follow_problem(target: Any) -> str | None:
    """Why a target cannot evaluate drafts that follow draft rows of its last forward; from metadata alone, None if it
    can. A target that can has ``follow_problem``, which is None, and evaluates parts with ``held``.
    """
    if not hasattr(target, "follow_problem"):
        return "it keeps no rows of drafts for another forward"
    problem: str | None = target.follow_problem
    return problem


def probe_problem(target: Any) -> str | None:
    """Why a target cannot evaluate rows that are no drafts, from metadata alone; None if it can. A target that can has
    ``probe_problem``, which is None, and reads ``part.branch_rows`` and ``part.branch_parents``.
    """
    if not hasattr(target, "probe_problem"):
        return "it evaluates committed tokens and drafts alone"
    problem: str | None = target.probe_problem
    return problem


def partial_problem(target: Any) -> str | None:
    """Why rows cannot run through a part of a target's blocks, from metadata alone; None if they can."""
    if not hasattr(target, "partial_problem"):
        return "it does not run parts of its model"
    problem: str | None = target.partial_problem
    return problem


def partial_forward(
    target: Any, blocks: Iterable[int], window: int = 0, overlay: Overlay | None = None, sinks: int = 0
) -> PartialForward:
    """The blocks of a target with these numbers, ascending. window: rows that attention sees at most; 0: as in each.

    overlay: other weights of their rows. sinks: first rows of the sequence that attention sees as well as its window,
    all at their own positions, in blocks without a window of their own; a block whose own window is not larger keeps
    its own. Raises ValueError for blocks that are not there, where keys of a block that is left out would be read, for
    an overlay that does not fit, and for sinks without a window.
    """
    if window < 0 or sinks < 0 or (sinks and not window):
        raise ValueError(f"window={window} and sinks={sinks}: both are 0 or more, and sinks need a window")
    more: dict[str, Any] = {} if overlay is None else {"overlay": overlay}
    more |= {"sinks": sinks} if sinks else {}
    part: PartialForward = target.partial_forward(blocks, window, **more)
    return part


def overlay_problem(target: Any, overlay: Overlay) -> str | None:
    """Why rows of a part of a target cannot run with other weights, from metadata alone; None if they can."""
    if (problem := partial_problem(target)) is not None:
        return problem
    if not hasattr(target, "overlay_problem"):
        return "its rows have no weights of their own"
    problem = target.overlay_problem(overlay)
    return problem


def cache_reader(target: Any) -> CacheReader | None:
    """The reader of a target's keys and values; None for a target that shows none."""
    return getattr(target, "cache_reader", None)


def image_encoder(target: Any) -> ImageEncoder | None:
    """The reader of prompts with pictures; None for a target that reads text alone."""
    return getattr(target, "image_encoder", None)


def training_texts(target: Any) -> TrainingTexts | None:
    """The texts that belong to a target; None without any."""
    return getattr(target, "training_texts", None)
