"""The header of a comparison of servers: what is known of them, and the machine that asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spec_commands.common import Settings

from spec_compare.figures.served import UNKNOWN
from spec_compare.inputs.sources import PromptSource
from spec_compare.measuring.collect import plain_value, present_facts
from spec_compare.measuring.measure import batches
from spec_compare.records.header import SERVER as FAMILY
from spec_compare.records.header import (
    ContenderFacts,
    Header,
    PromptFacts,
    Setting,
    TargetFacts,
)
from spec_compare.servers.asking import Server
from spec_compare.servers.measuring import ServerRequestSettings

SAMPLED = "sampled: texts are not compared"
UNEQUAL = "another server"
"""Labels of servers whose texts need not equal the texts of the first one."""


def server_header(
    servers: Sequence[Server],
    settings: Settings,
    source: PromptSource,
    facts: PromptFacts,
    request_settings: ServerRequestSettings,
    unequal: bool,
) -> Header:
    """Everything that is known. unequal: texts may differ."""
    label = SAMPLED if request_settings.sampling.temperature > 0 else UNEQUAL if unequal else None
    return Header(
        **present_facts(settings),
        targets=[_target(server) for server in servers],
        prompts=facts,
        contenders=[
            _contender(server, servers[0].name, number, settings, label) for number, server in enumerate(servers)
        ],
        seed=request_settings.seed,
        repeats=request_settings.repeats,
        batch=request_settings.batch,
        reuse_turns=False,
        trace=False,
        laps=len(batches(source.prompts, request_settings.batch)) * request_settings.repeats * len(servers),
    )


def _target(server: Server) -> TargetFacts:
    return TargetFacts(
        name=server.model or UNKNOWN,
        model=server.endpoint.shown,
        family=FAMILY,
        device=UNKNOWN,
        dtype=UNKNOWN,
        context=server.context,
        vocab_id=UNKNOWN,
        exact=None,
        threads=None,
        kernels=None,
        quantisation={},
        files=[],
    )


def _contender(server: Server, baseline: str, number: int, settings: Settings, label: str | None) -> ContenderFacts:
    own: dict[str, Any] = {"url": server.endpoint.shown, "model": server.model, "off": server.endpoint.switch}
    shared = {name: Setting(plain_value(settings[name]), settings.table[name].origin) for name in SETTINGS}
    return ContenderFacts(
        name=server.name,
        baseline=baseline,
        target=number,
        methods=[],
        rule=None,
        rollback=None,
        control=UNKNOWN,
        label=None if server.name == baseline else label,
        plugins=[],
        settings=dict(sorted((shared | {name: Setting(value, "flag") for name, value in own.items()}).items())),
        files=[],
    )


SETTINGS = (
    "max_tokens", "temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "seed",
)  # fmt: skip
"""Settings that every server gets."""
