"""Resources of a draft model: memory, and threads of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from spec_core import TargetInfo
from spec_core.toolkit import use_threads


def memory_of(info: TargetInfo, step: int) -> dict[str, int]:
    """Bytes of its weights and of a sequence, as far as its loader says, see ``Compat.memory``.

    step: max rows of a sequence in one forward.
    """
    sizes = {"weights": info.weight_bytes, "row": info.row_bytes}
    if info.row_bytes is not None and (kept := info.windowed) is not None:
        sizes["kept_row"] = info.row_bytes - kept.row_bytes
        sizes["windows"] = (kept.rows + max(step, kept.step)) * kept.row_bytes
    return {name: size for name, size in sizes.items() if size is not None}


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Set another number of threads for computations within; 0 changes nothing."""
    before = torch.get_num_threads()
    if count in (0, before):
        yield
        return
    use_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
