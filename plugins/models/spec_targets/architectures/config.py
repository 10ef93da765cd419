"""The sizes of a model, the same for every file format."""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs
from spec_kernels.model.latent import latent_heads
from spec_kernels.model.shapes import (
    BlockShape,
    ConvShape,
    DeltaShape,
    Experts,
    HeadShape,
    IndexShape,
    LatentShape,
    RecurrentShape,
    ScanShape,
    StreamShape,
)

from spec_core.errors import UsageError
from spec_targets.architectures.rope import Scaling

MAX_LAYERS = 1 << 12
MAX_HEAD = 1 << 10
"""Upper bounds of blocks and of the head widths of attention and gated delta nets, for planning memory."""
MAX_INDEX, MAX_POOL, MAX_STREAMS, MAX_ROUNDS = 256, 64, 16, 256
"""Upper bounds of the width of index keys, of positions of a pool, of residual streams, and of rounds in which their
weights are balanced."""


@attrs.frozen
class Config:
    """Sizes of a decoder."""

    arch: str
    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    """Width of one attention head."""
    ff: int
    """Width of a dense feed-forward layer."""
    vocab: int
    context: int
    eps: float
    rope_base: float
    rotary_dim: int
    """Dimensions of an attention head that rotate."""
    scaling: Scaling = Scaling()
    experts: Experts | None = None
    expert_ff: int = 0
    """Width of the feed-forward layer of one expert."""
    expert_latent: int = 0
    """Width of the projection that experts read, 0: they read the stream."""
    shared_ff: int = 0
    """Width of the feed-forward layer of the shared expert, 0: none."""
    dense: int = 0
    """Leading blocks without experts."""
    delta: DeltaShape | None = None
    """Shape of gated delta nets in recurrent blocks."""
    conv: ConvShape | None = None
    """Shape of short convolutions in recurrent blocks."""
    scan: ScanShape | None = None
    """Shape of Mamba-2 in recurrent blocks."""
    latent: LatentShape | None = None
    """Shape of blocks with attention, which then have one key head of ``head`` numbers, the latent's and the shared
    ones; the latter rotate."""
    inner_eps: float = 1e-6
    """Epsilon of unit lengths in gated delta nets, and of the norms of latents."""
    strength: float = 1.0
    """Strength of gated delta nets, see ``Delta``."""
    floor: float = 0.0
    """Floor of gated delta nets, see ``Delta``."""
    index: IndexShape | None = None
    """Shape of the index of positions that attention over latents reads; None: it reads all."""
    indexing: frozenset[int] = frozenset()
    """Blocks with an index of their own; others with attention read what the last one before them has chosen."""
    streams: StreamShape | None = None
    """Residual streams; None: one."""
    limits: tuple[float, ...] = ()
    """Limits of experts by block, see ``GLU``; empty: none."""
    shared_limits: tuple[float, ...] = ()
    """Limits of shared experts and dense layers by block, see ``GLU``; empty: none."""
    recurrent: frozenset[int] = frozenset()
    """Blocks that have gated delta nets, short convolutions or Mamba-2."""
    attending: frozenset[int] | None = None
    """Blocks with attention; None: all others."""
    unrotated: bool = False
    """Whether heads do not rotate."""
    nextn: int = 0
    """Blocks after the trunk that predict further ahead."""
    nextn_norms: tuple[str, ...] = ("rms",)
    """Readings of their last norm, that of the file's writer first: ``rms``, or ``layer``, which is centred."""
    scale: float = 0.0
    """Factor of scores; 0: 1 / sqrt(head)."""
    windows: tuple[int, ...] = ()
    """For each block how many positions a query attends to, 0: all; empty: all in every block."""
    local_base: float = 0.0
    """Rotary base of blocks with a window, which are not scaled; 0: as in others."""
    local_head: int = 0
    """Width of a head of blocks with a window, where all of it rotates; 0: as in others."""
    local_kv_heads: int = 0
    """Key heads of blocks with a window; 0: as in others."""
    heads_by_block: tuple[int, ...] = ()
    """Query heads, where blocks differ."""
    still: bool = False
    """Whether heads of blocks without a window do not rotate."""
    sharing: int = 0
    """Last blocks of the trunk that read keys and values of the last block of their kind, with a window or without,
    before them."""
    ffs: tuple[int, ...] = ()
    """Widths of dense feed-forward layers by block, where they differ."""
    per_layer: int = 0
    """Width of a block's own embedding of a token, 0: none."""
    axes: tuple[int, ...] = ()
    added: int = 0
    score_cap: float = 0.0
    """Bound of scores, see ``SoftCap``, 0: none."""
    logit_cap: float = 0.0
    """Bound of logits, see ``SoftCap``, 0: none."""
    embed_scale: float = 1.0
    """Factor of embeddings."""
    logit_scale: float = 1.0
    """Factor of logits."""
    residual_scale: float = 1.0
    """Factor of what a branch adds to the stream."""
    multipliers: Mapping[str, tuple[float, ...]] = attrs.field(factory=dict)
    """Factors that a directory's weights lack, by tensor; a tensor of several parts has one for each."""

    @property
    def cached(self) -> tuple[HeadShape, ...]:
        """Shapes of the layers in the cache: of blocks of the trunk that store keys and values."""
        return tuple(self.heads_of(i) for i in range(self.owners) if self.attends(i))

    def attends(self, i: int) -> bool:
        """Whether block i has attention."""
        return i not in self.recurrent if self.attending is None else i in self.attending

    @property
    def owners(self) -> int:
        """Blocks of the trunk with keys and values, or states, of their own."""
        return self.layers - self.sharing

    @property
    def state(self) -> RecurrentShape | None:
        """Shape of the recurrent blocks."""
        return self.delta or self.conv or self.scan

    def heads_of(self, i: int) -> HeadShape:
        """The heads of attention in block i."""
        if self.latent:
            return latent_heads(self.heads, self.latent, 0 if self.unrotated else self.rotary_dim, self.scale)
        window = self.windows[i] if i < len(self.windows) else 0
        head, kv_heads = (self.local_head, self.local_kv_heads) if window else (0, 0)
        rests = self.unrotated or (self.still and not window)
        return HeadShape(
            heads=self.heads_by_block[i] if i < len(self.heads_by_block) else self.heads,
            kv_heads=kv_heads or self.kv_heads,
            dim=head or self.head,
            rotary_dim=0 if rests else head or self.rotary_dim,
            scale=self.scale or self.head**-0.5,
            window=window,
            cap=self.score_cap,
            table=int(bool(window and self.local_base)),
        )

    def block(self, interleaved: bool) -> BlockShape:
        return BlockShape(self.width, self.heads_of(0), self.eps, interleaved)

    def ff_of(self, i: int) -> int:
        """Width of the dense feed-forward layer of block i."""
        return self.ffs[i] if self.ffs else self.ff

    def owner_of(self, i: int) -> int:
        """The block whose keys and values block i reads."""
        if not self.owners <= i < self.layers:
            return i
        return max(j for j in range(self.owners) if bool(self.windows[j]) == bool(self.windows[i]))

    def layer_of(self, i: int) -> int:
        """The number of block i among those with the same kind of memory; of the block whose memory it reads."""
        owner = self.owner_of(i)
        return sum(j in self.recurrent if i in self.recurrent else self.attends(j) for j in range(owner))

    def index_layer(self, i: int) -> int:
        """The layer of block i's index in the cache, after the layers of attention."""
        return sum(map(self.attends, range(self.layers))) + sum(j < i for j in self.indexing)

    def limits_of(self, i: int) -> tuple[float, float]:
        """The limits of experts, and of shared experts or the dense layer, in block i."""
        return (self.limits[i] if self.limits else 0.0), (self.shared_limits[i] if self.shared_limits else 0.0)

    def check(self, where: str) -> None:
        """Raise UsageError for impossible sizes."""
        for field in ("layers", "width", "heads", "kv_heads", "head", "vocab", "context"):
            value = getattr(self, field)
            if not isinstance(value, int) or not 0 < value < 1 << 24:
                raise UsageError(f"{where}: {field} is {value!r}", hint="the file is damaged; get it again")
        self._check_blocks(where)
        turns = self.unrotated or (0 < self.rotary_dim <= self.head and self.rotary_dim % 2 == 0)
        good = self.heads % self.kv_heads == 0 and self.head <= MAX_HEAD and turns
        if not good or not 0 < self.eps < math.inf or not 0 < self.rope_base < math.inf:
            raise UsageError(
                f"{where}: {self.heads} heads, {self.kv_heads} key heads of {self.head}, {self.rotary_dim} rotated, "
                f"eps {self.eps}, rope base {self.rope_base} are inconsistent",
                hint="the file is damaged; get it again",
            )
        self.scaling.check(self.rope_base, self.rotary_dim // 2, where)
        self._check_attention(where)
        self._check_local(where)
        if self.experts:
            self._check_experts(self.experts, where)
        if self.delta:
            self._check_delta(self.delta, where)
        if self.scan:
            self._check_delta(self.scan, where)
        if self.conv:
            self._check_conv(self.conv, where)
        if self.latent:
            self._check_latent(self.latent, where)
        if self.index:
            self._check_index(self.index, where)
        self._check_streams(where)

    def _check_attention(self, where: str) -> None:
        known = len(self.windows) in (0, self.layers) and all(0 <= window < 1 << 31 for window in self.windows)
        factors = (self.scale, self.local_base, self.score_cap, self.logit_cap)
        scales = (self.embed_scale, self.logit_scale, self.residual_scale)
        if not known or not all(0 <= x < math.inf for x in factors) or not all(0 < x < math.inf for x in scales):
            raise UsageError(
                f"{where}: windows {str(self.windows)[:60]} of {self.layers} blocks, a local rope base of "
                f"{self.local_base}, scores scaled by {self.scale} and capped at {self.score_cap}, logits capped at "
                f"{self.logit_cap}, embeddings, logits and branches scaled by {', '.join(map(str, scales))} are "
                "inconsistent",
                hint="the file is damaged; get it again",
            )

    def _check_local(self, where: str) -> None:
        head, kv_heads = self.local_head or self.head, self.local_kv_heads or self.kv_heads
        kinds = {bool(window) for window in self.windows}
        owned = {bool(window) for window in self.windows[: self.owners]}
        good = 0 <= self.sharing < self.layers and (not self.sharing or (owned == kinds and not self.recurrent))
        good = (
            good and 0 < head <= MAX_HEAD and self.local_head % 2 == 0 and kv_heads > 0 and self.heads % kv_heads == 0
        )
        good = good and (self.local_base > 0 or not self.local_head or head == self.rotary_dim)
        good = good and len(self.heads_by_block) in (0, self.layers)
        good = good and all(0 < n <= self.heads and n % kv_heads == 0 for n in self.heads_by_block)
        good = good and len(self.ffs) in (0, self.layers) and all(0 < ff < 1 << 24 for ff in self.ffs)
        if not good or not 0 <= self.per_layer < 1 << 16:
            raise UsageError(
                f"{where}: {kv_heads} key heads of {head} and a rope base of {self.local_base} in blocks with a "
                f"window, {self.sharing} of {self.layers} blocks that share a cache, feed-forward widths "
                f"{str(self.ffs)[:60]}, heads {str(self.heads_by_block)[:60]}, embeddings of {self.per_layer} for each "
                "block are inconsistent",
                hint="the file is damaged; get it again",
            )

    def _check_blocks(self, where: str) -> None:
        if self.layers > MAX_LAYERS or not 0 <= self.nextn <= MAX_LAYERS or not 0 <= self.dense <= MAX_LAYERS:
            raise UsageError(
                f"{where}: {self.layers} blocks, {self.dense} of them dense, {self.nextn} after the trunk; "
                f"0 to {MAX_LAYERS} are possible",
                hint="the file is damaged; get it again",
            )

    @staticmethod
    def _check_experts(experts: Experts, where: str) -> None:
        groups = 0 < experts.groups_used <= experts.groups <= experts.count and experts.count % experts.groups == 0
        if (
            not 0 < experts.used <= experts.count
            or not groups
            or (experts.groups > 1 and experts.count < 2 * experts.groups)
        ):
            raise UsageError(
                f"{where}: {experts.used} of {experts.count} experts are used, "
                f"{experts.groups_used} of {experts.groups} groups",
                hint="the file is damaged; get it again",
            )

    def _check_delta(self, shape: DeltaShape, where: str) -> None:
        what = "Mamba-2 layer" if isinstance(shape, ScanShape) else "gated delta net"
        sizes = (shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim)
        narrow = shape.key_dim <= MAX_HEAD and shape.value_dim <= MAX_HEAD
        good = (
            narrow
            and all(0 < n < 1 << 16 for n in sizes)
            and 1 < shape.kernel <= 16
            and shape.value_heads % shape.key_heads == 0
        )
        if not good or not self.recurrent <= frozenset(range(self.layers)):
            raise UsageError(
                f"{where}: {shape.value_heads} value heads over {shape.key_heads} key heads of {shape.key_dim} "
                f"and {shape.value_dim}, a convolution of {shape.kernel}: no {what} has these sizes",
                hint="the file is damaged; get it again",
            )

    def _check_conv(self, shape: ConvShape, where: str) -> None:
        if not 1 < shape.kernel <= 16 or not self.recurrent <= frozenset(range(self.layers)):
            raise UsageError(
                f"{where}: a short convolution of {shape.kernel} inputs, 2 to 16 are possible",
                hint="the file is damaged; get it again",
            )

    def _check_latent(self, shape: LatentShape, where: str) -> None:
        sizes = (shape.rank, shape.plain, shape.value)
        fits = shape.rank + shape.shared == self.head and (self.unrotated or shape.shared == self.rotary_dim)
        narrow = (
            all(0 < n <= MAX_HEAD for n in sizes) and 0 <= shape.shared <= MAX_HEAD and 0 <= shape.queries < 1 << 24
        )
        if not narrow or not fits or self.kv_heads != 1:
            raise UsageError(
                f"{where}: latents of {shape.rank} and {shape.shared} numbers, keys of {shape.plain} "
                f"and values of {shape.value} from them, queries from {shape.queries}, heads of {self.head}: "
                f"no latent attention has these sizes",
                hint="the file is damaged; get it again",
            )

    def _check_index(self, shape: IndexShape, where: str) -> None:
        attending = frozenset(filter(self.attends, range(self.layers)))
        good = (
            0 < shape.heads < 1 << 16
            and 0 < shape.dim <= MAX_INDEX
            and 0 < shape.pool <= MAX_POOL
            and 0 < shape.used < 1 << 20
        )
        owned = self.indexing <= attending and (not attending or min(attending) in self.indexing)
        if not good or not owned or self.latent is None or not self.latent.queries or not 0 < shape.eps < 1:
            raise UsageError(
                f"{where}: an index of {shape.heads} heads of {shape.dim} that chooses {shape.used} pools "
                f"of {shape.pool} positions, in blocks {str(sorted(self.indexing))[:60]}, eps {shape.eps}: "
                f"no sparse index has these sizes",
                hint="the file is damaged; get it again",
            )

    def _check_streams(self, where: str) -> None:
        s = self.streams
        good = s is None or (0 < s.count <= MAX_STREAMS and 0 < s.rounds <= MAX_ROUNDS and 0 <= s.eps < 1)
        both = (self.limits, self.shared_limits)
        known = all(len(limits) in (0, self.layers) and all(0 <= x < math.inf for x in limits) for limits in both)
        if not good or not known or not -math.inf < self.floor <= 0:
            raise UsageError(
                f"{where}: streams {s}, a lowest decay of {self.floor}, limits of experts {str(self.limits)[:60]} and "
                f"{str(self.shared_limits)[:60]} are inconsistent",
                hint="the file is damaged; get it again",
            )
