"""The ``spec`` program. Commands arrive by entry point; torch is imported by the ones that run a model."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
import traceback
from typing import TextIO

import click

from spec_cli.debug import DEBUG, debug_option, debugging
from spec_core import prepare
from spec_core.commands import Entry, core_fields, discover, find, imported
from spec_core.errors import LoadError, PluginError, SpecError, UsageError, nearest

INTERRUPTED = 130
STDOUT = 1
"""The number of the standard output."""
COLLECT = 50_000
"""New objects between two garbage collections: by default 700 are, and a start makes a million that stay."""
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO)
"""Errors of an output that takes nothing more: full, too long, closed or broken."""
HINT = "standard output must be open and have room, or send it elsewhere: spec ... > FILE"


class Commands(click.Group):
    """Commands are what is installed in the group ``spec_core.commands``."""

    def _entries(self) -> dict[str, Entry]:
        return {entry.name: entry for entry in discover(["command"])}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._entries())

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return imported(find(name, ["command"])) if name in self._entries() else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple:
        known = self._entries()
        if args and not args[0].startswith("-") and args[0] not in known:
            raise UsageError(f"spec has no command {args[0]!r}", hint=f"commands: {nearest(args[0], known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line per command; one that cannot be imported says so, and does not take the help away."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _about(entry)) for name, entry in sorted(self._entries().items())])


def _about(entry: Entry) -> str:
    try:
        return imported(entry).get_short_help_str(limit=100)
    except UsageError as error:
        return error.reason


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="spec-core", prog_name="spec")
@debug_option
def cli() -> None:
    """Speculative decoding with methods as plugins: generate, compare, look inside.

    Results go to standard output, progress and notes to standard error. Exit code 1 is a failure, 2 a refusal.
    """


def main(argv: list[str] | None = None) -> None:
    """Run the program: a user's mistake is one message with a hint, a bug keeps its traceback."""
    gc.set_threshold(COLLECT)
    if sys.stdout is None:
        sys.stdout = _closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a character is no reason to stop
            stream.reconfigure(errors="replace")
    sys.exit(run(argv))


def _closed() -> TextIO:
    """In the place of a standard output that the caller closed: writing fails, and no other file gets its number."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    if descriptor != STDOUT:
        os.dup2(descriptor, STDOUT)
        os.close(descriptor)
    return open(STDOUT, "w", encoding="utf-8", closefd=False)


def run(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    prepare()
    flags: dict[str, bool] = {}
    try:
        value = cli.main(argv, prog_name="spec", standalone_mode=False, obj=flags)
        sys.stdout.flush()
        return value if isinstance(value, int) else 0
    except SpecError as error:
        _tell(error, flags)
        return 2 if isinstance(error, UsageError) else 1
    except click.ClickException as error:
        error.show()
        if said := _instead(error):
            click.echo(f"  {said}", err=True)
        return 2
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        click.echo(f"error: the output cannot be written: {error.strerror}\n  {HINT}", err=True)
        return _reader_left()


def _instead(error: click.ClickException) -> str | None:
    """What to write in place of an option or an argument that there is not."""
    if isinstance(error, click.NoSuchOption):
        name = error.option_name.lstrip("-").replace("-", "_")
        if name in core_fields():
            return f"{name} is a setting: write -o {name}=VALUE"
        root = error.ctx is not None and error.ctx.parent is None
        return "options of a command stand after its name: spec generate -m MODEL" if root else None
    if "unexpected extra argument" in error.message:
        return "every value has an option before it, as in -m MODEL or -p PROMPT; --help lists them"
    return None


def _tell(error: SpecError, flags: dict[str, bool]) -> None:
    """The message and its hint, and the traceback where it was asked for."""
    if debugging(flags):
        click.echo("".join(traceback.format_exception(error)), err=True)
    click.echo(f"error: {error.reason}\n  {error.hint}", err=True)
    if isinstance(error, (PluginError, LoadError)) and not debugging(flags):
        click.echo(f"  --debug or {DEBUG}=1 shows the traceback", err=True)


def _reader_left() -> int:
    """Nobody reads on: no complaint, and none from the interpreter when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
    return 1


if __name__ == "__main__":
    main()
