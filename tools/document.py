"""Generates pages of the documentation and JSON schemas from the program: ``python -m tools.document docs``."""

from __future__ import annotations

import inspect
import sys
from functools import partial
from pathlib import Path

import attrs
from spec_compare.figures import summary_schema
from spec_compare.records import schema

from spec_core import hookspecs
from spec_core.assembly.discovery import TABLES as COMMANDS
from spec_core.assembly.discovery import discover_plugins, import_plugin, installed_points
from spec_core.assembly.hooks import HOOKS
from spec_core.settings.tables import TABLES, ChoiceSettings, LoadSettings, RunSettings, TextSettings
from tools.architectures import architectures
from tools.drafters import drafters
from tools.engines import engines, page_of
from tools.formats import results_file
from tools.notebook import notebook
from tools.reference import fence_blocks, prose

TITLES = {
    ChoiceSettings: "What runs",
    RunSettings: "The run",
    LoadSettings: "Loading a target",
    TextSettings: "A generated text",
}

DISTRIBUTION = "spec-core"
HEAD = "| setting | default | meaning |\n| --- | --- | --- |"
KINDS = {
    "method": ("Methods", "methods"),
    "choice": ("Names that stand for methods", "methods"),
    "control": ("Control of draft length", "methods"),
    "rollback": ("Owners of recurrent state", "methods"),
    "rule": ("Acceptance rules", "rules"),
}
"""Title of a kind of plugin, and the folder of its pages."""


def hooks() -> str:
    """The page of the hooks, from their docstrings."""
    parts = ["# Hooks", fence_blocks(inspect.getdoc(hookspecs) or "")]
    for name in HOOKS:
        hook = getattr(hookspecs, name)
        parts += [f"## {name}({', '.join(inspect.signature(hook).parameters)})", prose(hook)]
    return "\n\n".join(parts) + "\n"


def settings() -> str:
    """Every core setting with default and help, and the three ways to set it."""
    parts = [
        "# Settings",
        "Highest priority first: a flag (`-o draft_max=4` for a setting without its own flag), an environment variable "
        "(`SPEC_DRAFT_MAX=4`), `spec.toml` (`draft_max = 4`), the default.\n"
        "The fields of a plugin are its settings: `-o NAME.n_max=8`, "
        "`SPEC_NAME__N_MAX=8`, or `n_max = 8` under `[NAME]`.\n`spec settings` prints every value with its origin; "
        "`spec settings --toml` prints a file that reproduces them.\n"
        "Unknown names are refused; a near miss of a known variable gives a warning; other variables are ignored.\n"
        "Relative paths in the file (`model`, `methods`, `file` of a plugin) are relative to the file; "
        "a location with a scheme, such as `zoo:pico`, is not changed.\n"
        "`--debug` or `SPEC_DEBUG=1` shows the traceback of an error.\n"
        "`SPEC_INSTRUCTION_SET=avx2` limits compiled code to AVX2 and what is below it; `spec env` lists the sets.",
    ]
    for table in TABLES:
        parts += [f"## {TITLES[table]}", "\n".join([HEAD, *(_row(f) for f in attrs.fields(table))])]
    for point in installed_points(COMMANDS):
        if point.dist and point.dist.name == DISTRIBUTION:
            own = "\n".join(_row(f) for f in attrs.fields(point.load()))
            name = point.name
            usage = f"In `spec.toml` under `[{name}]`, as `SPEC_{name.upper()}__NAME`, or as `-o {name}.NAME`."
            parts += [f"## `spec {name}`", usage, f"{HEAD}\n{own}"]
    return "\n\n".join(parts) + "\n"


def _row(field: attrs.Attribute) -> str:
    return f"| `{field.name}` | {_default(field.default)} | {field.metadata['help']} |"


def _default(value: object) -> str:
    if value is None or value == ():
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def plugins() -> str:
    """Every plugin of this distribution, with a link to its page and the first line of its docstring."""
    parts = [
        "# Plugins",
        "Plugins of this distribution; `spec plugins` lists all that are installed on a machine.",
    ]
    for kind, (title, folder) in KINDS.items():
        own_entries = [entry for entry in discover_plugins([kind]) if entry.distribution == DISTRIBUTION]
        if own_entries:
            rows = [f"| [`{e.name}`]({folder}/{e.name}.md) | {_first_line(import_plugin(e))} |" for e in own_entries]
            parts += [f"## {title}", "\n".join(["| name | what it does |", "| --- | --- |", *rows])]
    return "\n\n".join(parts) + "\n"


def _first_line(plugin: type) -> str:
    return (inspect.getdoc(plugin) or "").split("\n")[0]


ENGINE_PAGES = ("transformers", "llamacpp", "vllm", "vllm-measured", "sglang")
PAGES = {
    "hooks.md": hooks,
    "settings.md": settings,
    "plugins.md": plugins,
    "results-file.md": results_file,
    "engines.md": engines,
    **{f"engines/{name}.md": partial(page_of, name) for name in ENGINE_PAGES},
    "drafters.md": drafters,
    "add-an-architecture.md": architectures,
    "notebook.ipynb": notebook,
}


def document(page: str) -> str:
    return PAGES[page]()


def main() -> None:
    folder = Path(sys.argv[1])
    schema.FILE.write_text(schema.text(schema.results()), "utf-8")
    summary_schema.FILE.write_text(schema.text(summary_schema.summary()), "utf-8")
    (folder / "engines").mkdir(exist_ok=True)
    for page in PAGES:
        (folder / page).write_text(document(page), "utf-8")


if __name__ == "__main__":
    main()
