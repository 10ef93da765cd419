"""The header of a comparison: everything that identifies the experiment, and the state of the machine before it."""

from __future__ import annotations

from typing import Any

import attrs

from spec_compare.records.described import field

FORMAT = "spec-core results"
VERSION = (1, 2)
"""Version of ``results.jsonl``. A new field raises the second number; a changed meaning raises the first."""


SERVER = "server"
"""The family of a model that a server runs: nothing else is known of it."""


@attrs.frozen
class File:
    """A file that the comparison read."""

    path: str = field("its path when it was read")
    bytes: int = field("its size")
    sha256: str = field("SHA-256 of its contents, hexadecimal")


@attrs.frozen
class Setting:
    """A setting in force."""

    value: Any = field("its value")
    origin: str = field("where it came from: `flag`, `environment`, `spec.toml`, `contender`, `sweep` or `default`")


@attrs.frozen
class TargetFacts:
    """A model and how it was loaded."""

    name: str = field("its name")
    model: str = field("where it was loaded from, as in `-m`; the address of a server, without its path")
    family: str = field("its architecture; `server` for one that was asked by URL")
    device: str = field("where it ran")
    dtype: str = field("its dtype")
    context: int = field("max positions of a sequence; 0 if a server does not say it")
    vocab_id: str = field("identity of its tokenizer")
    exact: str | None = field("whether equal bits do not depend on the batch, or why not; null if not reported")
    threads: str | None = field("CPU threads; null if not reported")
    kernels: str | None = field("what executed it; null if not reported")
    quantisation: dict[str, int] = field("number of its tensors of each type")
    files: list[File] = field("its files")


@attrs.frozen
class PromptFacts:
    """The prompts that were chosen."""

    source: str = field("the file, directory or suite that they come from")
    sha256: str = field("SHA-256 of the chosen prompts: their ids, families and contents")
    families: dict[str, int] = field("number of prompts of each family")
    turns: int = field("max turns of a conversation")
    max_tokens: int | None = field("length to which prompts of one turn were cut; null for no limit")
    lengths: list[int] = field("lengths to which each prompt was extended or cut, with --lengths", factory=list)


@attrs.frozen
class ContenderFacts:
    """A contender: what ran, and every setting in force."""

    name: str = field("its name, unique in the comparison")
    baseline: str = field("name of the plain decoding that it is compared with; a baseline names itself")
    target: int = field("index of its model in `targets`")
    methods: list[str] = field("its methods, in the order in which they draft")
    rule: str | None = field("its acceptance rule; null is the lossless default")
    rollback: str | None = field("the owner of recurrent state that was named, or null")
    control: str = field("what decides how much is drafted: `fixed`, or a controller")
    label: str | None = field("why its texts need not equal plain decoding's, or null")
    plugins: list[str] = field("all plugins of its run, in order, the target included")
    settings: dict[str, Setting] = field("every setting in force, its plugins' as `PLUGIN.NAME`")
    files: list[File] = field("the files of its methods: draft models, heads")
    controllers: list[str] = field("its plugins that limit drafts", factory=list)
    proposals: dict[str, list[str]] = field("kinds of proposal by plugin, empty if it never drafts", factory=dict)


@attrs.frozen
class PluginFacts:
    """A plugin that took part."""

    name: str = field("its name")
    kind: str | None = field("`method`, `rule`, `rollback`, `control` or `target`; null if it is not installed")
    distribution: str | None = field("the distribution that has it; null if it is not installed")
    version: str | None = field("version of the distribution; null if it is not installed")
    package: str = field("the top-level package or module of its code")
    sha256: str | None = field(
        "SHA-256 over that package's `.py`, `.so` and `.pyd` files in the order of their names: for each, its name, a "
        "space, its bytes, a line feed, its contents; null if it has none"
    )


@attrs.frozen
class Header:
    """The first line of ``results.jsonl``."""

    format: str = field(f'"{FORMAT}"')
    version: str = field("version of the format: a reader accepts equal first numbers")
    date: str = field("when the measurement began, UTC, ISO 8601")
    command: list[str] = field("the command line")
    commit: str | None = field(
        "commit of spec-core if it runs from a repository, with `-dirty` if files differ from it"
    )
    host: str = field("name of the machine")
    memory_bytes: int | None = field("memory of the machine; null if not reported")
    processors: int = field("processors of the machine")
    load_average: float | None = field("load average of the last minute before the measurement; null if not reported")
    environment: dict[str, Any] = field("the output of `spec env --json`: versions, processor, kernels, plugins")
    targets: list[TargetFacts] = field("the models")
    prompts: PromptFacts = field("the prompts")
    contenders: list[ContenderFacts] = field("the contenders, baselines first")
    settings: dict[str, Setting] = field("settings of the command, before contenders and sweeps change them")
    seed: int = field("the seed from which the seed of each prompt is made")
    repeats: int = field("measurements per prompt")
    batch: int = field("prompts that run together")
    reuse_turns: bool = field("whether a turn reuses the KV cache rows of the turn before")
    trace: bool = field("whether records have `trace`")
    laps: int = field("number of laps of the whole comparison")
    interval: float = field("level of the bootstrap intervals")
    resamples: int = field("resamples of the bootstrap")
    plugins: list[PluginFacts] = field("the plugins that took part, targets included", factory=list)


@attrs.frozen
class Session:
    """A line that is written when an interrupted comparison continues."""

    date: str = field("when it continued, UTC, ISO 8601")
    command: list[str] = field("the command line")
    load_average: float | None = field("load average of the last minute before it continued; null if not reported")
    laps: int = field("number of laps that were finished before")
