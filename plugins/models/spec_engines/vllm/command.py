"""The command ``spec vllm serve``: asks the methods first, then becomes vLLM's own server."""

from __future__ import annotations

import json
import os
import sys
from tempfile import mkdtemp
from typing import Any

import click
from spec_commands import common
from spec_commands.help import Group

from spec_core.commands import DEFAULT, Settings
from spec_engines.vllm import DRAFT_MAX, RUNNERS, SECOND_RUNNER, check_installed, options

SERVER = "vllm.entrypoints.openai.api_server"
"""Not vLLM's own program, which asks for the version of a package that its CPU build does not have."""


@click.group(cls=Group)
def vllm() -> None:
    """Methods inside vLLM."""


@vllm.command(context_settings={"ignore_unknown_options": True})
@click.argument("model")
@common.options(common.METHODS[:1], common.METHODS[-1:])
@click.option("--draft-max", "draft_max", type=int, help="Longest draft; vLLM calls it num_speculative_tokens.")
@click.option("-o", "options", multiple=True, metavar="KEY=VALUE", help="A setting of a plugin: NAME.key=value.")
@click.option("--coupled", is_flag=True, help="Texts of requests with a seed do not depend on drafts.")
@click.option(
    "--model-runner",
    "runner",
    type=click.Choice(["auto", *RUNNERS]),
    default="auto",
    help="vLLM's model runner; auto: as VLLM_USE_V2_MODEL_RUNNER says, else the second where there is triton.",
)
@click.option("--dry-run", is_flag=True, help="Print vLLM's command instead of starting it.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(model: str, coupled: bool, runner: str, dry_run: bool, arguments: tuple[str, ...], **flags: Any) -> None:
    """Start vLLM's server on MODEL, a directory, with methods as its proposer.

    The methods are checked against the model before vLLM starts. ARGUMENTS go to vLLM's server as they are. Requests
    set ``spec_draft_max`` and ``spec_methods`` in ``vllm_xargs``.
    """
    check_installed()
    settings = common.settings_of(flags)
    command = command_of(model, settings, arguments, coupled, runner)
    value = os.environ[SECOND_RUNNER]
    click.echo(f"vLLM's {RUNNERS[int(value)]} model runner: {SECOND_RUNNER}={value}", err=True)
    if dry_run:
        click.echo(json.dumps(command))
        return
    os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", mkdtemp(prefix="spec-vllm-"))
    os.execv(sys.executable, command)


def command_of(
    model: str,
    settings: Settings,
    arguments: tuple[str, ...] = (),
    coupled: bool = False,
    runner: str = "auto",
) -> list[str]:
    """vLLM's command; the runner is in the environment. Raises UsageError, Refused before anything of vLLM runs."""
    from spec_core.host import check_methods
    from spec_engines.vllm.model import SERVES, describe_model, names_of

    chosen = common.plugin_settings(settings)
    control = None if settings["control"] == "fixed" else settings["control"]
    draft_max = DRAFT_MAX if settings.table["draft_max"].origin == DEFAULT else settings["draft_max"]
    config = options(settings["methods"], draft_max, chosen, control, coupled, runner)
    described, asked = describe_model(model), names_of(config["additional_config"]["spec"])
    plugins = check_methods(described, asked, SERVES, chosen)
    if any(c.compat.needs.hidden for c in plugins):
        check_methods(described, asked, ask_vllm(model), chosen)
    common.check_used(settings, [c.name for c in plugins])
    words = [sys.executable, "-m", SERVER, "--model", model]
    words += ["--speculative-config", json.dumps(config["speculative_config"]), "--worker-cls", config["worker_cls"]]
    words += ["--additional-config", json.dumps(config["additional_config"]), "--no-async-scheduling"]
    if any(c.compat.needs.hidden or c.compat.needs.final for c in plugins):
        words.append("--no-enable-prefix-caching")
    return [*words, *arguments]


def ask_vllm(model: str) -> Any:
    """Ask vLLM about this model; imports vLLM, which takes seconds."""
    from spec_engines.vllm import interface

    return interface.services_of(model)
