"""The native operators of a shared library: their tables as functions over numpy arrays."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.native.compiled import compiler
from tests.native.compiled import library as built

ISAS = ("avx512", "avx2", "neon", "generic")
WITH_VNNI = ("avx512vnni", "avx512", "avxvnni", "avx2", "neon", "generic")
"""Tables with dot products of bytes, too: they differ in attention alone."""
P, S, I, F = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_float

each_isa = pytest.mark.parametrize("isa", ISAS)
each_with_vnni = pytest.mark.parametrize("isa", WITH_VNNI)


def structure(name: str, **fields: type) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


Cache = structure(
    "Cache",
    kind=I,
    kv_heads=I,
    key_dim=I,
    value_dim=I,
    places=I,
    latent=I,
    keys=P,
    values=P,
    key_head_bytes=S,
    value_head_bytes=S,
)
SequenceOf = structure("SequenceOf", first=I, rows=I, start=I, chain=I, causal=I, parents=P)
Attention = structure(
    "Attention",
    **dict.fromkeys(("heads", "window", "lead"), I),
    scale=F,
    q=P,
    q_stride=S,
    out=P,
    out_stride=S,
    gate=P,
    gate_stride=S,
    cap=F,
    sinks=P,
    anchored=I,
    pools=P,
    pools_stride=S,
    used=I,
    pool=I,
)
Index = structure(
    "Index",
    **dict.fromkeys(("heads", "dim", "pool", "used"), I),
    q=P,
    q_stride=S,
    weights=P,
    weights_stride=S,
    base=P,
    out=P,
    out_stride=S,
)
Delta = structure(
    "Delta",
    **dict.fromkeys(("key_heads", "value_heads", "key_dim", "value_dim", "g_width"), I),
    **dict.fromkeys(("q", "k", "v", "g", "beta"), P),
    **dict.fromkeys(("stride", "g_stride", "beta_stride"), S),
    **dict.fromkeys(("o", "d"), P),
    **dict.fromkeys(("o_stride", "d_stride"), S),
    **dict.fromkeys(("states", "key_of", "parents", "source", "keep", "slot", "skip"), P),
)
Conv = structure(
    "Conv",
    channels=I,
    width=I,
    x=P,
    x_stride=S,
    gate=P,
    gate_stride=S,
    weight=P,
    windows=P,
    out=P,
    out_stride=S,
    parents=P,
    source=P,
    keep=P,
    bias=P,
)
Router = structure(
    "Router",
    **dict.fromkeys(("experts", "top", "normalise", "sigmoid", "groups", "groups_used"), I),
    scale=F,
    bias=P,
    factors=P,
)
FUNCTIONS = {
    "norm": (None, P, S, P, F, I, I, P, S),
    "heads": (None, P, S, I, I, I, P, F, P, P, S, I),
    "glu": (None, I, F, P, S, P, S, I, I, P, S),
    "softcap": (None, P, S, I, I, F),
    "gate": (None, I, P, S, P, S, I, I, I),
    "multiply": (None, P, S, P, S, I, I, P, S),
    "add": (None, P, S, P, S, P, I, I),
    "lay_down": (None, P, I, I, P, P, S, P, S),
    "lay_pairs": (None, I, F, P, I, I, P, S),
    "dot": (None, P, S, P, S, I, I, P),
    "apply": (None, I, P, S, P),
    "widen": (None, I, P, S, P),
    "narrow": (None, I, P, S, P),
    "argmax": (ctypes.c_int32, P, I),
    "store": (None, P, I, I, P, S, P, S, I, I),
    "compact": (None, P, I, P, I),
    "attend": (None, P, P, P, I, I, I, P),
    "choose_pools": (None, P, P, P, I, I, P),
    "stream_weights": (None, P, S, P, P, I, I, F, I, P, S),
    "stream_sum": (None, P, S, P, S, I, I, I, P, S),
    "stream_mix": (None, P, S, P, S, P, S, I, I, I),
    "unit": (None, P, S, I, I, I, F, F),
    "decay": (None, P, S, P, S, P, P, F, I, I, I, P, P, S),
    "conv": (None, P, I, I, I, I, P),
    "delta": (None, P, I, I, I, P),
    "replay": (None, P, P, I, I, I, I),
    "slide": (None, P, P, I, I, I),
    "gated_norm": (None, P, S, P, S, P, F, I, I, I, P, S),
    "route": (None, P, P, S, I, P, P),
}
Table = structure("Table", isa=ctypes.c_char_p, **{name: ctypes.CFUNCTYPE(*f) for name, f in FUNCTIONS.items()})


@functools.lru_cache
def library() -> ctypes.CDLL:
    """Loaded once per process. Skips the test where there is no compiler."""
    if compiler() is None:
        pytest.skip("no C compiler")
    loaded = ctypes.CDLL(str(built()))
    loaded.spec_ops.restype = P
    for name, takes in SIZES.items():
        getattr(loaded, name).argtypes, getattr(loaded, name).restype = takes, S
    return loaded


SIZES = {
    "spec_key_bytes": (I, I, I),
    "spec_value_bytes": (I, I, I),
    "spec_attention_scratch": (I,),
    "spec_index_scratch": (I, I, I, I),
    "spec_delta_scratch": (I, I),
    "spec_conv_scratch": (I, I),
}


@functools.lru_cache
def table(isa: str) -> ctypes.Structure:
    """The functions of an instruction set. Skips the test where the processor lacks it."""
    if isa not in here():
        pytest.skip(f"this processor has no {isa}, or SPEC_NATIVE_SETS leaves it out")
    return Table.from_address(library().spec_ops(isa.encode()))


@functools.lru_cache
def here() -> list[str]:
    """The instruction sets of this processor; with SPEC_NATIVE_SETS those of them that it names."""
    sets = os.environ.get("SPEC_NATIVE_SETS", ",".join(WITH_VNNI)).split(",")
    return [isa for isa in WITH_VNNI if isa in sets and library().spec_ops(isa.encode())]


def at(x: np.ndarray | None) -> int | None:
    """Address of an array; the caller must keep it alive during the call."""
    return None if x is None else x.ctypes.data


def ints(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def memory(size: int, align: int = 64) -> np.ndarray:
    """uint8 [size], aligned, exactly that long for a sanitizer, every float in it NaN."""
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [P]
    address = P()
    assert libc.posix_memalign(ctypes.byref(address), S(align), S(max(size, 1))) == 0
    view = (ctypes.c_uint8 * size).from_address(address.value)
    array = np.ctypeslib.as_array(view) if size else np.empty(0, np.uint8)
    weak = _Owner(libc.free, address)
    array = array.view(_Owned)
    array.owner = weak
    array[:] = 0xFF
    return array


class _Owned(np.ndarray):
    owner: object


class _Owner:
    def __init__(self, free, address) -> None:
        self.free, self.address = free, address

    def __del__(self) -> None:
        self.free(self.address)


KINDS = {"float32": 0, "float16": 1, "q8": 2}


@dataclass
class KV:
    """A cache of one layer, every place unwritten (NaN). latent: values are the last numbers of the keys."""

    kind: str
    kv_heads: int
    key_dim: int
    value_dim: int
    places: int
    isa: str
    latent: bool = False
    keys: np.ndarray = field(init=False)
    values: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        kind = KINDS[self.kind]
        self.sizes = (
            library().spec_key_bytes(kind, self.key_dim, self.places),
            0 if self.latent else library().spec_value_bytes(kind, self.value_dim, self.places),
        )
        self.keys, self.values = (memory(self.kv_heads * size) for size in self.sizes)
        shape = self.kv_heads, self.key_dim, self.value_dim, self.places, self.latent
        self.c = Cache(kind, *shape, at(self.keys), at(self.values), *self.sizes)

    def store(self, place: int, k: np.ndarray, v: np.ndarray) -> None:
        """k: [n, K, Dk]    v: [n, K, Dv]"""
        k, v = (np.ascontiguousarray(m, dtype=np.float32) for m in (k, v))
        n, heads, values = len(k), self.kv_heads, None if self.latent else at(v)
        table(self.isa).store(
            ctypes.byref(self.c), place, n, at(k), heads * self.key_dim, values, heads * self.value_dim, 0, heads
        )

    def compact(self, place: int, rows: Sequence[int]) -> None:
        moved = ints(rows)
        table(self.isa).compact(ctypes.byref(self.c), place, at(moved), len(moved))


@dataclass
class Chain:
    """One sequence of a batch: n rows that enter a cache at ``start``; parents as batch rows."""

    first: int
    rows: int
    start: int
    parents: Sequence[int] | None = None
    causal: bool = True

    def c(self) -> ctypes.Structure:
        """Keeps the parents alive, since the structure points at them."""
        if self.parents is None:
            return SequenceOf(self.first, self.rows, self.start, self.rows, self.causal, None)
        self._parents = ints([-1] * self.first + list(self.parents))
        chain = library().spec_chain(P(at(self._parents)), self.first, self.rows)
        return SequenceOf(self.first, self.rows, self.start, chain, self.causal, at(self._parents))


def attend(
    kv: KV,
    q: np.ndarray,
    sequence: Chain,
    scale: float,
    window: int = 0,
    gate: np.ndarray | None = None,
    jobs: Sequence[tuple[int, int]] | None = None,
    cap: float = 0.0,
    sinks: np.ndarray | None = None,
    lead: int = 0,
    anchored: bool = False,
    pools: np.ndarray | None = None,
    pool: int = 0,
) -> np.ndarray:
    """q: [R, H, Dk] of the whole batch; sinks: float32 [H]; pools: float32 [R, used], numbers of pools of ``pool``

    jobs: (row, rows) of the sequence, all rows at once by default -> [n, H, Dv]"""
    q = np.ascontiguousarray(q, dtype=np.float32)
    rows, heads, _ = q.shape
    out = np.full((rows, heads, kv.value_dim), np.nan, dtype=np.float32)
    stride = heads * kv.value_dim
    widths = at(q), heads * kv.key_dim, at(out), stride, at(gate), stride
    used = 0 if pools is None else pools.shape[1]
    a = Attention(heads, window, lead, scale, *widths, cap, at(sinks), anchored, at(pools), used, used, pool)
    s = sequence.c()
    scratch = memory(library().spec_attention_scratch(sequence.start + sequence.rows))
    for row, count in jobs or [(0, sequence.rows)]:
        for head in range(kv.kv_heads):
            scratch[:] = 0xFF
            table(kv.isa).attend(ctypes.byref(a), ctypes.byref(kv.c), ctypes.byref(s), head, row, count, at(scratch))
    return out[sequence.first : sequence.first + sequence.rows]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def cuts(rows: int, draw: np.random.Generator) -> Iterator[tuple[int, int]]:
    """(first, n) of random chunks that cover all rows."""
    row = 0
    while row < rows:
        n = int(draw.integers(1, rows - row + 1))
        yield row, n
        row += n
