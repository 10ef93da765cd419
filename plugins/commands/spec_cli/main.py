"""The ``spec`` program. Commands are found by entry point; torch is imported only by commands that run a model."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
import traceback
import warnings
from typing import Any, TextIO

import click
from spec_commands.debug import DEBUG, debug_option, is_debugging
from spec_commands.help import divide_commands, first_sentence
from spec_commands.printing import print_line

from spec_core.commands import (
    Entry,
    InstalledWarning,
    call_before_torch,
    core_fields,
    discover_plugins,
    find_plugin,
    import_plugin,
)
from spec_core.errors import LoadError, PluginError, SpecError, UsageError, nearest_names

INTERRUPTED = 130
SHOW_WARNING = warnings.showwarning
STDOUT = 1
"""File descriptor of standard output."""
COLLECT = 50_000
"""New objects between two garbage collections. The default is 700; start-up makes a million objects that stay."""
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO)
"""Errors of an output that cannot be written to: full, too long, closed or broken."""
HINT = "standard output must be open and its disk not full; to write to a file: spec ... > FILE"


ORDER = {
    "Use a model": ("get", "generate", "chat", "serve"),
    "Measure": ("compare", "audit", "replay", "bench"),
    "Look": ("env", "plugins", "settings", "compat", "doctor"),
    "Write and train": ("new", "check", "train", "draft", "score"),
    "Other engines": ("vllm", "sglang"),
}
"""Commands in an order of use; other packages' are listed after these."""


class Commands(click.Group):
    """Group of the commands that are entry points of ``spec_core.commands``."""

    def _entries(self) -> dict[str, Entry]:
        return {entry.name: entry for entry in discover_plugins(["command"])}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in divide_commands(self._entries(), ORDER).values() for name in names]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return command_of(find_plugin(name, ["command"])) if name in self._entries() else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple:
        known = self._entries()
        if args and not args[0].startswith("-") and args[0] not in known:
            raise UsageError(f"spec has no command {args[0]!r}", hint=f"commands: {nearest_names(args[0], known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Every command with its first sentence, in an order of use; one that cannot be imported with its error."""
        entries = self._entries()
        for title, names in divide_commands(entries, ORDER).items():
            with formatter.section(title):
                formatter.write_dl([(name, _about(entries[name])) for name in names])


def command_of(entry: Entry) -> click.Command:
    """The command that an entry point names. Raises UsageError if it names none."""
    command = import_plugin(entry)
    if not isinstance(command, click.Command):
        raise UsageError(
            f"command {entry.name!r} of {entry.distribution} {entry.version} is of type {type(command).__name__}, "
            "a click command is needed",
            hint=f"decorate it with @click.command(), or remove it: pip uninstall {entry.distribution}",
        )
    return command


def _about(entry: Entry) -> str:
    try:
        return first_sentence(command_of(entry))
    except UsageError as error:
        return error.reason


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="spec-core", prog_name="spec")
@debug_option
def cli() -> None:
    """Speculative decoding with methods as plugins: generate, compare, inspect.

    Results go to standard output, progress and notes to standard error. Exit code 1 is a failure, 2 a refusal.
    """


def main(argv: list[str] | None = None) -> None:
    """Run the program: a user's mistake prints a message with a hint, a bug prints a traceback."""
    gc.set_threshold(COLLECT)
    if sys.stdout is None:
        sys.stdout = _replace_closed_stdout()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # replace characters that the terminal cannot show
            stream.reconfigure(errors="replace")
    warnings.showwarning = _show_warning
    sys.exit(run_command(argv))


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """A warning about an installed package in the look of errors; others as Python shows them."""
    if issubclass(category, InstalledWarning):
        print_line(f"warning: {message}", err=True)
    else:
        SHOW_WARNING(message, category, *where, **more)


def _replace_closed_stdout() -> TextIO:
    """Replace a closed standard output: writing fails, and no other file gets its descriptor."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    if descriptor != STDOUT:
        os.dup2(descriptor, STDOUT)
        os.close(descriptor)
    return open(STDOUT, "w", encoding="utf-8", closefd=False)


def run_command(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    call_before_torch()
    flags: dict[str, bool] = {}
    try:
        value = cli.main(argv, prog_name="spec", standalone_mode=False, obj=flags)
        sys.stdout.flush()
        return value if isinstance(value, int) else 0
    except SpecError as error:
        _tell(error, flags)
        return 2 if isinstance(error, UsageError) else 1
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        print_line(f"error: {_problem(error)}\n  {_instead(error) or _help(error)}", err=True)
        return 2
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        print_line(f"error: the output cannot be written: {error.strerror}\n  {HINT}", err=True)
        return _reader_left()


def _problem(error: click.ClickException) -> str:
    """The message in the look of our own: it begins with a small letter and has no full stop."""
    text = error.format_message().rstrip(".")
    return text[:1].lower() + text[1:]


def _help(error: click.ClickException) -> str:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return f"see {ctx.command_path if ctx is not None else 'spec'} --help"


def _instead(error: click.ClickException) -> str | None:
    """A hint for an unknown option or an unexpected argument."""
    if isinstance(error, click.NoSuchOption):
        name = error.option_name.lstrip("-").replace("-", "_")
        if name in core_fields():
            return f"{name} is a setting: write -o {name}=VALUE"
        root = error.ctx is not None and error.ctx.parent is None
        return "write a command's options after its name: spec generate -m MODEL" if root else None
    if "unexpected extra argument" in error.message:
        return "every value needs an option, as in -m MODEL or -p PROMPT; see --help"
    return None


def _tell(error: SpecError, flags: dict[str, bool]) -> None:
    """Print the message and its hint, and the traceback if requested."""
    if is_debugging(flags):
        print_line("".join(traceback.format_exception(error)), err=True)
    print_line(f"error: {error.reason}\n  {error.hint}", err=True)
    if isinstance(error, (PluginError, LoadError)) and not is_debugging(flags):
        print_line(f"  --debug or {DEBUG}=1 shows the traceback", err=True)


def _reader_left() -> int:
    """The reader closed the pipe: exit without an error, also when the interpreter flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
    return 1


if __name__ == "__main__":
    main()
