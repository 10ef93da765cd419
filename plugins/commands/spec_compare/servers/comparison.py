"""Runs a comparison of servers; it has the results, figures and continuation of every comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
from spec_commands import common
from spec_commands.common import Settings

from spec_compare.figures.difference import recorded_differences
from spec_compare.figures.outcome import Outcome, outcome
from spec_compare.inputs.sources import PromptSource
from spec_compare.measuring import collect, prompt_source
from spec_compare.measuring.comparison import record_laps
from spec_compare.measuring.experiment import (
    ACCOUNT_FLAGS,
    CONTENDER_FLAGS,
    PROMPT_FILTERS,
    PROMPT_FLAGS,
    SIZE_FLAGS,
    prompt_source_of,
)
from spec_compare.records.header import Header
from spec_compare.records.writing import Results
from spec_compare.servers import probing
from spec_compare.servers.asking import Server
from spec_compare.servers.endpoints import read_endpoints
from spec_compare.servers.header import SETTINGS, server_header
from spec_compare.servers.measuring import ServerRequestSettings, measure_servers
from spec_compare.servers.pictures import send_pictures
from spec_core.commands import FLAG
from spec_core.errors import UsageError

ENDPOINT_FLAGS = ("url_models", "off", "key_env")
BATCH_MAX = 32
"""Max requests at the same time."""


def compare_servers(out: Path | None, flags: dict[str, Any], own: dict[str, Any]) -> Outcome:
    """The outcome; with ``out`` it is written there, and continued if it was interrupted. Raises UsageError.

    flags: of the command, without the options of servers. own: the options of servers.
    """
    groups = (SIZE_FLAGS, PROMPT_FLAGS, PROMPT_FILTERS, (*CONTENDER_FLAGS, *ACCOUNT_FLAGS, "lengths"))
    sizes, place, filters, others = (common.pop_flags(flags, *names) for names in groups)
    named = {name: own[name] for name in ENDPOINT_FLAGS}
    settings = common.settings_of(flags)
    _check_settings(settings)
    request_settings = _request_settings(settings, sizes)
    model = settings["model"] if settings.table["model"].origin == FLAG else None
    endpoints = read_endpoints(own["urls"], model, **named)
    source = None if place["file"] is place["suite"] is None else prompt_source_of((), **place)
    source = None if source is None else _filter(source, filters)
    servers = [probing.find_server(endpoint, own["timeout"]) for endpoint in endpoints]
    try:
        source = source or _filter(prompt_source_of((), probing.built_in_file(servers), None, place["chat"]), filters)
        probing.probe_servers(servers, source.prompts)
        return _run(servers, settings, source, request_settings, out, {**own, "no_prompts": others["no_prompts"]})
    finally:
        probing.close_all(servers)


def _filter(source: PromptSource, filters: dict[str, Any]) -> PromptSource:
    """The prompts of these filters, with pictures as requests carry them."""
    return attrs.evolve(source, prompts=prompt_source.choose_prompts(source.prompts, source.name, **filters))


def _check_settings(settings: Settings) -> None:
    """Raise UsageError for a setting of the command that no server gets."""
    known = {*SETTINGS, "model", "repetition_penalty"}
    for name, setting in settings.table.items():
        if setting.origin == FLAG and name not in known:
            raise UsageError(f"-o {name} cannot be combined with --url", hint="start the server with it")


def _request_settings(settings: Settings, sizes: dict[str, Any]) -> ServerRequestSettings:
    if sizes["batch"] > BATCH_MAX:
        raise UsageError(f"--batch {sizes['batch']} would open that many requests", hint=f"at most {BATCH_MAX} are")
    if settings["max_tokens"] < 2:
        raise UsageError(f"--max-tokens {settings['max_tokens']} leaves nothing to time", hint="pass at least 2")
    if settings["repetition_penalty"] != 1:
        raise UsageError(
            "--repetition-penalty cannot be combined with --url: servers name it differently",
            hint="leave it out, or pass --frequency-penalty",
        )
    sampling, own = common.sampling_of(settings), {name: sizes[name] for name in ("repeats", "batch")}
    return ServerRequestSettings(settings["max_tokens"], sampling, settings["seed"], **own)


def _run(
    servers: list[Server],
    settings: Settings,
    source: PromptSource,
    request_settings: ServerRequestSettings,
    out: Path | None,
    own: dict[str, Any],
) -> Outcome:
    results = None if out is None else Results(out)
    facts = collect.facts_of(source.prompts, source.name, None)
    header = server_header(servers, settings, source, facts, request_settings, own["unequal"])
    if results is not None:
        results.begin(header, None if own["no_prompts"] else source.prompts)
        header = header if results.before is None else results.before.header
    _announce(servers, source, request_settings, header)
    sent = [send_pictures(prompt) for prompt in source.prompts]
    laps = record_laps(
        lambda done, on_lap: measure_servers(servers, sent, request_settings, done, on_lap), header, results
    )
    labels = {c.name: c.label for c in header.contenders if c.label is not None}
    result = outcome(header, laps, labels, recorded_differences(laps, labels))
    result = attrs.evolve(result, sessions=[] if results is None else results.sessions, prompts=source.prompts)
    if results is not None:
        results.conclude(result.body())
    return result


def _announce(
    servers: list[Server], source: PromptSource, request_settings: ServerRequestSettings, header: Header
) -> None:
    for server in servers:
        common.print_note(f"{server.name}: {server.endpoint.shown}, {server.model or 'a model without a name'}")
    prompts = f"{len(source.prompts)} prompts, at most {request_settings.max_tokens} tokens each"
    common.print_note(f"{prompts}, {header.laps} laps, {request_settings.batch} requests at once")
