"""Pages about other engines, from the declarations of their adapters, the needs of methods, and measured results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
from spec_engines import llamacpp, sglang, transformers, vllm
from spec_engines.declared import MATRICES, Engine

from benchmarks.support.results import read_table
from benchmarks.support.tables import heading, row
from spec_core import Needs, Refused, load
from spec_core.commands import discover_plugins
from spec_core.host import EngineModel, Serves, check_methods
from spec_core.host.engine import WORDS
from spec_core.testing import TargetConformance
from spec_core.testing.conformance.promise import promises
from spec_core.toolkit import next_token_layer
from tools.results import source

ADAPTERS = (transformers, llamacpp, vllm, sglang)
OWN = "`gguf:`, `hf:`, `zoo:`"
"""The title of the targets of this project, which serve everything."""
DISTRIBUTION = "spec-core"
ROWS = {
    "models": "models",
    "devices": "devices",
    "logits": "logits",
    "hidden": "hidden states",
    "trees": "drafts that branch",
    "recurrent": "recurrent state",
    "cache": "keys and values",
    "weights": "weights for draft heads",
    "rules": "acceptance rules",
    "exact": "equal bits",
}
BESIDE = ("scheme", "extra", "serves", "target", "skipped")
"""Fields of a declaration that other parts of the page show."""
TEXTS = Path(__file__).with_name("engine_pages")
"""The pages without their tables: ``{results: FILE, TABLE}`` stands for one of ``benchmarks/results``."""
RESULTS = re.compile(r"\{results: ([^,}]+), ([^}]+)\}")
MODELS = {"mtp": "zoo:pico-hybrid"}
"""The model on which a method is asked for its needs, where it is not zoo:pico."""
SETTINGS: dict[str, dict[str, Any]] = {
    "draft-model": {"file": "zoo:pico-draft"},
    "eagle3": {"file": "zoo:pico-eagle3", "width": 3},
    "dflash": {"file": "zoo:pico-dflash", "width": 3},
    "recycling": {"width": 3},
    "suffix": {"width": 3},
}
"""Settings of methods that need a file or can branch."""
NEEDS = dict.fromkeys(("dspark", "dflash2", "dspine", "lilicorr"), "dflash")
"""Methods with the needs of another, whose head is at hand."""
CACHE_READERS = {"assistant": Needs(final=True, weights={"token_embd.weight"}, cached_layers={0})}
"""Needs of methods that read the target's cache, where no file of theirs is at hand."""


def engines() -> str:
    """The page about all engines: the text with the tables in their places."""
    declared = [adapter.ENGINE for adapter in ADAPTERS]
    return (
        page_of("engines")
        .replace("{table}", table(declared))
        .replace("{methods}", methods(declared))
        .replace("{skipped}", skipped_checks(declared))
    )


def page_of(name: str) -> str:
    """A page with its tables of results."""
    text = (TEXTS / f"{name}.md").read_text("utf-8")
    return RESULTS.sub(lambda match: "\n".join(results_table(*match.groups())), text)


def results_table(file: str, name: str) -> list[str]:
    """Lines of a table of results, with its notes and circumstances."""
    measured = read_table(file, name)
    lines = [*heading(measured["columns"]), *map(row, measured["rows"])]
    return [*lines, *(part for note in measured["notes"] for part in ("", note)), *source(file, name)]


# what each engine serves


def table(declared: list[Engine]) -> str:
    """A column for each engine. Raises ValueError for a declaration that has no row."""
    if unknown := {field.name for field in attrs.fields(Engine)} - {*BESIDE, *ROWS}:
        raise ValueError(f"no row of the table shows {', '.join(sorted(unknown))}")
    lines = _head("", [_title(engine) for engine in declared])
    return "\n".join([*lines, *(_line(title, [getattr(e, name) for e in declared]) for name, title in ROWS.items())])


# the conformance kit


def skipped_checks(declared: list[Engine]) -> str:
    """A row for each check of the kit that is skipped on a target: its promise, and why, by target."""
    targets = [engine for engine in declared if engine.target]
    known = dict(promises(TargetConformance))
    names = [name for name in known if any(name in engine.skipped for engine in targets)]
    rows = [_line(known[name], [engine.skipped.get(name, "") for engine in targets]) for name in names]
    return "\n".join([*_head("promise", [_title(engine) for engine in targets]), *rows])


# which method runs on which engine


def methods(declared: list[Engine]) -> str:
    """A row for each method of this distribution: what it reads, and how it drafts on each engine."""
    served = {OWN: everything()} | {_title(engine): Serves(**engine.serves) for engine in declared}
    shows = {OWN, *(_title(engine) for engine in declared if engine.cache != "no")}
    cells = lambda name: [reads(name), *(cell(name, serves, title in shows) for title, serves in served.items())]
    rows = [_line(f"`{name}`", cells(name)) for name in method_names()]
    return "\n".join([*_head("", ["reads", *served]), *rows])


def method_names() -> list[str]:
    """The methods of this distribution."""
    return sorted(e.name for e in discover_plugins() if e.kind == "method" and e.distribution == DISTRIBUTION)


def everything() -> Serves:
    """Services of this project's targets: all that a method may need."""
    every = {name: True for name in WORDS if name != "weights"}
    return Serves(**every, weights=MATRICES)


def cell(method: str, serves: Serves, shows: bool = False) -> str:
    """``trees``, ``chains``, or ``no`` with the reason of the refusal. shows: keys and values to drafters."""
    if method in CACHE_READERS:
        return "chains" if shows else "no: it reads keys and values of the target"
    try:
        needs = needs_of(method, serves)
    except Refused as refused:
        return "no: " + refused.reason.partition(": ")[2].partition(";")[0]
    return "trees" if needs.trees else "chains"


def needs_of(method: str, serves: Serves) -> Needs:
    """Needs of a method, by its ``compat``. Raises Refused where the engine does not serve it."""
    if method in CACHE_READERS:
        return CACHE_READERS[method]
    method = NEEDS.get(method, method)
    described = load(MODELS.get(method, "zoo:pico"), weights=False)
    model = EngineModel(described.info, described.tokenizer, next_token_layer=next_token_layer(described))
    return check_methods(model, [(method, SETTINGS.get(method, {}))], serves)[0].compat.needs


def reads(method: str) -> str:
    """Inputs of a method besides tokens, in words."""
    needs = needs_of(method, everything())
    words = WORDS | {"cached_layers": "keys and values"}
    return ", ".join(what for name, what in words.items() if name != "trees" and getattr(needs, name)) or "tokens"


def _title(engine: Engine) -> str:
    """A target's scheme, or the name of an engine that owns its loop."""
    return f"`{engine.scheme}:`" if engine.target else engine.scheme


def _head(first: str, titles: list[str]) -> list[str]:
    return [_line(first, titles), "| --- " * (1 + len(titles)) + "|"]


def _line(title: str, cells: list[str]) -> str:
    return f"| {title} | " + " | ".join(cells) + " |"
