"""Wrong sizes in a description are refused, for every operation, before an executor reads or computes.

Longer than our files are: one model with every operation, and one list of what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from spec_kernels import native
from spec_kernels.model import ops, sizes
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.ops import Model, Weight
from spec_kernels.model.reference import Reference
from spec_kernels.model.shapes import ConvShape, DeltaShape, Experts, HeadShape, ScanShape
from spec_kernels.native import limits
from spec_kernels.native.executor import Native
from spec_kernels.native.weights import check_stored

from tests.kernels import stream_sizes

EXECUTORS: dict[str, Callable[[Model, Any], Any]] = {"native": Native, "reference": Reference}
WIDTH, INNER, EXPERTS = 24, 40, 4
HEADS = HeadShape(heads=4, kv_heads=2, dim=12, rotary_dim=8, scale=1.0)
DELTA = DeltaShape(key_heads=2, value_heads=4, key_dim=8, value_dim=6, kernel=3)
CHANNELS = replace(DELTA, by_channel=True)
CONV = ConvShape(channels=20, kernel=3)
SCAN = ScanShape(key_heads=2, value_heads=4, key_dim=8, value_dim=6, kernel=3)
LATENT = HeadShape(heads=3, kv_heads=1, dim=20, rotary_dim=8, scale=1.0, latent=12)
TURNS = torch.ones(HEADS.rotary_dim // 2)


def weight(name: str, n: int, k: int, count: int = 1) -> Weight:
    return Weight(name, n, k, None, count)


OPS: dict[str, ops.Op] = {
    "embed": ops.Embed("x", weight("table", 50, WIDTH)),
    "input": ops.Input("given", WIDTH),
    "norm": ops.Norm("x", "h", torch.ones(WIDTH), 1e-6),
    "concat": ops.Concat(("h", "given"), "both"),
    "columns": ops.Columns("h", "part", 4, 6),
    "add rows": ops.AddRows("h", 1),
    "kernel": ops.Linear("h", ("kernel",), (weight("kernel", 6, WIDTH),), (None,)),
    "block convolution": ops.BlockConv("h", "kernel", "c", torch.ones(2, WIDTH)),
    "linear": ops.Linear("both", ("h",), (weight("fc", WIDTH, 2 * WIDTH),), (torch.ones(WIDTH),)),
    "qkv": ops.Linear(
        "h",
        ("q", "k", "v"),
        (weight("q", HEADS.q_width, WIDTH), weight("k", HEADS.kv_width, WIDTH), weight("v", HEADS.kv_width, WIDTH)),
        (None,) * 3,
    ),
    "head norm": ops.Norm("q", "q", torch.ones(HEADS.dim), 1e-6),
    "rotate": ops.Rotate("q", HEADS),
    "store": ops.Store("k", "v", HEADS, 0),
    "attend": ops.Attend("q", "a", HEADS, 0),
    "gate": ops.Gate("a", "q", "a", "sigmoid"),
    "out": ops.Linear("a", ("x",), (weight("out", WIDTH, HEADS.q_width),), (None,), add="x"),
    "recurrent": ops.Linear(
        "h",
        ("mix", "beta", "alpha"),
        (weight("mix", DELTA.channels, WIDTH), weight("beta", 4, WIDTH), weight("alpha", 4, WIDTH)),
        (None,) * 3,
    ),
    "delta": ops.Delta(
        *("mix", "beta", "alpha", "o"),
        shape=DELTA,
        conv=torch.ones(DELTA.kernel, DELTA.channels),
        rate=torch.ones(4),
        dt=torch.ones(4),
        layer=0,
    ),
    "up": ops.Linear("h", ("g", "u"), (weight("g", INNER, WIDTH), weight("u", INNER, WIDTH)), (None, None)),
    "glu": ops.GLU("g", "u", "f"),
    "add": ops.Add("f", "u", "f"),
    "add relative": ops.AddRelative("f", "u"),
    "cap": ops.SoftCap("f", 5.0),
    "scores": ops.Linear("h", ("scores",), (weight("router", EXPERTS, WIDTH),), (None,)),
    "mixture": ops.Mixture(
        *("h", "scores", "x", "x"),
        experts=Experts(EXPERTS, 2),
        bias=torch.zeros(EXPERTS),
        gate=weight("gates", INNER, WIDTH, EXPERTS),
        up=weight("ups", INNER, WIDTH, EXPERTS),
        down=weight("downs", WIDTH, INNER, EXPERTS),
        biases=(torch.zeros(EXPERTS, INNER), torch.zeros(EXPERTS, INNER), torch.zeros(EXPERTS, WIDTH)),
    ),
    "clusters": ops.Clusters("h", "scores", "chosen", weight("head", 8, WIDTH), 2),
    "pick final": ops.Pick("x", "x", "final"),
    "final": ops.Tap("x", "final"),
    "pick logits": ops.Pick("x", "x", "logits"),
    "logits": ops.Linear("x", ("logits",), (weight("output", 50, WIDTH),), (None,)),
    "tap": ops.Tap("logits", "logits"),
}
"""One operation of each kind, in a valid model."""
SHORT: dict[str, ops.Op] = {
    "embed": OPS["embed"],
    "parts": ops.Linear("x", ("b", "c", "v"), tuple(weight(name, 20, WIDTH) for name in "bcv"), (None,) * 3),
    "conv": ops.ShortConv("b", "c", "v", "o", CONV, torch.ones(CONV.kernel, CONV.channels), 0),
    "out": ops.Linear("o", ("x",), (weight("out", WIDTH, 20),), (None,)),
}
"""A short convolution, whose states are of another shape than those of the other model."""
LATENTS: dict[str, ops.Op] = {
    "embed": OPS["embed"],
    "queries": ops.Linear("x", ("q", "key"), (weight("q", 3 * 14, WIDTH), weight("key", 20, WIDTH)), (None,) * 2),
    "heads": ops.HeadLinear("q", "query", weight("k_b", 12, 6, 3), kept=8),
    "rotate": ops.Rotate("query", LATENT),
    "store": ops.Store("key", None, LATENT, 0),
    "attend": ops.Attend("query", "sums", LATENT, 0),
    "values": ops.HeadLinear("sums", "a", weight("v_b", 5, 12, 3)),
    "out": ops.Linear("a", ("x",), (weight("out", WIDTH, 15),), (None,)),
    "recurrent": ops.Linear(
        "x",
        ("mix", "beta", "alpha"),
        (weight("mix", DELTA.channels, WIDTH), weight("beta", 4, WIDTH), weight("alpha", CHANNELS.decays, WIDTH)),
        (None,) * 3,
    ),
    "delta": ops.Delta(
        *("mix", "beta", "alpha", "o"),
        shape=CHANNELS,
        conv=torch.ones(DELTA.kernel, DELTA.channels),
        rate=torch.ones(CHANNELS.decays),
        dt=torch.ones(CHANNELS.decays),
        layer=0,
    ),
}
"""Attention over latents, and a decay of every channel."""


SCANNED: dict[str, ops.Op] = {
    "embed": OPS["embed"],
    "parts": ops.Linear(
        "x",
        ("z", "mix", "step"),
        (weight("z", 24, WIDTH), weight("mix", SCAN.channels, WIDTH), weight("step", 4, WIDTH)),
        (None,) * 3,
    ),
    "scan": ops.Scan(
        *("mix", "step", "o"),
        shape=SCAN,
        conv=torch.ones(SCAN.kernel, SCAN.channels),
        bias=torch.zeros(SCAN.channels),
        **dict.fromkeys(("rate", "dt", "skip"), torch.ones(4)),
        layer=0,
    ),
    "norm": ops.Norm("o", "o", torch.ones(24), 1e-6, groups=2),
    "out": ops.Linear("o", ("h",), (weight("out", WIDTH, 24),), (None,)),
    "scale": ops.Scale("h", 0.5),
    "scores": ops.Linear("h", ("scores",), (weight("router", EXPERTS, WIDTH),), (None,)),
    "mixture": ops.Mixture(
        *("h", "scores", "y", None),
        experts=Experts(EXPERTS, 2),
        bias=None,
        gate=None,
        up=weight("ups", INNER, WIDTH, EXPERTS),
        down=weight("downs", WIDTH, INNER, EXPERTS),
        act="relu",
    ),
}
"""Mamba-2, a norm of groups, and experts without a gate."""


def scan_model(**changed: dict[str, Any]) -> Model:
    return Model(tuple(replace(op, **changed.get(name, {})) for name, op in SCANNED.items()))


def short(**changed: dict[str, Any]) -> Model:
    return Model(tuple(replace(op, **changed.get(name, {})) for name, op in SHORT.items()))


def latents(**changed: dict[str, Any]) -> Model:
    return Model(tuple(replace(op, **changed.get(name, {})) for name, op in LATENTS.items()), TURNS)


def model(**changed: dict[str, Any]) -> Model:
    """The model with fields of some operations changed; underscores of their names stand for spaces."""
    named = {name.replace("_", " "): fields for name, fields in changed.items()}
    return Model(tuple(replace(op, **named.get(name, {})) for name, op in OPS.items()), TURNS)


def without(name: str) -> Model:
    return Model(tuple(op for other, op in OPS.items() if other != name), TURNS)


WRONG: dict[str, tuple[Model, str]] = {
    "block convolution: base": (
        model(block_convolution={"base": torch.ones(2, 16)}),
        "BlockConv of 'h': the width of the base is 16, 24 is needed",
    ),
    "block convolution: groups": (
        model(block_convolution={"base": torch.ones(4, WIDTH)}),
        "BlockConv of 'h': the width of 'kernel' is 6, a multiple of 4 is needed",
    ),
    "block convolution: in place": (
        model(block_convolution={"out": "h"}),
        "BlockConv of 'h': it writes 'h', which it reads in other rows",
    ),
    "product: columns": (
        model(linear={"weights": (weight("fc", WIDTH, 64),)}),
        "Linear of 'both': the width of 'both' is 48, 64 is needed",
    ),
    "product: bias": (
        model(linear={"biases": (torch.ones(16),)}),
        r"Linear of 'both': the shape of the bias of 'fc' is \(16,\), \(24,\) is needed",
    ),
    "product: sum": (
        model(out={"weights": (weight("out", 32, HEADS.q_width),)}),
        "Linear of 'a': the width of 'x' is 24, 32 is needed",
    ),
    "product: sum of several": (
        model(qkv={"add": "h"}),
        "Linear of 'h': the number of matrices of a sum is 3, 1 is needed",
    ),
    "product: outputs": (model(linear={"outs": ("h", "i")}), "Linear of 'both': the number of outputs is 2, 1"),
    "product: biases": (model(linear={"biases": ()}), "Linear of 'both': the number of biases is 0, 1"),
    "product: a stack": (
        model(linear={"weights": (weight("fc", WIDTH, 48, 3),)}),
        "Linear of 'both': the number of matrices of 'fc' is 3, 1 is needed",
    ),
    "norm": (model(norm={"weight": torch.ones(16)}), "Norm of 'x': the width of 'x' is 24, a multiple of 16 is needed"),
    "norm of heads": (model(head_norm={"weight": torch.ones(36)}), "Norm of 'q': the width of 'q' is 48, a multiple"),
    "norm without numbers": (model(norm={"weight": torch.ones(0)}), "Norm of 'x': the width of 'x' is 24, a multiple"),
    "rotate: heads": (
        model(rotate={"shape": replace(HEADS, dim=20)}),
        "Rotate of 'q': the width of 'q' is 48, a multiple of 20 is needed",
    ),
    "rotate: angles": (
        model(rotate={"shape": replace(HEADS, rotary_dim=6)}),
        "Rotate of 'q': the number of rotated dimensions is 6, 8 is needed",
    ),
    "rotate: more than a head": (
        model(rotate={"shape": replace(HEADS, dim=6)}),
        "Rotate of 'q': 8 dimensions of a head rotate, but it has 6",
    ),
    "store": (model(store={"k": "q"}), "Store of 'q': the width of 'q' is 48, 24 is needed"),
    "store: values": (model(store={"v": "q"}), "Store of 'k': the width of 'q' is 48, 24 is needed"),
    "store: layer": (model(store={"layer": 1}), r"stored in layers \[1\], 0 to 0 is needed"),
    "store: a borrowed cache": (
        replace(model(), borrowed=(HEADS,)),
        "a model that reads another model's cache stores keys and values",
    ),
    "attend": (
        model(attend={"shape": replace(HEADS, heads=6)}),
        "Attend of 'q': the width of 'q' is 48, 72 is needed",
    ),
    "attend: other heads than the cache's": (
        model(attend={"shape": replace(HEADS, kv_heads=4)}),
        r"Attend of 'q': \(key heads, head width\) is \(4, 12\), \(2, 12\) is needed",
    ),
    "attend: groups": (
        model(attend={"shape": replace(HEADS, heads=5)}),
        "Attend of 'q': the number of query heads is 5, a multiple of 2 is needed",
    ),
    "attend: layer": (model(attend={"layer": -1}), "Attend of 'q': the layer is -1"),
    "attend: no cache": (without("store"), "Attend of 'q': no operation stores keys and values"),
    "gate": (
        model(gate={"x": "part", "gate": "k"}),
        "Gate of 'part': the width of 'part' is 6, a multiple of 24 is needed",
    ),
    "glu": (model(glu={"up": "q"}), "GLU of 'g': the width of 'q' is 48, 40 is needed"),
    "add relative": (
        model(**{"add relative": {"y": "q"}}),
        "AddRelative of 'f': the width of 'q' is 48, 40 is needed",
    ),
    "columns": (
        model(columns={"start": 20}),
        "Columns of 'h': 20 to 25 are needed, it has 0 to 23",
    ),
    "columns: none": (model(columns={"width": 0}), "Columns of 'h': 4 to 3 are needed"),
    "add rows: index": (model(**{"add rows": {"index": 16}}), "AddRows of 'h': index 16, it is 0 to 15"),
    "embed: no rows in place of tokens": (
        model(embed={"given": False}),
        "Embed of 'x': the first embedding takes the rows given in place of tokens",
    ),
    "mixture: factors": (
        model(mixture={"factors": torch.ones(3)}),
        r"Mixture of 'h': the shape of the factors is \(3,\), \(4,\) is needed",
    ),
    "clusters: pieces": (
        model(clusters={"weight": weight("head", 9, WIDTH)}),
        "Clusters of 'h': the number of rows of 'head' is 9, a multiple of 4 is needed",
    ),
    "clusters: width": (
        model(clusters={"weight": weight("head", 8, 20)}),
        "Clusters of 'h': the width of 'h' is 24, 20 is needed",
    ),
    "clusters: used": (model(clusters={"used": 5}), "Clusters of 'h': 5 of 4 clusters are used, 1 to 4 are possible"),
    "add": (model(add={"y": "q"}), "Add of 'f': the width of 'q' is 48, 40 is needed"),
    "cap": (model(cap={"cap": 0.0}), "SoftCap of 'f': the cap is 0.0, a positive number is needed"),
    "attend: sinks": (
        model(attend={"sinks": torch.zeros(3)}),
        r"Attend of 'q': the shape of the sinks is \(3,\), \(4,\) is needed",
    ),
    "attend: cap": (
        model(attend={"shape": replace(HEADS, cap=-1.0)}),
        "Attend of 'q': the cap of scores is -1.0, 0 or more is needed",
    ),
    "rotate: table": (
        model(rotate={"shape": replace(HEADS, table=1)}),
        "Rotate of 'q': the number of rotated dimensions is 8, 0 is needed",
    ),
    "mixture: biases": (
        model(mixture={"biases": (torch.zeros(EXPERTS, INNER), torch.zeros(EXPERTS, INNER), torch.zeros(EXPERTS, 4))}),
        r"Mixture of 'h': the shape of the bias of 'downs' is \(4, 4\), \(4, 24\) is needed",
    ),
    "concat": (model(concat={"xs": ("h", "h", "given")}), "Linear of 'both': the width of 'both' is 72, 48 is needed"),
    "concat of nothing": (model(concat={"xs": ()}), "Concat of 'both': it joins 0 values"),
    "mixture: scores": (
        model(scores={"weights": (weight("router", 3, WIDTH),)}),
        "Mixture of 'h': the width of 'scores' is 3, 4 is needed",
    ),
    "mixture: gate": (
        model(mixture={"gate": weight("gates", INNER, 32, EXPERTS)}),
        r"Mixture of 'h': the shape of 'gates' is \(40, 32\), \(40, 24\) is needed",
    ),
    "mixture: up": (
        model(mixture={"up": weight("ups", 48, WIDTH, EXPERTS)}),
        r"Mixture of 'h': the shape of 'ups' is \(48, 24\), \(40, 24\) is needed",
    ),
    "mixture: down": (
        model(mixture={"down": weight("downs", 32, INNER, EXPERTS)}),
        r"Mixture of 'h': the shape of 'downs' is \(32, 40\), \(24, 40\) is needed",
    ),
    "mixture: experts": (
        model(mixture={"up": weight("ups", INNER, WIDTH, 3)}),
        "Mixture of 'h': the number of matrices of 'ups' is 3, 4 is needed",
    ),
    "mixture: sum": (model(mixture={"add": "q"}), "Mixture of 'h': the width of 'q' is 48, 24 is needed"),
    "mixture: bias": (
        model(mixture={"bias": torch.zeros(3)}),
        r"Mixture of 'h': the shape of the bias is \(3,\), \(4,\) is needed",
    ),
    "mixture: chosen": (model(mixture={"experts": Experts(EXPERTS, 5)}), "Mixture of 'h': 5 of 4 experts"),
    "delta: channels": (model(delta={"qkv": "q"}), "Delta of 'q': the width of 'q' is 48, 56 is needed"),
    "delta: rates": (model(delta={"beta": "k"}), "Delta of 'mix': the width of 'k' is 24, 4 is needed"),
    "delta: strength": (model(delta={"strength": 2.5}), "Delta of 'mix': the strength is 2.5, above 2"),
    "delta: alpha": (model(delta={"alpha": "k"}), "Delta of 'mix': the width of 'k' is 24, 4 is needed"),
    "delta: conv": (
        model(delta={"conv": torch.ones(2, DELTA.channels)}),
        r"Delta of 'mix': the shape of conv is \(2, 56\), \(3, 56\) is needed",
    ),
    "delta: rate": (model(delta={"rate": torch.ones(3)}), r"Delta of 'mix': the shape of rate is \(3,\), \(4,\)"),
    "delta: dt": (model(delta={"dt": torch.ones(3)}), r"Delta of 'mix': the shape of dt is \(3,\), \(4,\)"),
    "delta: layer": (model(delta={"layer": 1}), "Delta of 'mix': the layer is 1, the model has 0 to 0"),
    "convolution: b": (short(conv={"b": "x"}), "ShortConv of 'v': the width of 'x' is 24, 20 is needed"),
    "convolution: c": (short(conv={"c": "x"}), "ShortConv of 'v': the width of 'x' is 24, 20 is needed"),
    "convolution: x": (short(conv={"x": "x"}), "ShortConv of 'x': the width of 'x' is 24, 20 is needed"),
    "convolution: weight": (
        short(conv={"conv": torch.ones(3, 24)}),
        r"ShortConv of 'v': the shape of conv is \(3, 24\), \(3, 20\) is needed",
    ),
    "convolution: layer": (short(conv={"layer": 1}), "ShortConv of 'v': the layer is 1, the model has 0 to 0"),
    "convolution: out": (
        short(out={"weights": (weight("out", WIDTH, 24),)}),
        "Linear of 'o': the width of 'o' is 20, 24 is needed",
    ),
    "scan: channels": (scan_model(scan={"qkv": "z"}), "Scan of 'z': the width of 'z' is 24, 56 is needed"),
    "scan: steps": (scan_model(scan={"step": "z"}), "Scan of 'mix': the width of 'z' is 24, 4 is needed"),
    "scan: bias": (
        scan_model(scan={"bias": torch.zeros(3)}),
        r"Scan of 'mix': the shape of the bias is \(3,\), \(56,\) is needed",
    ),
    "scan: rate": (scan_model(scan={"rate": torch.ones(3)}), r"Scan of 'mix': the shape of rate is \(3,\), \(4,\)"),
    "scan: dt": (scan_model(scan={"dt": torch.ones(3)}), r"Scan of 'mix': the shape of dt is \(3,\), \(4,\)"),
    "scan: skip": (scan_model(scan={"skip": torch.ones(3)}), r"Scan of 'mix': the shape of skip is \(3,\), \(4,\)"),
    "scan: channels decay": (
        scan_model(scan={"shape": replace(SCAN, by_channel=True)}),
        "Scan of 'mix': a decay of every channel is True, False is needed",
    ),
    "scan: layer": (scan_model(scan={"layer": 1}), "Scan of 'mix': the layer is 1, the model has 0 to 0"),
    "scan: shape": (
        scan_model(scan={"shape": replace(SCAN, key_heads=3)}),
        "Scan of 'mix': the shape of conv is .*|Scan of 'mix': the number of value heads is 4, a multiple of 3",
    ),
    "norm: groups": (
        scan_model(norm={"groups": 5}),
        "Norm of 'o': the width of the weight is 24, a multiple of 5 is needed",
    ),
    "norm: no groups": (
        scan_model(norm={"groups": 0}),
        "Norm of 'o': the width of the weight is 24, a multiple of 0 is needed",
    ),
    "norm: groups of a head": (
        scan_model(norm={"weight": torch.ones(12)}),
        "Norm of 'o': the width of the weight is 12, 24 is needed",
    ),
    "scale: factor": (
        scan_model(scale={"by": float("nan")}),
        "Scale of 'h': the factor is nan, a finite number is needed",
    ),
    "scale: value": (
        scan_model(scale={"x": "none"}),
        "Scale of 'none': it reads 'none', which no earlier operation writes",
    ),
    "mixture: biases without a gate": (
        scan_model(mixture={"biases": (torch.zeros(EXPERTS, INNER),) * 3}),
        "Mixture of 'h': the biases without a gate is",
    ),
    "layers of two kinds": (
        Model((*OPS.values(), SHORT["parts"], replace(SHORT["conv"], layer=1)), TURNS),
        r"ShortConv of 'v': the shape of the layer is ConvShape\(channels=20, kernel=3\), DeltaShape\(",
    ),
    "heads: width": (
        latents(heads={"kept": 7}),
        "HeadLinear of 'q': the width of 'q' is 42, 39 is needed",
    ),
    "heads: kept": (latents(heads={"kept": -1}), "HeadLinear of 'q': -1 numbers of a head stay as they are, 0 or more"),
    "heads: in place": (latents(heads={"out": "q"}), "HeadLinear of 'q': it writes 'q', which it reads in other"),
    "heads: outputs": (
        latents(values={"weight": weight("v_b", 6, 12, 3)}),
        "Linear of 'a': the width of 'a' is 18, 15 is needed",
    ),
    "store: values of latents": (
        latents(store={"v": "key"}),
        "Store of 'key': a value apart from the key is True, False is needed",
    ),
    "store: no values": (model(store={"v": None}), "Store of 'k': a value apart from the key is False, True is needed"),
    "store: more latents than numbers": (
        latents(store={"shape": replace(LATENT, latent=21)}),
        "Store of 'key': 21 numbers of 1 keys of 20 are their values; one key with at most all of its numbers",
    ),
    "store: latents of several keys": (
        latents(store={"shape": replace(LATENT, kv_heads=2)}),
        "Store of 'key': 12 numbers of 2 keys of 20 are their values",
    ),
    "attend: other latents than the cache's": (
        latents(attend={"shape": replace(LATENT, latent=10)}),
        "Attend of 'query': the number of latent numbers is 10, 12 is needed",
    ),
    "delta: alpha of channels": (
        latents(delta={"alpha": "beta"}),
        "Delta of 'mix': the width of 'beta' is 4, 32 is needed",
    ),
    "delta: rates of heads": (
        latents(delta={"rate": torch.ones(4)}),
        r"Delta of 'mix': the shape of rate is \(4,\), \(32,\) is needed",
    ),
    "embed": (
        model(embed={"table": weight("table", 50, 32)}),
        "Norm of 'x': the width of 'x' is 32, a multiple of 24 is needed",
    ),
    "embed: a stack": (
        model(embed={"table": weight("table", 50, WIDTH, 2)}),
        "Embed of 'x': the number of matrices of 'table' is 2, 1 is needed",
    ),
    "input": (model(input={"width": 20}), "Linear of 'both': the width of 'both' is 44, 48 is needed"),
    "input without numbers": (model(input={"width": 0}), "Input of 'given': the width is 0, min 1"),
    "pick": (model(pick_final={"x": "y"}), "Pick of 'y': it reads 'y', which no earlier operation writes"),
    "tap": (model(tap={"x": "y"}), "Tap 'logits': it reads 'y', which no earlier operation writes"),
    "tap before its pick": (without("pick logits"), "Tap 'logits': it precedes the Pick of 'logits' rows"),
}
WRONG |= stream_sizes.WRONG
MODELS = (OPS, SHORT, LATENTS, SCANNED, stream_sizes.OPS)
KINDS = {type(op).__name__ for model_ops in MODELS for op in model_ops.values()}


@pytest.mark.parametrize("kernels", EXECUTORS)
@pytest.mark.parametrize("what", WRONG)
def test_an_operation_of_sizes_that_do_not_fit_is_refused_by_name_before_a_weight_is_read(what, kernels):
    changed, message = WRONG[what]

    with pytest.raises(ValueError, match=message):
        EXECUTORS[kernels](changed, None)


def test_every_operation_has_a_size_that_is_refused():
    words = " ".join(message for _, message in WRONG.values())

    assert {kind.__name__ for kind in ops.Op.__args__} == KINDS
    assert [kind for kind in KINDS if kind not in words] == []
    sizes.check_sizes(model())
    sizes.check_sizes(short())
    sizes.check_sizes(latents())
    sizes.check_sizes(scan_model())
    sizes.check_sizes(stream_sizes.stream_model())


LARGE = stream_sizes.LARGE | {
    "attention head": (
        model(attend={"shape": replace(HEADS, dim=1024)}),
        "the width of an attention head: 1024 were found, native kernels run at most 576",
    ),
    "convolution": (model(delta={"shape": replace(DELTA, kernel=17)}), "the width of a convolution: 17 were found"),
    "short convolution": (short(conv={"shape": replace(CONV, kernel=17)}), "the width of a convolution: 17 were found"),
    "experts": (model(mixture={"experts": Experts(100, 65)}), "the experts of a row: 65 were found"),
    "clusters": (model(clusters={"used": 257}), "the clusters of a row: 257 were found"),
    "groups": (model(mixture={"experts": Experts(130, 2, groups=65)}), "the groups of experts: 65 were found"),
    "joined values": (model(concat={"xs": ("h",) * 33}), "the values that are joined: 33 were found"),
    "inputs": (
        Model(tuple(ops.Input(f"h{i}", 1) for i in range(33))),
        "the inputs of the model: 33 were found, native kernels run at most 32",
    ),
}


@pytest.mark.parametrize("what", LARGE)
def test_an_operation_larger_than_native_kernels_have_memory_for_is_refused(what):
    large, message = LARGE[what]

    with pytest.raises(ValueError, match=message):
        limits.check_limits(large)


@pytest.mark.parametrize(
    "read",
    [Weight("m", 5, 8), Weight("m", 4, 7), Weight("m", 1, 8, torch.tensor([4])), Weight("m", 2, 8, None, 3)],
    ids=["rows", "columns", "chosen rows", "matrices"],
)
def test_a_weight_of_other_sizes_than_are_stored_is_refused(read):
    with pytest.raises(ValueError, match=r"'m' is stored as \(4, 8\)"):
        check_stored(read, (4, 8))
    check_stored(Weight("m", 4, 8), (4, 8))


@pytest.mark.parametrize("width", [1, 23, 25, 4096])
@pytest.mark.parametrize("kernels", EXECUTORS)
def test_an_embedding_of_another_width_than_the_models_is_refused(kernels, width):
    if kernels == "native" and native.problem() is not None:
        pytest.skip(native.problem())
    executor = EXECUTORS[kernels](Model((OPS["embed"],)), Numbers())
    embeds = {1: torch.zeros(width)}

    with pytest.raises(ValueError, match=rf"the embedding of row 1 has shape \[{width}\], \[24\] is needed"):
        executor.run(ForwardBatch(torch.tensor([1, -1]), torch.tensor([0, 1]), [SequenceRows(None, 0, 2, 0)], embeds))


@pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
def test_an_input_of_fewer_rows_than_the_batch_is_refused():
    executor = Native(Model((OPS["input"], ops.Tap("given", "same"))), Numbers())
    batch = ForwardBatch(None, torch.arange(3), [SequenceRows(None, 0, 3, 0)], inputs={"given": torch.ones(2, WIDTH)})

    with pytest.raises(ValueError, match="input 'given' has 2 rows, the batch has 3"):
        executor.run(batch)


class Numbers:
    """A table of embeddings."""

    def shape(self, name: str) -> tuple[int, ...]:
        return 50, WIDTH

    def type(self, name: str) -> str:
        return "F32"

    def load(self, name: str) -> torch.Tensor:
        return torch.ones(50, WIDTH)

    def blocks(self, name: str) -> torch.Tensor:
        return self.load(name).view(torch.uint8)
