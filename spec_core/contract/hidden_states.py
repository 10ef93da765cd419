"""Hidden states of a forward, by the boundary between blocks."""

from __future__ import annotations

from torch import Tensor

from spec_core.errors import NotRequested


class HiddenStates(dict[int, Tensor]):
    """{i: hidden states} that a plugin requested; any other i raises NotRequested, which says how to request it."""

    def __missing__(self, i: int) -> Tensor:
        there = ", ".join(map(str, sorted(self))) or "none"
        raise NotRequested(
            f"hidden[{i}] was not requested (got {there}): compat must return Compat(needs=Needs(hidden={{{i}}}))"
        )


def requested_final(final: Tensor | None) -> Tensor:
    """The states after the final norm. Raises NotRequested where no plugin asked for them, and says how to."""
    if final is None:
        raise NotRequested("final was not requested: compat must return Compat(needs=Needs(final=True))")
    return final
