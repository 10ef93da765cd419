"""The command ``spec bench``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
from spec_commands import common
from spec_commands.help import Group
from spec_commands.printing import print_line
from spec_commands.timing_warnings import of_load

from spec_core.errors import UsageError

if TYPE_CHECKING:
    from spec_costs.file import DraftCost
    from spec_costs.limits import Limits

    from spec_bench.step import Cost

KERNEL_ROWS = "1,2,4,8,16,32"


def numbers(text: str, what: str) -> list[int]:
    """``1,2,3``, all above 0. Raises UsageError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= 1 << 20 for part in parts):
        raise UsageError(f"{what} {text[:60]!r} must be numbers above 0", hint=f"write {what} 1,2,8")
    return [int(part) for part in parts]


@click.group(cls=Group)
def bench() -> None:
    """Time a step by rows, drafts by length, the core alone, or products of the native forward by weight type."""


@bench.command()
@common.options(common.MODEL, common.METHODS[:1], common.SAMPLING)
@click.option("--rows", help="Rows of one sequence in a forward; the default is 1 to 64.")
@click.option("--depth", "depths", default="64,448", show_default=True, help="Rows in the cache.")
@click.option("--batch", "batches", default="1", show_default=True, help="Sequences that run as one batch.")
@click.option("--repeats", type=click.IntRange(1), default=20, show_default=True, help="Number of timed steps.")
@click.option("--prompts", type=click.Path(path_type=Path), help="JSONL of prompts, for the drafts of --method.")
@click.option("--out", type=click.Path(path_type=Path), help="A file of costs, for spec compare --costs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def step(as_json: bool, out: Path | None, **flags: Any) -> None:
    """Time steps of n rows: T(n) of the forward, bytes, share of the bandwidth, and the core's own time.

    For each --method also Td(k), what it adds to a step whose draft has k tokens, on texts of the model's prompts.
    """
    from spec_commands import machine

    from spec_bench import bandwidth, cost_warnings, methods, speed_bounds, table
    from spec_bench import step as steps

    choice = common.pop_flags(flags, "rows", "depths", "batches", "repeats", "prompts")
    rows = list(steps.ROWS) if choice["rows"] is None else numbers(choice["rows"], "--rows")
    depths, batches = numbers(choice["depths"], "--depth"), numbers(choice["batches"], "--batch")
    settings = common.settings_of(flags)
    named = methods.chains(settings)
    target = common.checked_target(settings, named.values())
    prompts = methods.prompts(target, choice["prompts"]) if named else []
    drawn = common.sampling_of(settings)
    before = machine.moment()
    costs = [
        cost
        for depth in depths
        for batch in batches
        for cost in steps.measure_steps(target, rows, depth, batch, choice["repeats"], drawn)
    ]
    drafts = methods.measure_methods(target, settings, prompts, choice["repeats"], drawn)
    load = machine.load_between(before, machine.moment())
    warnings = cost_warnings.of_steps(costs) + of_load(load)
    size = target.info.weight_bytes
    reads = None if size is None or target.info.device != "cpu" else bandwidth.bandwidth(int(size))
    limits_by_cost = speed_bounds.limits_of(costs, drafts, settings["draft_max"])
    if out is not None:
        speed_bounds.write_bounds(out, target, costs, drafts, attrs.asdict(load))
    if as_json:
        doubtful = {"warnings": [attrs.asdict(c) for c in warnings], "load": attrs.asdict(load)}
        print_line(common.as_json(body(target, costs, drafts, limits_by_cost, reads) | doubtful))
    else:
        table.steps(target, costs, reads)
        table.print_drafting(drafts, limits_by_cost)
        table.show_warnings(warnings)


def body(
    target: Any, costs: list[Cost], drafts: list[DraftCost], limits_by_cost: list[Limits], reads: float | None
) -> dict[str, Any]:
    """Figures, with the settings and the machine that they depend on."""
    from spec_commands.environment import environment

    executor = {name: getattr(target.info, name) or None for name in ("kernels", "threads")}
    circumstances = {"target": target.info.name, "device": target.info.device, "dtype": target.info.dtype, **executor}
    return {
        **circumstances,
        "bandwidth": reads,
        "steps": [attrs.asdict(c) for c in costs],
        "drafting": [attrs.asdict(c) for c in drafts],
        "limits": [attrs.asdict(limit) for limit in limits_by_cost],
        "environment": environment(),
    }


@bench.command()
@click.option("--steps", type=click.IntRange(1), default=400, show_default=True, help="Steps of a repeat.")
@click.option("--repeats", type=click.IntRange(1), default=9, show_default=True)
@click.option("--against", type=click.Path(path_type=Path), help="Another checkout, measured alternately.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@common.debug_option
def core(steps: int, repeats: int, against: Path | None, as_json: bool) -> None:
    """Time the core alone: a step with a target and a drafter that compute nothing, with one thread."""
    from spec_commands.environment import environment

    from spec_bench import core as alone
    from spec_bench import table

    results = (
        alone.measure_cases(steps, repeats)
        if against is None
        else alone.measure_against(against.resolve(), steps, repeats)
    )
    if as_json:
        body = {"cases": [attrs.asdict(case) for case in results], "steps": steps, "repeats": repeats}
        print_line(common.as_json({**body, "environment": environment()}))
    else:
        table.core(results)


@bench.command()
@click.option("--type", "types", multiple=True, help="A weight type, such as Q8_0; the default is all.")
@click.option("--rows", default=KERNEL_ROWS, show_default=True, help="Rows of a product.")
@click.option("--size", "sizes", multiple=True, type=click.Choice(["cached", "streamed"]), help="The default is both.")
@click.option("--isa", help="An instruction set of this machine; the default is the best.")
@click.option("--threads", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON list.")
@common.debug_option
def kernels(as_json: bool, **flags: Any) -> None:
    """Time products of the native forward: each weight type, with a matrix in the cache and one in memory."""
    import torch
    from spec_commands import machine
    from spec_kernels import native

    from spec_bench import cost_warnings, products, table

    if native.problem():
        raise UsageError(
            f"the native forward is not available: {native.problem()}", hint="install a C compiler, then reinstall"
        )
    if flags["isa"] not in (None, *native.instruction_sets()):
        sets = ", ".join(native.instruction_sets())
        raise UsageError(f"this processor has no {flags['isa']}", hint=f"it has: {sets}")
    rows, sizes = numbers(flags["rows"], "--rows"), flags["sizes"] or tuple(products.SIZES)
    torch.set_num_threads(flags["threads"])
    before = machine.moment()
    measured = [
        product
        for type in products.types(flags["types"])
        for product in products.measure_products(type, rows, flags["repeats"], sizes, flags["isa"])
    ]
    warnings = cost_warnings.of_products(measured) + of_load(machine.load_between(before, machine.moment()))
    if as_json:
        print_line(common.as_json([attrs.asdict(p) for p in measured]))
        for warning in warnings:
            common.print_note(f"warning: {warning.text}")
    else:
        table.kernels(measured)
        table.show_warnings(warnings)
