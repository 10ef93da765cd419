"""Options that commands share, and the settings made from them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from spec_commands.completion import complete_model, complete_names
from spec_commands.debug import debug_option
from spec_commands.json_text import format_json
from spec_commands.printing import PASSING, json_safe, print_line
from spec_core.commands import (
    FLAG,
    PLUGIN_KINDS,
    Settings,
    discover_plugins,
    find_misspelt,
    find_plugin,
    import_plugin,
    name_of,
    read_file,
    resolve_layers,
    setting_owners,
    settings_file,
)
from spec_core.errors import UsageError, error_message, nearest_names

if TYPE_CHECKING:
    from torch import Tensor

    from spec_core import Description, Run, Target
    from spec_core.commands import PluginInstance, Prepared

MODEL = [
    click.option(
        "-m",
        "--model",
        shell_complete=complete_model,
        help="GGUF file, Hugging Face directory, or scheme:location such as zoo:pico.",
    ),
    click.option("--device", help="cpu, cuda, or auto."),
    click.option("--dtype", help="float32, bfloat16, float16, or auto."),
    click.option("--threads", type=int, help="CPU threads; the default is measured."),
    click.option("--context", type=int, help="Max positions of a sequence; the default is what the model declares."),
    click.option(
        "-o", "options", multiple=True, metavar="KEY=VALUE", help="A setting: key=value of the core, or NAME.key=value."
    ),
    click.option("--config", type=click.Path(path_type=Path), help="Settings file; the default is ./spec.toml."),
    debug_option,
]
METHODS = [
    click.option(
        "--method",
        "methods",
        multiple=True,
        shell_complete=complete_names("method", "choice"),
        metavar="NAME[=FILE]",
        help="A method; may be repeated. NAME:key=value,key=value sets its settings.",
    ),
    click.option("--rule", shell_complete=complete_names("rule"), help="Acceptance rule; the default is lossless."),
    click.option(
        "--rollback",
        shell_complete=complete_names("rollback"),
        help="Owner of the recurrent state, if several are installed.",
    ),
    click.option(
        "--control",
        shell_complete=complete_names("control"),
        help="What decides how much is drafted: fixed, or a controller's name.",
    ),
]
SAMPLING = [
    click.option("--temperature", type=float, help="0 is greedy."),
    click.option("--top-k", "top_k", type=int, help="Keep the K most likely tokens."),
    click.option("--top-p", "top_p", type=float, help="Keep the most likely tokens up to this total probability."),
    click.option("--min-p", "min_p", type=float, help="Drop tokens below this fraction of the highest probability."),
    click.option("--repetition-penalty", "repetition_penalty", type=float, help="Divides logits of seen tokens."),
    click.option("--presence-penalty", "presence_penalty", type=float, help="Subtracted once from tokens of the text."),
    click.option("--frequency-penalty", "frequency_penalty", type=float, help="Subtracted for each occurrence."),
]
GENERATION = [
    click.option("-n", "--max-tokens", "max_tokens", type=int, help="Max tokens to generate."),
    *SAMPLING,
    click.option("--seed", type=int, help="Equal seeds give equal texts."),
]

NARROW = ("float16", "bfloat16")
"""Dtypes that most CPUs convert to float32 and back around every product."""


def pop_flags(flags: dict[str, Any], *names: str) -> dict[str, Any]:
    """Remove a command's own flags from all flags; the rest are settings."""
    return {name: flags.pop(name) for name in names}


def options(*groups: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """A decorator that adds these groups of options to a command."""

    def decorate(command: Any) -> Any:
        for option in reversed([o for group in groups for o in group]):
            command = option(command)
        return command

    return decorate


def settings_of(flags: dict[str, Any]) -> Settings:
    """Settings from the flags of a command, the environment and the file. Removes the shared flags from ``flags``."""
    config, options = flags.pop("config", None), flags.pop("options", ())
    values = {name: value for name, value in flags.items() if value not in (None, ())}
    for text in options:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"-o {text!r} must be KEY=VALUE", hint="write -o draft_max=4, or -o PLUGIN.key=value")
        values[key] = value
    plugins = setting_owners()
    for variable, nearly in find_misspelt(os.environ, plugins).items():
        print_note(f"warning: {variable} is not a setting and is ignored; did you mean {nearly}?")
    if file := settings_file(config, os.environ):
        print_note(f"settings: {file.absolute()}")
    return resolve_layers(values, os.environ, read_file(config, os.environ), plugins)


def describe_model(settings: Settings) -> Description:
    """The model that the settings name, from its metadata. Raises UsageError if they name none."""
    from spec_core import describe

    return describe(model_of(settings), **load_options(settings))


def load_target(description: Description, **changes: Any) -> Target:
    """The target with its weights. changes: see ``Description.load``."""
    target = description.load(**changes)
    if warning := slow_dtype(target):
        print_note(warning)
    return target


def model_of(settings: Settings) -> str:
    """The location of the model. Raises UsageError if none was named."""
    if settings["model"] is None:
        raise UsageError("no model was named", hint="name one: -m zoo:pico, or model = ... in spec.toml")
    return str(settings["model"])


def load_options(settings: Settings) -> dict[str, Any]:
    """Options of a loader: always device, dtype, threads and context, the rest only if it is set."""
    import attrs

    from spec_core.commands import LoadSettings

    values, always = settings.build(LoadSettings), ("device", "dtype", "threads", "context")
    fields = attrs.fields(LoadSettings)
    return {f.name: v for f in fields if (v := getattr(values, f.name)) != f.default or f.name in always}


def prepare_run(settings: Settings, methods: Iterable[Any] | None = None) -> Prepared:
    """The settings' run, or one with other methods, checked from metadata. Raises UsageError, Refused."""
    from spec_core.commands import prepare

    prepared = prepare(
        model_of(settings),
        settings["methods"] if methods is None else methods,
        settings["rule"],
        settings["rollback"],
        plugin_settings(settings),
        settings["control"],
        **load_options(settings),
    )
    check_used(settings, {c.name for c in prepared.plugins})
    drafters = [c for c in prepared.plugins if c.proposals]
    for note in [*prepared.notes, *(note for c in drafters for note in c.compat.notes)]:
        print_note(note)
    return prepared


def load_run(prepared: Prepared, settings: Settings, **changes: Any) -> Run:
    """A prepared run with its weights. changes: fields of RunSettings in place of the settings'."""
    import attrs

    from spec_core import RunSettings

    run = prepared.load(attrs.evolve(settings.build(RunSettings), **changes))
    if warning := slow_dtype(run.target):
        print_note(warning)
    note_owners([run], settings)
    return run


def slow_dtype(target: Target) -> str | None:
    """A note if the target's dtype is slow on its device, else None."""
    if not target.info.device.startswith("cpu") or target.info.dtype not in NARROW:
        return None
    return f"{target.info.dtype} is emulated in most products on a CPU and slow; --dtype float32 is faster here"


def checked_target(
    settings: Settings,
    chains: Iterable[Iterable[Any]],
    before: Callable[[Target, list[PluginInstance]], None] = lambda target, plugins: None,
) -> Target:
    """The target, loaded after every chain of methods has accepted its metadata. Raises UsageError, Refused.

    before: called with the target's metadata and the plugins before any weight is read.
    """
    description, plugins = describe_model(settings), []
    for methods in chains:
        plugins += _check_fit(description.target, methods, settings)
    check_used(settings, {c.name for c in plugins})
    before(description.target, plugins)
    return load_target(description)


def _check_fit(target: Target, methods: Iterable[Any], settings: Settings) -> list[PluginInstance]:
    from spec_core.commands import check_plugins

    settings_by_plugin = plugin_settings(settings)
    return check_plugins(
        target, methods, settings["rule"], settings["rollback"], settings_by_plugin, settings["control"]
    )


def run_of(
    target: Target, settings: Settings, methods: Iterable[Any] | None = None, judged: bool = True, **changes: Any
) -> Run:
    """A run with the settings' plugins, or with other methods.

    judged: False leaves the settings' rule out, as for plain decoding in a comparison.
    """
    import attrs

    from spec_core import Run, RunSettings

    names = settings["methods"] if methods is None else list(methods)
    return Run(
        target,
        methods=names,
        rule=settings["rule"] if judged else None,
        rollback=settings["rollback"],
        plugin_settings=plugin_settings(settings),
        settings=attrs.evolve(settings.build(RunSettings), **changes),
        control=settings["control"],
    )


def note_owners(runs: Iterable[Run], settings: Settings) -> None:
    """Note each plugin that restores the target's state without having been named."""
    specs = [*settings["methods"], settings["rollback"] or ""]
    named = {name_of(part) for spec in specs for part in spec.split("+") if part}
    owners = {
        c.name: c.compat.owns
        for run in runs
        for c in run.plugins
        if c.compat.owns and c.name not in named and c.plugin is not run.target
    }
    for name, owns in owners.items():
        print_note(f"{name} restores the target's {' and '.join(sorted(owns))} state after rejected drafts")


def check_used(settings: Settings, names: Iterable[str]) -> None:
    """Raise UsageError for a flag that sets a plugin which is not one of these.

    Settings of other plugins in the file or the environment are noted if they are none.
    """
    names = set(names)
    note_misspelt(settings, names)
    for name, setting in settings.table.items():
        plugin, dot, _ = name.partition(".")
        if dot and setting.origin == FLAG and plugin not in names:
            theirs = plugin not in installed_names()
            raise UsageError(
                f"-o {name} was passed, but {plugin} is not used in this run",
                hint=f"it is a setting of `spec {plugin}`; leave it out"
                if theirs
                else f"add {_flag(plugin)} {plugin}, or leave the setting out",
            )


def note_misspelt(settings: Settings, used: set[str]) -> None:
    """Warn of settings that plugins which this run does not use have not; used plugins' are refused."""
    for name, setting in settings.table.items():
        plugin, dot, key = name.partition(".")
        if not dot or setting.origin == FLAG or plugin in used or plugin not in installed_names():
            continue
        try:
            known = fields_of(import_plugin(find_plugin(plugin)))
        except UsageError:
            continue  # it cannot be imported here, and is not used
        if key not in known:
            print_note(
                f"warning: {plugin} has no setting {key!r} ({setting.origin}); it has: {nearest_names(key, known)}"
            )


def fields_of(cls: Any) -> list[str]:
    """Names of the settings of a plugin class."""
    import attrs

    fields = attrs.fields(cls) if attrs.has(cls) else ()
    return [field.name for field in fields if field.init and not field.name.startswith("_")]


def _flag(plugin: str) -> str:
    """The option that names an installed plugin of this kind."""
    kind = find_plugin(plugin).kind
    return "--method" if kind == "method" else f"--{kind}"


def plugin_settings(settings: Settings) -> dict[str, dict[str, Any]]:
    """{plugin: its settings}; tables of commands are not among them."""
    names = {name.partition(".")[0] for name in settings.table if "." in name} & installed_names()
    return {name: settings.values_of(name) for name in names}


def sampling_of(settings: Settings, **more: Any) -> Any:
    from spec_core import Sampling

    return Sampling(**{name: settings[name] for name in Sampling.NAMES}, **more)


def token_ids(text: str) -> list[int]:
    """The value of ``--tokens``. Raises UsageError for anything but token ids."""
    return numbers(text, "--tokens", "token ids")


def numbers(text: str, option: str, of: str) -> list[int]:
    """``1,2,3`` as numbers. of: what they are, for the error. Raises UsageError for anything else."""
    try:
        return [int(part) for part in text.replace(" ", "").split(",") if part]
    except ValueError as error:
        raise UsageError(f"{option} {text[:60]!r} must be {of}", hint=f"write {option} 1,2,3") from error


def save_tensors(tensors: dict[str, Tensor], out: Path) -> None:
    """Write a safetensors file and note its tensors. Raises UsageError if it cannot be written."""
    from safetensors.torch import save as serialised

    data = serialised({name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()})
    try:
        write_file(out, data)
    except OSError as error:
        raise write_error(out, error) from error
    print_note(f"{out}: {', '.join(f'{name} {list(t.shape)}' for name, t in tensors.items())}")


def write_file(out: Path, data: bytes) -> None:
    """Replace a regular file atomically; write directly to anything else, such as a device or pipe. Raises OSError."""
    if out.exists() and not out.is_file():
        out.write_bytes(data)
        return
    out = Path(os.path.realpath(out))
    part = out.with_name(f"{out.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def write_error(out: Path, error: Exception) -> UsageError:
    return UsageError(f"{out} cannot be written: {error_message(error)}", hint="pass a writable path as --out")


def is_terminal(stream: TextIO) -> bool:
    """Whether lines can be overwritten and coloured: a terminal, and TERM is not "dumb"."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def show_loading(settings: Settings) -> Iterator[None]:
    """Say on a terminal which model is being loaded, by the name that the user wrote, until it is."""
    if is_terminal(sys.stderr):
        PASSING.show(f"loading {model_of(settings)}")
    try:
        yield
    finally:
        PASSING.clear()


def print_note(text: str) -> None:
    """Print progress or a remark on standard error."""
    print_line(text, err=True)


def as_json(value: Any) -> str:
    """JSON in one line; control characters are escapes, wherever they came from."""
    return json_safe(format_json(value))


def installed_names() -> set[str]:
    """Names of the installed plugins that a run can use."""
    return {entry.name for entry in discover_plugins(PLUGIN_KINDS)}
