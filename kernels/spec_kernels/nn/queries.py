"""Query rows in the shape that batched products want, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spec_kernels.nn.linear import LEAST_ROWS

if TYPE_CHECKING:
    from spec_kernels.nn.heads import HeadScratch


class Queries:
    """Views of n rows of a scratch: ``query`` [K, queries, Dk] goes in, ``result`` [K, queries, Dv] comes out.

    queries is n · G, rows first; a query alone is computed twice, for it would be summed in another order.
    """

    def __init__(self, scratch: HeadScratch, first: int, n: int) -> None:
        s = scratch.shape
        self.n, self.group = n, s.group
        self.count = max(n * s.group, LEAST_ROWS)
        self._lay_query(scratch, slice(first, first + n))
        self._lay_result(scratch, slice(first, first + n))

    def _lay_query(self, scratch: HeadScratch, at: slice) -> None:
        """A view of the rows where one has that shape; else a buffer that ``gather`` fills."""
        s = scratch.shape
        source = scratch.q[at].unflatten(1, (s.kv_heads, s.group)).transpose(0, 1)  # [K, n, G, Dk]
        self._source = None
        if self.n == 1 and s.group > 1 and scratch.qk is scratch.raw:
            self.query = source[:, 0]
            return
        copies = self.count // (self.n * s.group)
        self._source = source.expand(-1, copies, -1, -1) if copies > 1 else source
        self._place = scratch.qkv.new_empty(self._source.shape)
        self.query = self._place.view(s.kv_heads, self.count, s.key_dim)

    def _lay_result(self, scratch: HeadScratch, at: slice) -> None:
        """A view of the output rows where one has that shape; else a buffer that ``scatter`` empties."""
        s, out = scratch.shape, scratch.out[at]
        self._out = None
        if self.count == self.n * s.group and 1 in (self.n, s.kv_heads):
            self.result = out.view(s.kv_heads, self.count, s.value_dim)
            return
        self.result = out.new_empty(s.kv_heads, self.count, s.value_dim)
        self._out = out.unflatten(1, (s.kv_heads, s.group, -1)).permute(1, 0, 2, 3)  # [K, n, G, Dv]
        self._computed = self.result[:, : self.n * s.group].unflatten(1, (self.n, s.group))

    def gather(self) -> None:
        """Fill ``query`` from the rows."""
        if self._source is not None:
            self._place.copy_(self._source)

    def scatter(self) -> None:
        """Bring ``result`` to the output rows."""
        if self._out is not None:
            self._out.copy_(self._computed)
