"""The command ``spec compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from spec_commands import common
from spec_commands.help import Group
from spec_commands.printing import print_line

from spec_compare.servers import options as server_options
from spec_compare.stored import COMMANDS
from spec_core.errors import UsageError

if TYPE_CHECKING:
    from spec_compare.figures.outcome import Outcome

COMPARE = [
    click.option(
        "--contenders", "contenders_file", type=click.Path(path_type=Path), help="A TOML file of [[contender]] tables."
    ),
    click.option(
        "--sweep", "sweeps", multiple=True, metavar="KEY=V,V", help="Every contender once per value; may be repeated."
    ),
    click.option("--dtypes", metavar="T,T", help="Every contender once per dtype, with a table of equality by type."),
    click.option(
        "--golden",
        type=click.Path(path_type=Path),
        metavar="YAML",
        help="Replay acceptance lengths of a file of InferenceX's form, with --rule synthetic.",
    ),
    click.option(
        "--thinking",
        type=click.Choice(["on", "off"]),
        default="on",
        show_default=True,
        help="The thinking mode of --golden.",
    ),
    click.option(
        "--target",
        "targets",
        multiple=True,
        metavar="MODEL",
        help="Every contender on this model too, such as transformers:DIRECTORY; may be repeated.",
    ),
    click.option(
        "--prompts", "file", type=click.Path(path_type=Path), help="JSON lines, a text file, or a directory of them."
    ),
    click.option("--no-prompts", is_flag=True, help="Do not store the prompts with the results."),
    click.option("--suite", help="The public set that --prompts is of, or humaneval of a package."),
    click.option("--prompt-tokens", type=click.IntRange(1), help="Cut prompts to this length."),
    click.option("--lengths", metavar="N,N", help="Extend or cut every prompt to each of these numbers of tokens."),
    click.option("--chat", is_flag=True, help="Apply the model's chat template to prompts, as a user message."),
    click.option("--family", "families", multiple=True, help="Only these families of prompts."),
    click.option("--limit", type=click.IntRange(1), help="Max prompts of each family."),
    click.option("--repeats", type=click.IntRange(1), default=1, show_default=True, help="Measurements per prompt."),
    click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Prompts per batch."),
    click.option("--reuse-turns", is_flag=True, help="A turn of a conversation reuses the rows of the turn before."),
    click.option("--trace", is_flag=True, help="Record the draft of every step."),
    click.option(
        "--oracle",
        "oracles",
        type=click.IntRange(1),
        multiple=True,
        metavar="K",
        help="Add a contender that knows the text and drafts K tokens.",
    ),
    click.option("--bounds/--no-bounds", default=True, help="Measure steps first, for the bounds of speedups."),
    click.option("--exact", is_flag=True, help="Say whether texts are equal by construction; explain differences."),
    click.option("--costs", type=click.Path(path_type=Path), help="Costs that spec bench step --out wrote."),
]


GROUPS = {
    "Results": ("out", "report", "against", "wide", "as_json", "no_prompts", "rerun"),
    "Contenders": ("contenders_file", "sweeps", "dtypes", "golden", "thinking", "targets", "oracles"),
    "Prompts": ("file", "suite", "prompt_tokens", "lengths", "chat", "families", "limit"),
    "Measurement": (
        "repeats", "batch", "reuse_turns", "trace", "bounds", "exact", "costs", "executor", "ray_address",
    ),
} | server_options.GROUP  # fmt: skip
"""Groups of the command's own options in its help."""


@click.group(cls=Group, groups=GROUPS, invoke_without_command=True, subcommand_metavar="[COMMAND]")
@common.options(common.MODEL, common.METHODS, common.GENERATION, COMPARE, server_options.OPTIONS)
@click.option("--out", type=click.Path(path_type=Path), help="A directory for results; an interrupted run continues.")
@click.option(
    "--executor",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where it runs: this process, or the machines of a Ray cluster, each with a part of the contenders.",
)
@click.option(
    "--ray-address", metavar="ADDRESS", help="The cluster; the default is RAY_ADDRESS, else one started here."
)
@click.option(
    "--rerun", type=click.Path(path_type=Path), metavar="BUNDLE", help="Run the comparison of a bundle again."
)
@click.option("--report", type=click.Path(path_type=Path), help="An HTML file with tables, figures and texts.")
@click.option("--against", metavar="NAME", help="Show every contender against this one too.")
@click.option("--wide", is_flag=True, help="All columns, however wide.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON object.")
@click.pass_context
def compare(
    ctx: click.Context,
    out: Path | None,
    executor: str,
    ray_address: str | None,
    rerun: Path | None,
    report: Path | None,
    against: str | None,
    wide: bool,
    as_json: bool,
    **flags: Any,
) -> int | None:
    """Compare methods with plain decoding, or servers with each other, measured in the same run.

    Each --method is a contender; A+B is a chain of two. The default prompts come with the model. If a contender's
    text differs from plain decoding's, its speed is not shown and the exit code is 1.
    Instead of "prompt", a line of --prompts may have "messages", a chat for the model's template, or "tokens", ids.
    """
    if ctx.invoked_subcommand is not None:
        _check_alone(ctx)
        return None
    server_options.check_flags(_flags_on_line(ctx), flags["urls"])
    servers = common.pop_flags(flags, *server_options.SERVER_FLAGS)
    if rerun is not None:
        _check_rerun(ctx)
        if ctx.get_parameter_source("bounds") is not ParameterSource.COMMANDLINE:
            flags["bounds"] = None
    if against is not None and rerun is None and not servers["urls"]:
        _check_against(flags, against)
    if executor == "ray":
        return _on_ray(out, flags, ray_address, report, against, wide, as_json)
    if ray_address is not None:
        raise UsageError("--ray-address was passed without --executor ray", hint="pass both, or neither")
    if report is not None:
        from spec_compare.report import page, svg

        svg.check_matplotlib()
        flags["trace"] = not servers["urls"]
    exact = flags["exact"]
    result, lines, equal = _measure(out, flags, rerun, servers)
    if report is not None:
        page.write_report_page(report, result)
    if as_json:
        print_line(common.as_json(result.body()))
    else:
        _show(result, wide, against, exact)
    for line in lines:
        common.print_note(line) if as_json else print_line(line)
    return 0 if equal else 1


def _measure(
    out: Path | None, flags: dict[str, Any], bundle: Path | None, servers: dict[str, Any]
) -> tuple[Outcome, list[str], bool]:
    """The outcome, lines on a bundle that was run again, and whether every text is as it must be."""
    if servers["urls"]:
        from spec_compare.servers.comparison import compare_servers

        result = compare_servers(out, flags, servers)
        return result, [], not result.differences
    if bundle is None:
        from spec_compare.measuring.comparison import run_comparison

        result = run_comparison(out, flags)
        return result, [], not result.differences
    from spec_compare.rerun import MOVABLE, run_again, statement

    changed = {name: flags[name] for name in MOVABLE if flags[name] is not None}
    before, result, texts = run_again(bundle, changed, flags["file"], flags, out)
    return result, statement(bundle, before, result, texts), texts.equal == texts.texts


def _flags_on_line(ctx: click.Context) -> dict[str, str]:
    """{parameter: option} of the command line."""
    return {
        param.name: param.opts[0]
        for param in ctx.command.params
        if param.name and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    }


RERUN = ("rerun", "model", "device", "dtype", "threads", "context", "file", "bounds", "costs", "exact", "no_prompts")
OUTPUT = ("trace", "out", "report", "against", "wide", "as_json")
"""Options that `--rerun` may be combined with."""


def _check_rerun(ctx: click.Context) -> None:
    """Raise UsageError for an option that the bundle decides."""
    for name, option in _flags_on_line(ctx).items():
        if name not in (*RERUN, *OUTPUT):
            raise UsageError(
                f"{option} cannot be combined with --rerun: the bundle decides it",
                hint="leave it out; -m, --device, --threads, --prompts, --out and --report can be set",
            )


def _on_ray(
    out: Path | None,
    flags: dict[str, Any],
    address: str | None,
    report: Path | None,
    against: str | None,
    wide: bool,
    as_json: bool,
) -> int:
    """The parts one after the other, as their machines measured them: figures of two machines are never pooled."""
    from spec_ray import comparing

    if report is not None:
        raise UsageError("--report is one of one machine", hint="spec compare report OUT/part-0 FILE, of every part")
    exact = flags["exact"]
    parts = comparing.run_parts(out, flags, address)
    if as_json:
        print_line(common.as_json({"parts": {name: result.body() for name, result in parts.items()}}))
    for name, result in parts.items() if not as_json else ():
        print_line(f"{name}, measured on {result.header.host}")
        _show(result, wide, against, exact)
    return 1 if any(result.differences for result in parts.values()) else 0


def _show(outcome: Outcome, wide: bool, against: str | None, exact: bool) -> None:
    from spec_compare.figures import table
    from spec_compare.measuring import exactness

    table.show_outcome(outcome, wide, against)
    for line in [exactness.statement(target) for target in outcome.header.targets] if exact else []:
        print_line(line)


def _check_against(flags: dict[str, Any], against: str) -> None:
    """Raise UsageError for the name of no contender, before anything is loaded."""
    from spec_compare.figures import titles
    from spec_compare.measuring import contenders, experiment

    entered = [entry for entry in experiment.from_flags(dict(flags)).entered if entry.methods]
    places = titles.places({entry.settings["model"] for entry in entered})
    names = contenders.named_all(entered, places)
    if len(names) < 2 or not any(name == against or name.startswith(f"{against} ") for name in names):
        known = ", ".join(names) or "none"
        raise UsageError(
            f"--against {against!r} names no contender that can be compared with another one",
            hint=f"there are {known}",
        )


def _check_alone(ctx: click.Context) -> None:
    """Raise UsageError for an option before the name of a subcommand: it would have no effect."""
    if passed := [*_flags_on_line(ctx).values()]:
        raise UsageError(
            f"{passed[0]} is no option of `spec compare {ctx.invoked_subcommand}`",
            hint=f"write options after the name; see spec compare {ctx.invoked_subcommand} --help",
        )


for command in COMMANDS:
    compare.add_command(command)
