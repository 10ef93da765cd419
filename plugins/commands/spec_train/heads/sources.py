"""Hidden states of the target that a head reads."""

from __future__ import annotations

from collections.abc import Sequence

from spec_core.errors import UsageError
from spec_train.options import DFlashOptions, NewHeadOptions


def choose_sources(options: NewHeadOptions, layers: int) -> tuple[int, ...]:
    """Hidden states by number, 0 to ``layers``: the option's, else the published heads'. For eagle3
    (SafeAILab) a low, a middle and a high one; for dflash (z-lab) one for each layer of the head, evenly spread.

    layers: of the target. Raises UsageError for numbers that the target does not have.
    """
    if options.sources is not None:
        return _check(options.sources, layers)
    if not isinstance(options, DFlashOptions):
        return tuple(min(layers, max(0, i)) for i in (2, layers // 2, layers - 3))
    count = options.layers
    if count == 1:
        return (layers // 2 + 1,)
    return tuple(min(layers, max(1, 1 + round(1 + i * (layers - 4) / (count - 1)))) for i in range(count))


def _check(sources: Sequence[int], layers: int) -> tuple[int, ...]:
    if not sources or not all(0 <= i <= layers for i in sources):
        raise UsageError(
            f"--sources {','.join(map(str, sources))}: the target has hidden states 0 to {layers}",
            hint="pass the numbers of blocks whose input is read",
        )
    return tuple(sources)
