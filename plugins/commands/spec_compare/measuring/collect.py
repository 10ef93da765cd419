"""Collects the header of a comparison."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
from spec_commands import machine
from spec_commands.common import Settings, as_json
from spec_commands.environment import environment
from spec_commands.prompts import Prompt

from spec_compare.figures.summary import INTERVAL, RESAMPLES
from spec_compare.inputs.conversation import turns_of
from spec_compare.inputs.sized import lengths_of
from spec_compare.measuring.contenders import ContenderPlan
from spec_compare.measuring.measure import batches
from spec_compare.records.files import current_commit, hash_files, hashed_below
from spec_compare.records.header import (
    FORMAT,
    VERSION,
    ContenderFacts,
    File,
    Header,
    PromptFacts,
    Setting,
    TargetFacts,
)
from spec_compare.records.plugins import plugin_facts
from spec_compare.records.prompts import prompts_sha256
from spec_compare.records.sessions import command_line, present_date
from spec_core import Run, Target, UsageError, load
from spec_core.commands import discover_plugins


def header(
    entrants: list[ContenderPlan],
    runs: dict[str, Run],
    labels: dict[str, str],
    prompts: PromptFacts,
    settings: Settings,
    hashed: bool,
) -> Header:
    """Everything that identifies the experiment. hashed: read every file of a model once, for its hash."""
    request_settings = entrants[0].contender.setup.request_settings
    targets = list({id(e.contender.setup.target): e for e in entrants}.values())
    index = {id(e.contender.setup.target): i for i, e in enumerate(targets)}
    groups = len(batches(entrants[0].contender.setup.prompts, request_settings.batch))
    return Header(
        **present_facts(settings),
        targets=[target_facts(e.contender.setup.target, e.settings["model"], hashed) for e in targets],
        prompts=prompts,
        contenders=[
            contender_facts(e, runs[e.contender.name], labels, index[id(e.contender.setup.target)], hashed)
            for e in entrants
        ],
        seed=settings["seed"],
        repeats=request_settings.repeats,
        batch=request_settings.batch,
        reuse_turns=request_settings.reuse_turns,
        trace=request_settings.trace,
        laps=groups * request_settings.repeats * len(entrants),
        plugins=plugin_facts(runs.values()),
    )


def present_facts(settings: Settings) -> dict[str, Any]:
    """What the header of every comparison says of this machine, this process and its settings."""
    before = machine.moment()
    return {
        "format": FORMAT,
        "version": ".".join(map(str, VERSION)),
        "date": present_date(),
        "command": command_line(),
        "commit": current_commit(),
        "host": platform.node(),
        "memory_bytes": memory(),
        "processors": before.processors,
        "load_average": before.average,
        "environment": environment(),
        "settings": {name: Setting(plain_value(one.value), one.origin) for name, one in sorted(settings.table.items())},
        "interval": INTERVAL,
        "resamples": RESAMPLES,
    }


def memory() -> int | None:
    """Bytes of memory of the machine, None if the system does not report them."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def target_facts(target: Target, model: str, hashed: bool) -> TargetFacts:
    info = target.info
    return TargetFacts(
        name=info.name,
        model=str(model),
        family=info.family,
        device=info.device,
        dtype=info.dtype,
        context=info.context,
        vocab_id=info.vocab_id,
        exact=info.exactness,
        threads=info.threads or None,
        kernels=info.kernels or None,
        quantisation=dict(info.types),
        files=files_of(target) if hashed else [],
    )


def files_of(target: Target) -> list[File]:
    """The files of a loaded model; none if its loader does not name one."""
    file = target.info.file
    return [] if not file else hash_files(Path(file))


def contender_facts(plan: ContenderPlan, run: Run, labels: dict[str, str], target: int, hashed: bool) -> ContenderFacts:
    contender, settings = plan.contender, plan.settings
    read = run.plugins if hashed else []
    return ContenderFacts(
        name=contender.name,
        baseline=contender.baseline,
        target=target,
        methods=plan.methods,
        rule=settings["rule"] if plan.methods else None,
        rollback=settings["rollback"],
        control=settings["control"],
        label=labels.get(contender.name),
        plugins=[c.name for c in run.plugins],
        settings=in_force(plan, run),
        files=[file for c in read for file in method_files(c.name, c.plugin, run.target)],
        controllers=[c.name for c in run.plugins if c.controls],
        proposals={name: sorted(kinds) for name, kinds in run.proposals.items()},
    )


def in_force(plan: ContenderPlan, run: Run) -> dict[str, Setting]:
    """Every setting of the core, and every field of the run's plugins."""
    table = {
        name: Setting(plain_value(s.value), s.origin) for name, s in plan.settings.table.items() if "." not in name
    }
    table["methods"] = Setting(plan.methods, table["methods"].origin)
    for chosen in run.plugins:
        cls = type(chosen.plugin)
        for field in attrs.fields(cls) if attrs.has(cls) and chosen.plugin is not run.target else ():
            if field.init and not field.name.startswith("_"):
                key = f"{chosen.name}.{field.name}"
                table[key] = Setting(plain_value(getattr(chosen.plugin, field.name)), plan.origin(key))
    return dict(sorted(table.items()))


def plain_value(value: Any) -> Any:
    """A value as JSON has it."""
    return json.loads(as_json(value))


def method_files(name: str, plugin: Any, target: Target) -> list[File]:
    """Files that a plugin loaded.

    Its setting ``file``, or the model or head that came with the target; and every other setting that names a file.
    """
    if plugin is target or not attrs.has(type(plugin)):
        return []
    settings = {f.name: getattr(plugin, f.name) for f in attrs.fields(type(plugin)) if not f.name.startswith("_")}
    location = settings.pop("file") or target.info.companions.get(name) if "file" in settings else None
    own = [] if location is None else files_at(location)
    return own + [file for value in settings.values() if is_file(value) for file in hash_files(Path(value))]


def is_file(value: Any) -> bool:
    """Whether a setting is the path of a file; a bare word is one only if it was read as a path."""
    return (isinstance(value, os.PathLike) or (isinstance(value, str) and os.sep in value)) and Path(value).is_file()


def files_at(location: Any) -> list[File]:
    """The files at a method's location: of a model, if a target knows it, or whatever lies there.

    Empty for a location that is neither a path nor a model: only its plugin knows what it means.
    """
    if not isinstance(location, str | os.PathLike):
        return []
    path = Path(location)
    if path.is_file():
        return hash_files(path)
    if not path.is_dir() and not has_scheme(str(location)):
        return []
    try:
        return files_of(load(str(location), weights=False))
    except UsageError:
        if not path.is_dir():
            raise
        return hashed_below(path)


def has_scheme(location: str) -> bool:
    """Whether the location begins with the scheme of an installed target."""
    return any(location.startswith(f"{entry.name}:") for entry in discover_plugins(("target",)))


def facts_of(prompts: list[Prompt], source: str, prompt_tokens: int | None) -> PromptFacts:
    """Facts of the chosen prompts. prompt_tokens: length to which they are cut."""
    families = Counter(prompt.family for prompt in prompts)
    turns = max(map(turns_of, prompts))
    return PromptFacts(source, prompts_sha256(prompts), dict(families), turns, prompt_tokens, lengths_of(prompts))
