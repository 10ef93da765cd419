"""The command ``spec audit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
from spec_commands import common
from spec_commands.help import Command
from spec_commands.printing import print_line

from spec_audit.budget import BUDGETS, Budget
from spec_core.errors import UsageError

if TYPE_CHECKING:
    from spec_audit.probe import Connection
    from spec_audit.verdict import Result

GROUPS = {
    "Arms": ("plain", "off", "model", "chat", "key_env"),
    "Extent": ("budget", "prompts", "seed", "concurrency", "timeout"),
    "Results": ("report", "as_json", "record"),
}
FORMAT = 1
"""Version of the JSON."""


@click.command(cls=Command, groups=GROUPS)
@click.argument("url")
@click.option("--plain", metavar="URL", help="The same model without drafts.")
@click.option("--off", metavar="FIELD=VALUE", help="What switches drafts off in a request: a field, or llama-server.")
@click.option("--model", help="Name of the model; the default is the first one that the server lists.")
@click.option("--chat", is_flag=True, help="Ask for chats, also if the server has completions.")
@click.option("--key-env", metavar="NAME", help="The environment variable with the server's key.")
@click.option("--budget", type=click.Choice(list(BUDGETS)), default="small", show_default=True, help="How much to ask.")
@click.option("--prompts", type=click.Path(path_type=Path), help="JSON lines of prompts; the default has 24.")
@click.option("--seed", type=int, default=0, show_default=True, help="Equal seeds send equal requests.")
@click.option(
    "--concurrency", type=click.IntRange(1, 32), default=4, show_default=True, help="Max requests at the same time."
)
@click.option(
    "--timeout", type=click.FloatRange(1, 3600), default=120, show_default=True, help="Max seconds of a request."
)
@click.option("--report", type=click.Path(path_type=Path), help="An HTML file with the table, faults and conditions.")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.option("--record", type=click.Path(path_type=Path), help="A file of all answers; it is kept.")
@common.debug_option
def audit(url: str, report: Path | None, as_json: bool, **flags: Any) -> int:
    """Check from outside whether a server with drafts answers as it would without.

    URL is any server with OpenAI's API. It is compared with --plain, or with itself by --off. If a promise fails, its
    requests are printed as lines of curl and the exit code is 1. An interrupted audit continues with the same command.
    """
    from spec_audit.statistics import check_installed

    check_installed()
    result = _run(url, flags, report)
    if as_json:
        print_line(common.as_json(as_body(result)))
    else:
        from spec_audit.table import show_result

        show_result(result)
    return 1 if result.with_status("fails") else 0


def as_body(result: Result) -> dict[str, Any]:
    """The result as JSON, by the schema in ``schema.json``."""
    return {"format": FORMAT, **attrs.asdict(result)}


def _run(url: str, flags: dict[str, Any], report: Path | None) -> Result:
    """The result, after its report was written: the answers are kept until then."""
    from spec_commands.html_page import write_page

    from spec_audit.audit import Audit, read_prompts, take_in_turns
    from spec_audit.page import report_page
    from spec_audit.progress import show_progress
    from spec_audit.record import Record, default_folder, digest_of
    from spec_audit.run import cost_of, run_audit

    connection, budget = _connection(url, flags), BUDGETS[flags["budget"]]
    known = read_prompts(flags["prompts"])
    prompts = take_in_turns(known, budget.prompts)
    if flags["prompts"] and len(prompts) < len(known):
        common.print_note(f"{len(prompts)} of {len(known)} prompts are used, of all categories in turn")
    limit = cost_of(budget)
    common.print_note(
        f"at most {limit.requests:,} requests for {limit.tokens:,} tokens, {connection.concurrency} at once"
    )
    session = connection.session()
    about = _about(connection, budget, flags, [[p.id, p.family, p.given] for p in prompts])
    about |= {"answers": [*(arm.model for arm in session.arms.values()), session.api, session.text]}
    kept = flags["record"]
    session.record = record = Record(kept or default_folder() / f"{digest_of(about)}.jsonl", about)
    if record.answers:
        common.print_note(f"continuing after {len(record.answers):,} answers of {record.path}")
    complete = False
    try:
        running = Audit(session, budget, prompts, flags["seed"], flags["key_env"])
        with show_progress(running, limit.requests):
            result = run_audit(running)
        if report is not None:
            write_page(report, report_page(result))
        complete = True
        return result
    except KeyboardInterrupt:
        common.print_note(f"interrupted: the same command continues after {len(record.answers):,} answers")
        raise
    finally:
        record.close(remove=complete and kept is None)


def _about(connection: Connection, budget: Budget, flags: dict[str, Any], prompts: list[Any]) -> dict[str, Any]:
    """What must be equal for an audit to continue."""
    own = attrs.asdict(connection, filter=attrs.filters.exclude("make"))
    return {**own, "budget": attrs.asdict(budget), "seed": flags["seed"], "prompts": prompts, "format": FORMAT}


def _connection(url: str, flags: dict[str, Any]) -> Connection:
    from spec_commands.http_client import Client, check_url
    from spec_commands.servers.models import parse_switch, read_key

    from spec_audit.probe import Connection

    if flags["plain"] and flags["off"]:
        raise UsageError("--plain and --off were both passed", hint="pass one of them")
    if flags["off"]:
        parse_switch(flags["off"])
    key = read_key(flags["key_env"])
    return Connection(
        check_url(url),
        check_url(flags["plain"]) if flags["plain"] else None,
        flags["off"],
        flags["model"],
        flags["chat"],
        flags["concurrency"],
        lambda address: Client(address, key, flags["timeout"]),
    )
