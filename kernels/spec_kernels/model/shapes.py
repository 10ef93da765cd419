"""Shapes of the layers of a description."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class HeadShape:
    """H query heads in K groups, each of width ``dim``; its first ``rotary_dim`` dimensions rotate.

    scale: factor of the scores. window: max positions that a query attends to, its own included; 0 means all.
    lead: first positions, which a query attends to before its window, too; 0 means none.
    cap: scores become cap · tanh(score / cap); 0 means that they stay. table: which of the model's rotary tables.
    latent: the last numbers of a key that are its value, too, which is then not stored; 0 means that values are apart.
    """

    heads: int
    kv_heads: int
    dim: int
    rotary_dim: int
    scale: float
    window: int = 0
    cap: float = 0.0
    table: int = 0
    latent: int = 0
    lead: int = 0

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads

    @property
    def q_width(self) -> int:
        return self.heads * self.dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.dim

    @property
    def value_dim(self) -> int:
        """Width of a value."""
        return self.latent or self.dim

    @property
    def out_width(self) -> int:
        """Width of what attention returns."""
        return self.heads * self.value_dim

    @property
    def cached_numbers(self) -> int:
        """Numbers of one position in the cache."""
        return self.kv_width * (1 if self.latent else 2)


@dataclass(frozen=True)
class LatentShape:
    """Latent attention (MLA; DeepSeek-V2, 2405.04434): a position's keys and values of all heads follow from a vector
    of ``rank`` numbers, and from ``shared`` numbers that the keys of all heads have in common; only these are cached.

    plain: numbers of a head's key that follow from the vector. value: numbers of a head's value. queries: numbers of a
    vector of its own from which the queries of all heads follow, 0: they follow from the stream.
    """

    rank: int
    shared: int
    plain: int
    value: int
    queries: int = 0

    @property
    def key(self) -> int:
        """Width of a head's query and key."""
        return self.plain + self.shared


@dataclass(frozen=True)
class IndexShape:
    """A sparse index: ``heads`` queries of ``dim`` numbers score pools of ``pool`` neighbouring positions, and
    attention reads the ``used`` best. eps: of the norm of index keys."""

    heads: int
    dim: int
    pool: int
    used: int
    eps: float = 1e-6

    @property
    def stored(self) -> HeadShape:
        """Rows in the cache: an index key, and then the scores of its numbers within a pool."""
        return HeadShape(1, 1, 2 * self.dim, 0, 1.0, latent=self.dim)


@dataclass(frozen=True)
class StreamShape:
    """Hyper-connections: ``count`` residual streams. eps, rounds: see ``StreamWeights``."""

    count: int
    eps: float
    rounds: int

    @property
    def weights(self) -> int:
        """Numbers that a layer computes for its streams: two of each, and a square matrix."""
        return (2 + self.count) * self.count


@dataclass(frozen=True)
class Experts:
    """Choice of experts. sigmoid: by sigmoid scores with a bias, else softmax. groups: see ``route_sigmoid``."""

    count: int
    used: int
    normalise: bool = True
    scale: float = 1.0
    sigmoid: bool = False
    groups: int = 1
    groups_used: int = 1


@dataclass(frozen=True)
class DeltaShape:
    """A gated delta net layer: Hk key heads serve Hv value heads.

    by_channel: the state decays by a rate of every key dimension (KDA), else by one of the head.
    tiled: value head j is served by key head j % Hk, as GGUF files of qwen35 have them; else by j // (Hv / Hk).
    kernel: number of convolution inputs, the current one included.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    tiled: bool = False
    by_channel: bool = False

    @property
    def decays(self) -> int:
        """Rates of decay of all heads."""
        return self.value_heads * (self.key_dim if self.by_channel else 1)

    @property
    def key_width(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Channels of the convolution: q, k and v."""
        return 2 * self.key_width + self.value_width

    @property
    def matrices(self) -> tuple[int, int, int]:
        """Shape of the matrices in one layer's state."""
        return self.value_heads, self.key_dim, self.value_dim

    @property
    def state_bytes(self) -> int:
        """Bytes of one layer's state after one token: matrices and window, float32."""
        return 4 * (self.key_dim * self.value_width + (self.kernel - 1) * self.channels)

    @property
    def record_bytes(self) -> int:
        """Bytes of one layer's record of one token for replay: its convolution inputs, k, d and g, float32."""
        return 4 * (self.channels + self.key_width + self.value_width + self.decays)

    def key_of(self, device: torch.device | str = "cpu") -> Tensor:
        """int64 [Hv]: the key head of each value head."""
        heads = torch.arange(self.value_heads, device=device)
        return heads % self.key_heads if self.tiled else heads // (self.value_heads // self.key_heads)


class ScanShape(DeltaShape):
    """A Mamba-2 layer: its state is kept and replayed like that of a gated delta net, whose names it takes.

    Value heads are the heads of x; key heads are the groups of B, the keys, and C, the queries. key_dim: numbers of the
    state for each number of x.
    """


@dataclass(frozen=True)
class ConvShape:
    """A short convolution: its state is the window of its last ``kernel - 1`` inputs alone.

    kernel: number of convolution inputs, the current one included.
    """

    channels: int
    kernel: int

    @property
    def matrices(self) -> tuple[int, int, int]:
        """There are none."""
        return 0, 0, 0

    @property
    def state_bytes(self) -> int:
        """Bytes of one layer's window, float32."""
        return 4 * (self.kernel - 1) * self.channels

    @property
    def record_bytes(self) -> int:
        """Bytes of one layer's record of one token for replay: its convolution inputs, float32."""
        return 4 * self.channels


RecurrentShape = DeltaShape | ConvShape


@dataclass(frozen=True)
class BlockShape:
    """Shape that the blocks of a model share.

    interleaved: rows of q and k are stored so that neighbouring dimensions rotate together, else halves of a head.
    reads: width of the rows from which q, k and v are computed; 0 means ``width``.
    """

    width: int
    heads: HeadShape
    eps: float
    interleaved: bool = False
    reads: int = 0
