"""Max sizes of the native program."""

from __future__ import annotations

from spec_kernels.model import ops
from spec_kernels.model.ops import Model

MAX_HEAD, MAX_TAPS, MAX_CHOSEN, MAX_CLUSTERS = 576, 16, 64, 256
"""Max width of an attention head and of a convolution, and max experts and clusters of a row."""
MAX_STREAMS, MAX_POOL = 16, 64
"""Max residual streams, and max positions of a pool of an index."""
MAX_INPUTS = 32
"""Max inputs of a model, and max joined values."""


def misfit(model: Model) -> str | None:
    """Why a model cannot run natively; None if it can."""
    widest = max((op.shape.dim for op in model.ops if isinstance(op, ops.Attend | ops.Store)), default=0)
    if widest > MAX_HEAD:
        return f"heads of {widest}, at most {MAX_HEAD} run natively"
    if model.recurrent is not None and model.recurrent.kernel > MAX_TAPS:
        return f"a convolution of {model.recurrent.kernel}, at most {MAX_TAPS} runs natively"
    chosen = [op.experts for op in model.ops if isinstance(op, ops.Mixture)]
    if max((max(experts.used, experts.groups) for experts in chosen), default=0) > MAX_CHOSEN:
        return f"more than {MAX_CHOSEN} experts of a row, or groups of them"
    try:
        check_limits(model)
    except ValueError as error:
        return str(error)
    return None


def check_limits(model: Model) -> None:
    """Raise ValueError for an operation that exceeds a limit of the native program."""
    need_within("the inputs of the model", sum(isinstance(op, ops.Input) for op in model.ops), MAX_INPUTS)
    for op in model.ops:
        match op:
            case ops.Attend() | ops.Store():
                need_within("the width of an attention head", op.shape.dim, MAX_HEAD)
            case ops.Delta() | ops.Scan() | ops.ShortConv():
                need_within("the width of a convolution", op.shape.kernel, MAX_TAPS)
            case ops.Mixture():
                need_within("the experts of a row", op.experts.used, MAX_CHOSEN)
                need_within("the groups of experts", op.experts.groups, MAX_CHOSEN)
            case ops.Clusters():
                need_within("the clusters of a row", op.used, MAX_CLUSTERS)
            case ops.StreamWeights() | ops.StreamSum() | ops.StreamMix():
                need_within(
                    "the streams", op.shape.count if isinstance(op, ops.StreamWeights) else op.count, MAX_STREAMS
                )
            case ops.SparseIndex():
                need_within("the positions of a pool", op.shape.pool, MAX_POOL)
            case ops.Concat():
                need_within("the values that are joined", len(op.xs), MAX_INPUTS)


def need_within(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise ValueError(f"{what}: {count} were found, native kernels run at most {limit}")
