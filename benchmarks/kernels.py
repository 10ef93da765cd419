"""Times of the operators of a verify step on a GPU, against the time to move the bytes they need.

One sequence, layers of the sizes of Qwen3-Next-80B-A3B, bfloat16 with float32 states: 1 row (plain decoding) and K + 1
rows (a verify step). The floor is bytes over bandwidth: weights, cached rows and states read once, results written
once, at the rate of a large copy on the same device. Times are medians of replayed graphs over uncached copies of the
inputs. Every operator is compared with its reference before any time is printed.

    python benchmarks/kernels.py [--rows K+1] [--context T] [--json]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from collections.abc import Callable
from datetime import date
from importlib import metadata
from typing import Any

import attrs
import torch
from spec_kernels.ops import attention, causal_conv, gated_delta, moe, rms_norm, rope
from spec_kernels.ops.attention import causal_mask
from spec_kernels.ops.lineage import Lineage
from torch import Tensor
from torch.nn import functional as F

COLD = 512 << 20
"""Bytes of inputs that are used before one is used again; larger than any cache."""
MAX_MEMORY = 8 << 30
REPEATS = 30
RATIO = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
"""Max root mean square difference from the reference, relative to the reference's."""
Arguments = dict[str, Any]


@attrs.frozen
class Sizes:
    """A hybrid model: three gated delta nets to one attention layer, experts everywhere."""

    width: int = 2048
    heads: int = 16
    kv_heads: int = 2
    head: int = 256
    rotated: int = 64
    key_heads: int = 16
    value_heads: int = 32
    key_dim: int = 128
    value_dim: int = 128
    window: int = 4
    experts: int = 512
    top: int = 10
    inner: int = 512
    vocab: int = 151_936
    context: int = 4096
    layers: int = 48

    @property
    def channels(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@attrs.frozen
class Item:
    """One operator at one number of rows; a forward of the model has ``count`` of them.

    reference: computes the expected results, None for a library's product    touched: bytes it has to move
    """

    name: str
    count: int
    op: Callable[..., Any]
    reference: Callable[..., Any] | None
    make: Callable[[], Arguments]
    touched: Callable[[Arguments], int]


def size(*tensors: Tensor) -> int:
    return sum(t.nbytes for t in tensors)


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def product(name: str, count: int, rows: int, inputs: int, outputs: int) -> Item:
    """A dense layer, computed by the library."""
    make = lambda: {"input": normal(rows, inputs), "mat2": normal(inputs, outputs)}
    return Item(name, count, torch.mm, None, make, lambda a: size(*a.values()) + 2 * rows * outputs)


def products(s: Sizes, rows: int) -> list[Item]:
    values, deltas, full = s.value_heads * s.value_dim, s.layers * 3 // 4, s.layers // 4
    return [
        product("delta in", deltas, rows, s.width, s.channels + values + 2 * s.value_heads),
        product("delta out", deltas, rows, values, s.width),
        product("attention in", full, rows, s.width, 2 * (s.heads + s.kv_heads) * s.head),
        product("attention out", full, rows, s.heads * s.head, s.width),
        product("router", s.layers, rows, s.width, s.experts),
        product("shared expert in", s.layers, rows, s.width, 2 * s.inner),
        product("shared expert out", s.layers, rows, s.inner, s.width),
        product("head", 1, rows, s.width, s.vocab),
    ]


def norms(s: Sizes, rows: int) -> list[Item]:
    def make() -> Arguments:
        return {"x": normal(rows, s.width), "weight": normal(s.width), "eps": 1e-6}

    touched_bytes = lambda a: 2 * size(a["x"]) + size(a["weight"])
    return [Item("rms_norm", 2 * s.layers + 1, rms_norm.rms_norm, rms_norm.reference.rms_norm, make, touched_bytes)]


def attending(s: Sizes, rows: int) -> list[Item]:
    """Attention of the last rows over all cached ones."""

    def turn() -> Arguments:
        frequencies = 1e7 ** -torch.linspace(0, 1, s.rotated // 2)
        x, positions = normal(rows, s.heads + s.kv_heads, s.head), s.context + torch.arange(rows)
        return {"x": x, "positions": positions, "frequencies": frequencies, "pairs": "halves"}

    def look() -> Arguments:
        q, k, v = (normal(n, h, s.head) for n, h in ((rows, s.heads), (s.context, s.kv_heads), (s.context, s.kv_heads)))
        return {"q": q, "k": k, "v": v, "visible": causal_mask(rows, s.context), "scale": s.head**-0.5}

    return [
        Item("rope", s.layers // 4, rope.rope, rope.reference.rope, turn, lambda a: 2 * size(a["x"])),
        Item("attention", s.layers // 4, attention.attention, attention.reference.attention, look,
             lambda a: 2 * size(a["q"]) + size(a["k"], a["v"], a["visible"])),
    ]  # fmt: skip


def lineage(rows: int, kept: bool) -> Lineage:
    """One pending row, whose state is committed, and drafts, whose states are traced or not stored."""
    drafts = list(range(1, rows)) if kept else [-1] * (rows - 1)
    return Lineage(list(range(-1, rows - 1)), [0] * rows, [0, *drafts], [0])


def recurrent(s: Sizes, rows: int) -> list[Item]:
    """Trace modes: the states of all drafts, or none (their inputs are views of existing tensors)."""
    count, state = s.layers * 3 // 4, 4 * s.value_heads * s.key_dim * s.value_dim

    def convolve() -> Arguments:
        x, weight = normal(rows, s.channels, dtype=torch.float32), normal(s.window, s.channels, dtype=torch.float32)
        windows = normal(rows, s.window - 1, s.channels, dtype=torch.float32)
        return {"x": x, "weight": weight, "windows": windows, "lineage": lineage(rows, kept=False)}

    def delta(kept: bool) -> Arguments:
        q, k = (F.normalize(normal(rows, s.key_heads, s.key_dim, dtype=torch.float32), dim=-1) for _ in range(2))
        inputs = {"q": q * s.key_dim**-0.5, "k": k, "v": normal(rows, s.value_heads, s.value_dim, dtype=torch.float32)}
        inputs |= {"g": -torch.rand(rows, s.value_heads), "beta": torch.rand(rows, s.value_heads)}
        states = normal(rows, s.value_heads, s.key_dim, s.value_dim, dtype=torch.float32)
        key_of = torch.arange(s.value_heads) // (s.value_heads // s.key_heads)
        return inputs | {"states": states, "lineage": lineage(rows, kept), "key_of": key_of}

    def moved_bytes(kept: bool) -> Callable[[Arguments], int]:
        written = rows if kept else 1
        return lambda a: state * (1 + written) + size(a["q"], a["k"]) + 3 * size(a["v"])

    conv, rule = causal_conv.causal_conv, gated_delta.gated_delta
    plain_conv, plain_rule = causal_conv.reference.causal_conv, gated_delta.reference.gated_delta
    return [
        Item("causal_conv", count, conv, plain_conv, convolve,
             lambda a: 2 * size(a["x"]) + size(a["weight"]) + 2 * size(a["windows"][0])),
        Item("gated_delta, inputs traced", count, rule, plain_rule, lambda: delta(False), moved_bytes(False)),
        Item("gated_delta, states traced", 0, rule, plain_rule, lambda: delta(True), moved_bytes(True)),
    ]  # fmt: skip


def mixing(s: Sizes, rows: int) -> list[Item]:
    def choose() -> Arguments:
        return {"logits": normal(rows, s.experts, dtype=torch.float32), "top": s.top, "normalise": True}

    def ask() -> Arguments:
        weights, chosen = torch.rand(rows, s.experts).topk(s.top)
        gate, up, down = (normal(s.experts, *shape) * s.width**-0.5
                          for shape in ((s.inner, s.width), (s.inner, s.width), (s.width, s.inner)))  # fmt: skip
        return {"x": normal(rows, s.width), "weights": weights, "chosen": chosen, "gate": gate, "up": up, "down": down}

    asked_bytes = lambda a: size(a["gate"][0], a["up"][0], a["down"][0]) * len(a["chosen"].unique()) + 2 * size(a["x"])
    return [
        Item("route", s.layers, moe.route, moe.reference.route, choose, lambda a: size(a["logits"])),
        Item("experts", s.layers, moe.experts, moe.reference.experts, ask, asked_bytes),
    ]


def items(s: Sizes, rows: int) -> list[Item]:
    """All operators of a forward of ``rows`` rows."""
    return [item for part in (products, norms, attending, recurrent, mixing) for item in part(s, rows)]


def make_inputs(item: Item, device: str) -> Arguments:
    with torch.device(device):
        return item.make()


def on(device: str, arguments: Arguments) -> Arguments:
    return {name: a.to(device, copy=True) if isinstance(a, Tensor) else a for name, a in arguments.items()}


def difference(item: Item, given: Arguments) -> float:
    """Root mean square of the first result minus that of the reference on a CPU, over the latter's; 0 for products."""
    if item.reference is None:
        return 0.0
    plain, fast = item.reference(**on("cpu", given)), item.op(**given)
    first = lambda m: (m[0] if isinstance(m, tuple) else m).cpu().double()
    return float((first(fast) - first(plain)).norm() / first(plain).norm())


def check(item: Item) -> None:
    """Raises SystemExit if the results of an operator are wrong."""
    given = make_inputs(item, "cuda")
    allowed = RATIO[next(a.dtype for a in given.values() if isinstance(a, Tensor))]
    error = difference(item, given)
    if not error < allowed:
        raise SystemExit(f"{item.name}: {error:.1e} off its reference, {allowed:.0e} is allowed; nothing is timed")


def time(item: Item, rate: float) -> tuple[float, float]:
    """Seconds of one call in a graph of calls over uncached inputs, and its floor."""
    given = make_inputs(item, "cuda")
    touched, held = item.touched(given), size(*(a for a in given.values() if isinstance(a, Tensor)))
    copies = [given, *(on("cuda", given) for _ in range(min(COLD // touched, MAX_MEMORY // held, 64)))]
    for arguments in copies[:3]:
        item.op(**arguments)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for arguments in copies:
            item.op(**arguments)
    return median(graph.replay) / len(copies), touched / rate


def median(call: Callable[[], object]) -> float:
    """Seconds measured on the device."""
    times = []
    for _ in range(REPEATS + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times[3:])


def bandwidth() -> float:
    """Bytes per second of a large copy, read and written."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / median(lambda: target.copy_(source))


def measure(s: Sizes, rows: int, rate: float) -> list[dict[str, Any]]:
    """One line per operator: seconds with 1 row and with ``rows``, and the floors; the last is the whole forward."""
    lines = []
    for one, many in zip(items(s, 1), items(s, rows), strict=True):
        check(one)
        check(many)
        line = {"op": many.name, "count": many.count}
        line["seconds_1"], line["floor_1"] = time(one, rate)
        line["seconds_n"], line["floor_n"] = time(many, rate)
        lines.append(line)
        torch.cuda.empty_cache()
    keys = ("seconds_1", "floor_1", "seconds_n", "floor_n")
    return [*lines, {"op": "forward", "count": 1} | {k: sum(n["count"] * n[k] for n in lines) for k in keys}]


def circumstances(rows: int, s: Sizes, rate: float) -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name(),
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": metadata.version("triton"),
        "bytes_per_second": rate,
        "rows": rows,
        "sizes": attrs.asdict(s),
    }


def show(lines: list[dict[str, Any]], rows: int) -> None:
    print(
        f"{'operator':28}{'calls':>6}{'1 row, µs':>12}{f'{rows} rows, µs':>12}{'ratio':>7}{'floor, µs':>12}{'gap':>7}"
    )
    for line in lines:
        one, many, floor = (line[key] for key in ("seconds_1", "seconds_n", "floor_n"))
        numbers = f"{one * 1e6:12.1f}{many * 1e6:12.1f}{many / one:12.2f}{floor * 1e6:12.1f}{many / floor:12.2f}"
        print(f"{line['op']:28}{line['count']:6}{numbers}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=8, help="rows of a verify step, K + 1")
    parser.add_argument("--context", type=int, default=4096, help="cached rows")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: torch finds no CUDA device; nothing was measured")
        return
    torch.manual_seed(0)
    sizes, rate = Sizes(context=options.context), bandwidth()
    facts, lines = circumstances(options.rows, sizes, rate), measure(sizes, options.rows, rate)
    if options.json:
        print("\n".join(json.dumps(facts | line) for line in lines))
        return
    print(", ".join(f"{name} {value}" for name, value in facts.items() if name != "sizes"))
    show(lines, options.rows)


if __name__ == "__main__":
    main()
