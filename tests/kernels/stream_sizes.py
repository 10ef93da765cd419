"""A model with residual streams and a sparse index, and wrong sizes of its operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from spec_kernels.model import ops
from spec_kernels.model.ops import Model, Weight
from spec_kernels.model.shapes import DeltaShape, Experts, HeadShape, IndexShape, StreamShape

WIDTH, EXPERTS = 24, 4
STREAMS = StreamShape(count=3, eps=1e-6, rounds=2)
INDEX = IndexShape(heads=2, dim=6, pool=4, used=3)
HEADS = HeadShape(heads=3, kv_heads=1, dim=20, rotary_dim=0, scale=1.0, latent=20)
DELTA = DeltaShape(key_heads=2, value_heads=4, key_dim=8, value_dim=6, kernel=3)


def weight(name: str, n: int, k: int = WIDTH, count: int = 1) -> Weight:
    return Weight(name, n, k, None, count)


OPS: dict[str, ops.Op] = {
    "embed": ops.Embed("x", weight("table", 50)),
    "streams": ops.Concat(("x",) * STREAMS.count, "x"),
    "mixing": ops.Linear("x", ("w",), (weight("fn", STREAMS.weights, STREAMS.count * WIDTH),), (None,)),
    "weights": ops.StreamWeights("w", "w", STREAMS, torch.zeros(STREAMS.weights), torch.ones(3)),
    "sum": ops.StreamSum("x", "w", "h", STREAMS.count),
    "parts": ops.Linear("h", ("q", "key"), (weight("q", 60), weight("key", 20)), (None,) * 2),
    "index parts": ops.Linear(
        "h",
        ("iq", "iw", "k", "s"),
        tuple(weight(n, m) for n, m in (("iq", 12), ("iw", 2), ("k", 6), ("s", 6))),
        (None,) * 4,
    ),
    "norm": ops.Norm("k", "k", torch.ones(6), 1e-6, centred=True, bias=torch.zeros(6)),
    "row": ops.Concat(("k", "s"), "row"),
    "store": ops.Store("key", None, HEADS, 0),
    "store index": ops.Store("row", None, INDEX.stored, 1),
    "index": ops.SparseIndex("iq", "iw", "pools", INDEX, torch.zeros(4, 6), 1),
    "attend": ops.Attend("q", "a", HEADS, 0, pools="pools", pool=INDEX.pool),
    "recurrent": ops.Linear(
        "h",
        ("mix", "beta", "alpha"),
        (weight("mix", DELTA.channels), weight("beta", 4), weight("alpha", 4)),
        (None,) * 3,
    ),
    "delta": ops.Delta(
        *("mix", "beta", "alpha", "o"),
        shape=DELTA,
        conv=torch.ones(DELTA.kernel, DELTA.channels),
        rate=torch.ones(4),
        dt=torch.ones(4),
        layer=0,
        floor=-5.0,
    ),
    "glu": ops.GLU("s", "k", "f", limit=1.0),
    "scores": ops.Linear("h", ("scores",), (weight("router", EXPERTS),), (None,)),
    "mixture": ops.Mixture(
        *("h", "scores", "h", None),
        experts=Experts(EXPERTS, 2),
        bias=None,
        gate=weight("gates", 40, WIDTH, EXPERTS),
        up=weight("ups", 40, WIDTH, EXPERTS),
        down=weight("downs", WIDTH, 40, EXPERTS),
        limit=1.0,
    ),
    "mix": ops.StreamMix("x", "h", "w", STREAMS.count),
}


def stream_model(**changed: dict[str, Any]) -> Model:
    """The model with fields of some operations changed; underscores of their names stand for spaces."""
    named = {name.replace("_", " "): fields for name, fields in changed.items()}
    return Model(tuple(replace(op, **named.get(name, {})) for name, op in OPS.items()))


WRONG: dict[str, tuple[Model, str]] = {
    "stream weights: width": (
        stream_model(weights={"x": "x"}),
        "StreamWeights of 'x': the width of 'x' is 72, 15 is needed",
    ),
    "stream weights: base": (
        stream_model(weights={"base": torch.zeros(3)}),
        r"StreamWeights of 'w': the shape of the base is \(3,\), \(15,\) is needed",
    ),
    "stream weights: scale": (
        stream_model(weights={"scale": torch.ones(1)}),
        r"StreamWeights of 'w': the shape of the scale is \(1,\), \(3,\) is needed",
    ),
    "stream weights: rounds": (
        stream_model(weights={"shape": replace(STREAMS, rounds=0)}),
        "StreamWeights of 'w': 3 streams, 0 rounds, eps 1e-06; needed are 1 or more of each",
    ),
    "stream sum: pieces": (
        stream_model(sum={"count": 5}),
        "StreamSum of 'x': the width of 'x' is 72, a multiple of 5 is needed",
    ),
    "stream sum: weights": (
        stream_model(sum={"count": 18}),
        "StreamSum of 'x': 'w' has 15 weights for 18 streams",
    ),
    "stream mix: result": (stream_model(mix={"y": "k"}), "StreamMix of 'x': the width of 'k' is 6, 24 is needed"),
    "stream mix: weights": (
        stream_model(mix={"weights": "s"}),
        "StreamMix of 'x': the width of 's' is 6, 15 is needed",
    ),
    "index: queries": (stream_model(index={"q": "k"}), "SparseIndex of 'k': the width of 'k' is 6, 12 is needed"),
    "index: weights": (stream_model(index={"weights": "k"}), "SparseIndex of 'iq': the width of 'k' is 6, 2 is needed"),
    "index: base": (
        stream_model(index={"base": torch.zeros(3, 6)}),
        r"SparseIndex of 'iq': the shape of the base is \(3, 6\), \(4, 6\) is needed",
    ),
    "index: the rows of attention": (
        stream_model(index={"layer": 0}),
        r"SparseIndex of 'iq': \(key heads, head width\) is \(1, 12\), \(1, 20\) is needed",
    ),
    "index: no pools": (
        stream_model(index={"shape": replace(INDEX, used=0)}),
        "SparseIndex of 'iq': 2 heads of 6 choose 0 pools of 4, min 1 of each",
    ),
    "attend: pools of nothing": (
        stream_model(attend={"pool": 0}),
        "Attend of 'q': pools of 0 positions, min 1",
    ),
    "attend: pools in a window": (
        stream_model(attend={"shape": replace(HEADS, window=8)}),
        "Attend of 'q': pools of positions, without a window, a cap or rows that see later ones, is False, True",
    ),
    "norm: bias": (
        stream_model(norm={"bias": torch.zeros(5)}),
        r"Norm of 'k': the shape of the bias is \(5,\), \(6,\) is needed",
    ),
    "norm: bias of a row that is not centred": (
        stream_model(norm={"centred": False}),
        "Norm of 'k': a centred row, to which a bias is added, is False, True is needed",
    ),
    "delta: floor": (
        stream_model(delta={"floor": 1.0}),
        "Delta of 'mix': the lowest logarithm of a decay is 1.0, 0 or less is needed",
    ),
    "glu: limit": (
        stream_model(glu={"limit": -1.0}),
        "GLU of 's': the limit of gate and up is -1.0, 0 or more is needed",
    ),
    "glu: limit of another activation": (
        stream_model(glu={"act": "gelu"}),
        "GLU of 's': the activation with a limit is gelu, silu is needed",
    ),
    "mixture: limit": (
        stream_model(mixture={"act": "relu"}),
        "Mixture of 'h': the activation with a limit is relu, silu is needed",
    ),
}
MANY = StreamShape(17, 1e-6, 1)
LARGE: dict[str, tuple[Model, str]] = {
    "streams": (stream_model(weights={"shape": MANY}), "the streams: 17 were found, native kernels run at most 16"),
    "summed streams": (stream_model(sum={"count": 24}), "the streams: 24 were found"),
    "pools": (stream_model(index={"shape": replace(INDEX, pool=65)}), "the positions of a pool: 65 were found"),
}
