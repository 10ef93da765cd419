"""Tables of the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from spec_commands.printing import print_line
from spec_commands.tables import WIDE, Cells, show_table
from spec_commands.timing_warnings import TimingWarning
from spec_costs.file import DraftCost
from spec_costs.limits import Limits, sentence

from spec_bench.core import CaseTime, Ratio
from spec_bench.products import Product
from spec_bench.step import Cost

COLUMNS = (
    "rows", "T(n) ms", "median", "ratio", "MB", "GB/s", "of reading", "choosing µs", "core µs", "around", "step ms",
    "CPU ms",
)  # fmt: skip


def steps(target: Any, costs: list[Cost], reads: float | None) -> None:
    """A table for every depth and batch; ratios are to its first row."""
    info = target.info
    print_line(f"{info.name} on {info.device}, {info.dtype}, threads: {info.threads or None}")
    print_line(f"kernels: {info.kernels or 'not reported'}")
    if reads is not None:
        print_line(f"reading bytes of the weights' size: {reads / 1e9:.1f} GB/s")
    for (depth, batch), group in groupby(costs, key=lambda c: (c.depth, c.batch)):
        first, *others = group
        rows = [_step(cost, first, reads) for cost in (first, *others)]
        show_table(Cells(COLUMNS, rows, ()), WIDE, f"\ndepth {depth}, batch {batch}")


def _step(cost: Cost, first: Cost, reads: float | None) -> list[str]:
    moved = ["-", "-", "-"]
    if cost.bandwidth is not None and cost.bytes is not None:
        share = "-" if reads is None else f"{cost.bandwidth / reads:.0%}"
        moved = [f"{cost.bytes / 1e6:.1f}", f"{cost.bandwidth / 1e9:.1f}", share]
    times = [f"{cost.forward * 1e3:.3f}", f"{cost.forward_median * 1e3:.3f}", f"{cost.forward / first.forward:.2f}"]
    parts = [f"{cost.choosing * 1e6:.0f}", f"{cost.core * 1e6:.0f}", f"{cost.overhead:.0%}"]
    return [str(cost.rows), *times, *moved, *parts, f"{cost.step * 1e3:.3f}", f"{cost.step_cpu * 1e3:.3f}"]


def print_drafting(drafts: list[DraftCost], limits_by_cost: list[Limits]) -> None:
    """A line for every method, then the bounds and break-even acceptances of every depth and batch."""
    for method, group in groupby(drafts, key=lambda d: d.method):
        times = ", ".join(f"{d.drafts}: {d.seconds * 1e3:.3f} ({d.steps})" for d in group)
        print_line(f"\n{method}: ms added to a step by draft length (steps): {times}")
    for limit in limits_by_cost:
        print_line(f"\ndepth {limit.depth}, batch {limit.batch}: {sentence(limit)}")


def core(results: Sequence[CaseTime | Ratio]) -> None:
    """A line for every case: microseconds of a step."""
    times = [[c.case, f"{c.median:.1f}", f"{c.best:.1f}"] for c in results if isinstance(c, CaseTime)]
    ratios = [[c.case, f"{c.median:.1f}", f"{c.theirs:.1f}", f"{c.ratio:.2f}"] for c in results if isinstance(c, Ratio)]
    if times:
        show_table(Cells(("case", "median µs", "best µs"), times, {"case"}), WIDE)
    if ratios:
        show_table(Cells(("case", "median µs", "there µs", "ratio"), ratios, {"case"}), WIDE)


def kernels(measured: Iterable[Product]) -> None:
    """A line for every weight type, activation format, size and number of rows."""
    titles = ("type", "activations", "size", "rows", "ms", "CPU ms", "GMAC/s", "GB/s")
    show_table(Cells(titles, [_product(p) for p in measured], {"type"}), WIDE)


def _product(product: Product) -> list[str]:
    rates = [f"{product.multiplications / product.seconds / 1e9:.0f}", f"{product.bytes / product.seconds / 1e9:.1f}"]
    times = [f"{product.seconds * 1e3:.3f}", f"{product.cpu_seconds * 1e3:.3f}"]
    return [product.type, str(product.activations), product.size, str(product.rows), *times, *rates]


def show_warnings(warnings: Iterable[TimingWarning]) -> None:
    """The lines below a table."""
    for warning in warnings:
        print_line(f"warning: {warning.text}")
