"""``spec check``: the promises of the contract, tested on an installed plugin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
from spec_commands import common
from spec_commands.help import Command
from spec_commands.printing import print_line

from spec_cli.badge import badge as badge_of
from spec_core.commands import PLUGIN_KINDS, Entry, discover_plugins, find_plugin, import_plugin, parse_method
from spec_core.errors import UsageError, nearest_names

if TYPE_CHECKING:
    from spec_core.testing import Outcome

KITS = {
    "method": "DrafterConformance",
    "rule": "RuleConformance",
    "rollback": "RollbackConformance",
    "control": "ControllerConformance",
    "target": "TargetConformance",
}
DECLARED = ("tolerance", "batch_tolerance")
"""Attributes of a kit's class that ``--declare`` may set."""
WORDS = {"true": True, "false": False}


@click.command(cls=Command)
@click.argument("plugin")
@click.option("-m", "--model", help="Test it on this model in place of the kit's toy model.")
@click.option("--declare", multiple=True, metavar="NAME=VALUE", help="An intended deviation, as on the test class.")
@click.option(
    "--badge",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the result as an SVG image, or as JSON for shields.io.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per promise.")
def check(plugin: str, model: str | None, declare: tuple[str, ...], badge: Path | None, as_json: bool) -> int:
    """Test the promises of the contract on an installed plugin. Exit code 1 if one is broken.

    PLUGIN is NAME, NAME=FILE or NAME:key=value; for a target SCHEME:LOCATION.
    """
    entry, make = subject(plugin)
    declared: dict[str, Any] = declarations(declare)
    if model is not None:
        from spec_core import load

        target = load(model)
        declared["target"] = lambda: target
    outcomes = outcomes_of(entry, make, declared)
    for outcome in outcomes:
        if as_json:
            print_line(common.as_json(attrs.asdict(outcome)))
        elif outcome.result == "broken":
            print_line(f"broken: {outcome.promise}\n  {short_finding(outcome)}")
    counts: Counter[str] = Counter(outcome.result for outcome in outcomes)
    if badge is not None:
        write_badge(badge, counts)
    common.print_note(
        f"{entry.kind} {entry.name} of {entry.distribution} {entry.version}: {counts['kept']} promises kept, "
        f"{counts['broken']} broken, {counts['skipped']} not applicable"
    )
    return 1 if counts["broken"] else 0


def subject(plugin: str) -> tuple[Entry, Callable[[], Any]]:
    """The entry of what is tested, and what makes a new one. Raises UsageError."""
    from spec_core import load
    from spec_core.commands import construct_plugin

    scheme, colon, location = plugin.partition(":")
    if colon and any(entry.name == scheme for entry in discover_plugins(("target",))):
        return find_plugin(scheme, ("target",)), lambda: load(f"{scheme}:{location}")
    name, settings = parse_method(plugin)
    entry = find_plugin(name, PLUGIN_KINDS)
    cls = import_plugin(entry)
    construct_plugin(cls, settings, name)
    return entry, lambda: construct_plugin(cls, settings, name)


def short_finding(outcome: Outcome) -> str:
    """The finding, without the command that runs the check alone in pytest."""
    return outcome.found.partition("found: ")[2].rpartition("\n")[0]


def declarations(texts: Iterable[str]) -> dict[str, Any]:
    """{attribute: value} from NAME=VALUE. Raises UsageError."""
    named: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in DECLARED:
            raise UsageError(f"--declare {text}: unknown", hint=f"declare one of: {nearest_names(name, DECLARED)}")
        try:
            named[name] = float(value) if "tolerance" in name else WORDS.get(value.lower(), value)
        except ValueError as error:
            raise UsageError(f"--declare {text}: {value!r} is no number", hint=f"write {name}=0.001") from error
    return named


def outcomes_of(entry: Entry, make: Callable[[], Any], declared: dict[str, Any]) -> list[Outcome]:
    """The outcome of every promise. Raises UsageError without pytest, and if the plugin refuses the target."""
    try:
        from spec_core import testing

        kit, conform = getattr(testing, KITS[entry.kind]), testing.check_conformance
    except ImportError as error:
        raise UsageError(f"the conformance kit needs {error.name}", hint="pip install pytest") from error
    if entry.kind in ("method", "control", "rollback"):
        recurrent = entry.kind == "rollback"
        target = declared["target"]() if "target" in declared else testing.ToyTarget(recurrent=recurrent)
        check_accepts(target, [] if recurrent else [make()], make() if recurrent else None)
    return conform(kit, make, **declared)


def check_accepts(target: Any, methods: list[Any], rollback: Any) -> None:
    """Raise UsageError if a plugin refuses the target of the checks."""
    from spec_core.commands import check_plugins as check_together
    from spec_core.errors import Refused

    try:
        check_together(target, methods, None, rollback, {})
    except Refused as error:
        raise UsageError(error.reason, hint=f"{error.hint}, or name a model that it accepts: -m MODEL") from error


def write_badge(file: Path, counts: Counter[str]) -> None:
    """The number of kept promises, or of broken ones."""
    try:
        common.write_file(file, badge_of(counts["kept"], counts["broken"], file.suffix).encode())
    except OSError as error:
        raise common.write_error(file, error) from error
