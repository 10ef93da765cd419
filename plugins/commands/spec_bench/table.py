"""Tables of the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from spec_commands.printing import say
from spec_commands.timing_warnings import TimingWarning
from spec_costs.file import DraftCost
from spec_costs.limits import Limits, sentence

from spec_bench.core import CaseTime, Ratio
from spec_bench.products import Product
from spec_bench.step import Cost

COLUMNS = (
    "  rows    T(n) ms     median   ratio      MB   GB/s  of reading  choosing µs  core µs  around    step ms"
    "     CPU ms"
)


def steps(target: Any, costs: list[Cost], reads: float | None) -> None:
    """A table for every depth and batch; ratios are to its first row."""
    info = target.info
    say(f"{info.name} on {info.device}, {info.dtype}, threads: {info.threads or None}")
    say(f"kernels: {info.kernels or 'not reported'}")
    if reads is not None:
        say(f"reading bytes of the weights' size: {reads / 1e9:.1f} GB/s")
    for (depth, batch), group in groupby(costs, key=lambda c: (c.depth, c.batch)):
        say(f"\ndepth {depth}, batch {batch}")
        say(COLUMNS)
        costs_here = list(group)
        for cost in costs_here:
            say(_step(cost, costs_here[0], reads))


def _step(cost: Cost, first: Cost, reads: float | None) -> str:
    moved = f"{'-':>8}{'-':>7}{'-':>12}"
    if cost.bandwidth is not None and cost.bytes is not None:
        share = "-" if reads is None else f"{cost.bandwidth / reads:.0%}"
        moved = f"{cost.bytes / 1e6:8.1f}{cost.bandwidth / 1e9:7.1f}{share:>12}"
    times = (
        f"{cost.rows:6}{cost.forward * 1e3:11.3f}{cost.forward_median * 1e3:11.3f}{cost.forward / first.forward:8.2f}"
    )
    parts = f"{cost.choosing * 1e6:13.0f}{cost.core * 1e6:9.0f}{cost.overhead:8.0%}"
    return f"{times}{moved}{parts}{cost.step * 1e3:11.3f}{cost.step_cpu * 1e3:11.3f}"


def drafting(drafts: list[DraftCost], limits_by_cost: list[Limits]) -> None:
    """A line for every method, then the bounds and break-even acceptances of every depth and batch."""
    for method, group in groupby(drafts, key=lambda d: d.method):
        times = ", ".join(f"{d.drafts}: {d.seconds * 1e3:.3f} ({d.steps})" for d in group)
        say(f"\n{method}: ms added to a step by draft length (steps): {times}")
    for limit in limits_by_cost:
        say(f"\ndepth {limit.depth}, batch {limit.batch}: {sentence(limit)}")


def core(results: Sequence[CaseTime | Ratio]) -> None:
    """A line for every case: microseconds of a step."""
    for case in results:
        if isinstance(case, Ratio):
            figures = f"{case.median:9.1f} µs, there {case.theirs:9.1f} µs, ratio {case.ratio:.2f}"
        else:
            figures = f"{case.median:9.1f} µs, best {case.best:9.1f} µs"
        say(f"{case.case:32}{figures}")


def kernels(measured: Iterable[Product]) -> None:
    """A line for every weight type, activation format and size."""
    say("type  activations  size      rows: ms, CPU ms (GMAC/s, GB/s)")
    for (type, bits, size), group in groupby(measured, key=lambda p: (p.type, p.activations, p.size)):
        say(f"{type:6}{bits:13}{size:10}" + "  ".join(map(_product, group)))


def _product(p: Product) -> str:
    rates = f"{p.multiplications / p.seconds / 1e9:.0f}, {p.bytes / p.seconds / 1e9:.1f}"
    return f"{p.rows}: {p.seconds * 1e3:.3f}, {p.cpu_seconds * 1e3:.3f} ({rates})"


def show_warnings(warnings: Iterable[TimingWarning]) -> None:
    """The lines below a table."""
    for warning in warnings:
        say(f"warning: {warning.text}")
