"""The gated delta rule on a device, rows, trees and runs, against the plain torch form; and what a cache of windows
keeps, and whom a router chooses.

In triton's interpreter where there is no device. What lies between the rows of an input is NaN, so that a kernel that
reads beside a row is found.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.gpu import delta_rule
from spec_kernels.gpu.delta_rule import Pieces, Rows, Solved, by_channel, compute_rows, compute_runs
from spec_kernels.gpu.routing import route_into, route_sigmoid_into
from spec_kernels.gpu.windows import Links, keep_windows, kept_spans
from spec_kernels.ops import causal_conv, moe
from spec_kernels.ops import gated_delta as reference
from spec_kernels.ops.gated_delta.plan import PIECE, plan
from spec_kernels.ops.lineage import Lineage

Arguments = dict[str, Any]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
RATIO = 2e-6 if DEVICE.type == "cpu" else 1e-5
"""Max root mean square difference: a device's exponential of x is off by about 2**-22 + |x| / 2**24 of its size."""


@pytest.fixture(autouse=True)
def seed_torch():
    torch.manual_seed(0)


def spread(m: Tensor) -> Tensor:
    """Rows with NaN in the memory between them."""
    memory = torch.full((len(m), m[0].numel() + 5), torch.nan, dtype=m.dtype, device=m.device)
    rows = memory[:, : m[0].numel()].unflatten(1, m.shape[1:])
    return rows.copy_(m)


def chain(rows: int, keep: int = 0, runs: tuple[tuple[int, int], ...] = ()) -> Lineage:
    """One sequence, its last row kept."""
    return Lineage(list(range(-1, rows - 1)), [0] * rows, [-1] * (rows - 1) + [keep], [0], list(runs))


def ragged_lineage(kept: bool) -> Lineage:
    """A chain that keeps its pending rows, a tree of drafts, one row alone. Drafts are kept, or none of them is."""
    drafts = [3, 4, 5, 6, 7] if kept else [-1] * 5
    return Lineage(
        parents=[-1, 0, 1, 2, -1, 4, 4, 5, 5, 6, -1],
        source=[0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2],
        keep=[-1, 0, -1, -1, 1, *drafts, 2],
        begins=[0, 4, 10],
    )


def with_runs() -> Lineage:
    """A prompt as runs and single rows, and a sequence that starts with a run and then branches."""
    first = [-1, *range(2 + 19 + 16)]
    return Lineage(
        parents=[*first, -1, *range(38, 55), 55, 55, 56],
        source=[0] * 38 + [1] * 21,
        keep=[*[-1] * 37, 0, *[-1] * 17, 1, -1, 4, -1],
        begins=[0, 38],
        chunks=[(2, 19), (21, 16), (38, 16)],
    )


KEY_OF = {"tiled": [0, 1, 0, 1], "grouped": [0, 0, 1, 1], "shared": [0, 0]}
"""Key head that serves each value head."""


def for_delta(lineage: Lineage, decay: str = "head", heads: str = "shared") -> Arguments:
    """States that no row starts from are NaN."""
    key_of, key_dim, value_dim = torch.tensor(KEY_OF[heads]), 20, 10
    rows, value_heads = lineage.rows, len(key_of)
    q, k = (F.normalize(torch.randn(rows, 1 + int(key_of.max()), key_dim), dim=-1) for _ in range(2))
    states = torch.randn(9, value_heads, key_dim, value_dim)
    states[[i for i in range(9) if i not in lineage.source]] = torch.nan
    return {
        "q": spread(q * key_dim**-0.5),
        "k": spread(k),
        "v": spread(torch.randn(rows, value_heads, value_dim)),
        "g": spread(-3 * torch.rand((rows, value_heads) if decay == "head" else (rows, value_heads, key_dim))),
        "beta": spread(torch.rand(rows, value_heads)),
        "states": states,
        "lineage": lineage,
        "key_of": key_of,
    }


def for_repeats() -> Arguments:
    """One key in every row, without decay, with full writes: the worst conditioned run."""
    arguments = for_delta(chain(21, runs=((0, 19),)), "head")
    ones = torch.ones(21, 2)
    return arguments | {"k": spread(arguments["k"][:1].expand(21, 1, 20)), "g": spread(0 * ones), "beta": spread(ones)}


def for_forgetting() -> Arguments:
    """Decays whose sums exceed the range of exponentials in some channels at once, in others never."""
    arguments = for_delta(chain(21, runs=((0, 19),)), "channel")
    return arguments | {"g": spread(arguments["g"] * torch.tensor([0.0, 1.0, 100.0, 1000.0]).repeat(5))}


def for_scan(lineage: Lineage, heads: str = "shared") -> Arguments:
    """Mamba-2: keys and queries of any length, values written by steps of any size, and a skip."""
    arguments = for_delta(lineage, "head", heads)
    rows, value_heads = arguments["beta"].shape
    more = {name: spread(torch.randn(arguments[name].shape)) for name in ("q", "k")}
    return arguments | more | {"beta": spread(2 * torch.rand(rows, value_heads)), "skip": torch.randn(value_heads)}


def gated_delta(arguments: Arguments) -> tuple[Tensor, Tensor]:
    """o and d by the kernels, stage by stage; states are overwritten."""
    own = {name: m.to(DEVICE) if isinstance(m, Tensor) else m for name, m in arguments.items()}
    lineage, states, v = own["lineage"], own["states"], own["v"]
    heads, key_dim, value_dim = states.shape[1:]
    whole = plan(lineage)
    room = lambda *shape: torch.full(shape, torch.nan, device=DEVICE)
    o, d, aside = room(*v.shape), room(*v.shape), room(whole.asides, heads, key_dim, value_dim)
    packed = (m.contiguous() for m in (own["q"], own["k"], v, own["beta"]))
    g = by_channel(own["g"], own["k"])
    rows = Rows(*packed, g, states, states[0].numel(), own["key_of"], aside, o, d, own.get("skip"))
    for number, stage in enumerate(whole.stages):
        if not stage.pieces:
            continue
        numbers = lambda m: torch.tensor(m, dtype=torch.int64, device=DEVICE)
        pieces = Pieces(numbers(stage.pieces), numbers(stage.spans))
        if number % 2:
            widths = key_dim, value_dim, PIECE
            compute_runs(rows, pieces, Solved(*(room(len(stage.pieces), heads, PIECE, width) for width in widths)))
        else:
            compute_rows(rows, pieces)
    arguments["states"].copy_(states)
    return o.cpu(), d.cpu()


def close(kernel: Tensor, plain: Tensor) -> None:
    assert torch.equal(kernel.isnan(), plain.isnan())
    assert (kernel - plain).nan_to_num().norm() <= RATIO * plain.nan_to_num().norm()


def plain_rule(arguments: Arguments) -> tuple[Tensor, Tensor]:
    """o and d in torch."""
    skip = arguments.pop("skip", None)
    if skip is None:
        return reference.gated_delta(**arguments)
    o, d = reference.scan(**arguments)
    return o + skip[:, None] * arguments["v"], d


CASES = {
    "one-row": lambda: for_delta(chain(1)),
    "chain": lambda: for_delta(chain(3), "head", "grouped"),
    "kept": lambda: for_delta(ragged_lineage(kept=True), "head", "tiled"),
    "kept-channel": lambda: for_delta(ragged_lineage(kept=True), "channel", "grouped"),
    "tree-laid-aside": lambda: for_delta(ragged_lineage(kept=False)),
    "runs": lambda: for_delta(with_runs()),
    "runs-channel": lambda: for_delta(with_runs(), "channel"),
    "runs-repeats": for_repeats,
    "runs-forgetting": for_forgetting,
    "scan-of-one-row": lambda: for_scan(chain(1)),
    "scan-kept": lambda: for_scan(ragged_lineage(kept=True), "tiled"),
    "scan-laid-aside": lambda: for_scan(ragged_lineage(kept=False), "grouped"),
    "scan-of-runs": lambda: for_scan(with_runs()),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels_agree_with_the_rule(name):
    arguments = CASES[name]()
    plain = {**arguments, "states": arguments["states"].clone()}

    for kernel, expected in zip(gated_delta(arguments), plain_rule(plain), strict=True):
        close(kernel, expected)
    close(arguments["states"], plain["states"])


def test_a_node_of_a_tree_has_the_bits_of_its_path_token_by_token():
    """One row per step, each kept where the next begins: outputs and the last state are equal bit for bit."""
    arguments = for_delta(ragged_lineage(kept=True))
    alone = arguments["states"].clone()
    o, _ = gated_delta(arguments)

    for row in (4, 6, 9):
        one = {name: arguments[name][row : row + 1] for name in ("q", "k", "v", "g", "beta")}
        single = arguments | one | {"states": alone, "lineage": Lineage([-1], [1], [1], [0])}
        assert torch.equal(o[row], gated_delta(single)[0][0])
    assert torch.equal(arguments["states"][7], alone[1])


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a CUDA device: torch sees none")
@pytest.mark.parametrize("name", ["kept", "tree-laid-aside", "runs"])
def test_a_repeated_call_gives_the_same_bits(name):
    """A race between threads, or between a state that is written and one that is read, moves bits now and then."""
    arguments = CASES[name]()
    states = arguments["states"].clone()
    first, after = gated_delta(arguments), arguments["states"].clone()

    for _ in range(50):
        arguments["states"].copy_(states)
        assert all(torch.equal(a, b) for a, b in zip(first, gated_delta(arguments), strict=True))
        assert torch.equal(after.nan_to_num(), arguments["states"].nan_to_num())


def test_columns_of_a_state_fit_in_one_warp():
    assert delta_rule.COLUMNS * 4 == 32


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("lineage", [chain(1), chain(5), ragged_lineage(kept=True), ragged_lineage(kept=False)])
def test_windows_after_kept_rows(lineage, width):
    x, windows, weight = spread(torch.randn(lineage.rows, 20)), torch.randn(9, width - 1, 20), torch.randn(width, 20)
    expected = windows.clone()
    causal_conv.causal_conv(x, weight, expected, lineage)
    numbers = lambda m: torch.tensor(m, dtype=torch.int64, device=DEVICE)
    links = Links(numbers(lineage.parents), numbers(lineage.source), numbers(lineage.keep))
    kept = windows.to(DEVICE)
    keep_windows(x.to(DEVICE), kept, windows[0].numel(), links, numbers(kept_spans(lineage)))

    assert torch.equal(kept.cpu(), expected)


def choices(rows: int, top: int) -> tuple[Tensor, Tensor]:
    return torch.full((rows, top), torch.nan, device=DEVICE), torch.zeros(rows, top, dtype=torch.int64, device=DEVICE)


@pytest.mark.parametrize("rows, count, top, normalise", [(5, 13, 3, True), (3, 64, 8, False), (1, 5, 5, True)])
def test_routes_are_those_of_the_reference(rows, count, top, normalise):
    logits = spread(torch.randn(rows, count))
    weights, chosen = choices(rows, top)
    route_into(weights, chosen, logits.to(DEVICE), normalise, 2.5)
    expected, experts = moe.route_rows(logits, top, normalise, 2.5)

    close(weights.cpu(), expected)
    assert torch.equal(chosen.cpu(), experts)


@pytest.mark.parametrize("rows, count, top, groups, used", [(5, 13, 3, 1, 1), (7, 15, 4, 5, 2), (3, 16, 5, 4, 4)])
def test_routes_of_sigmoid_scores(rows, count, top, groups, used):
    """Biases are large enough to change the choice of experts."""
    logits, bias = spread(torch.randn(rows, count)), torch.randn(count) / 8
    weights, chosen = choices(rows, top)
    route_sigmoid_into(weights, chosen, logits.to(DEVICE), bias.to(DEVICE), True, 2.5, groups, used)
    expected, experts = moe.route_sigmoid(logits, bias, top, True, 2.5, groups, used)

    close(weights.cpu(), expected)
    assert torch.equal(chosen.cpu(), experts)


def test_experts_are_distinct_where_weights_vanish():
    """Beside a certain expert all others have weight 0; they are still chosen once each."""
    weights, chosen = choices(1, 5)
    route_into(weights, chosen, torch.arange(7.0, device=DEVICE)[None] * 200, True, 1.0)

    assert weights.tolist() == [[1, 0, 0, 0, 0]]
    assert chosen[0, 0] == 6 and len(set(chosen[0].tolist())) == 5
