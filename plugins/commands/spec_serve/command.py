"""The command ``spec serve``."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
from spec_commands import common
from spec_commands.heap import frozen_heap
from spec_commands.help import Command

from spec_core.commands import DEFAULT, Settings, read_file
from spec_core.errors import UsageError, error_message
from spec_serve.memory import MIB, Plan, check_memory, plan
from spec_serve.settings import ServeSettings

if TYPE_CHECKING:
    from spec_core import Run, Target
    from spec_core.commands import PluginInstance
    from spec_serve.engine import Engine
    from spec_serve.server_config import ServerConfig

NAME = "serve"
NEEDED = ("fastapi", "uvicorn", "prometheus_client")
PREFILL_BUDGET = 128
"""Prompt rows of a step in which others generate, if not set."""
OWN = [
    click.option("--host", help="Address to listen at; the default is localhost."),
    click.option("--port", type=int, help="Port to listen at; the default is 8080, 0 takes a free one."),
    click.option("--api-key", "api_key", help="Key that clients must send; better given as SPEC_SERVE__API_KEY."),
    click.option("--api-key-file", "api_key_file", help="File with a key in every line."),
    click.option("--allowed-host", "allowed_host", help="Other names of this server, separated by commas."),
    click.option("--allowed-origin", "allowed_origin", help="Origins whose pages may call it, separated by commas."),
    click.option("--ssl-cert-file", "ssl_cert_file", help="Certificate (PEM) with which the server speaks HTTPS."),
    click.option("--ssl-key-file", "ssl_key_file", help="Private key (PEM) of the certificate."),
    click.option("--strict-model", "strict_model", flag_value=True, default=None, help="Refuse names of other models."),
    click.option("--lenient", flag_value=True, default=None, help="Ignore fields that are unknown or not supported."),
    click.option("--chat-template", "chat_template", help="Chat template in place of the model's, or a name: chatml."),
    click.option("--chat-template-file", "chat_template_file", help="File of a chat template."),
    click.option("--chat-template-kwargs", "chat_template_kwargs", help="JSON object: variables of the template."),
    click.option("--reasoning-format", "reasoning_format", help="Where thinking goes: auto, none, deepseek, ..."),
    click.option("--alias", help="Name of the model in the API."),
    click.option("--prompt-cache", "prompt_cache", help="File that keeps the prompt cache across a restart."),
]
GROUPS = {
    "Server": (
        "host", "port", "api_key", "api_key_file", "allowed_host", "allowed_origin", "ssl_cert_file", "ssl_key_file",
        "prompt_cache",
    ),
    "API": (
        "alias", "strict_model", "lenient", "chat_template", "chat_template_file", "chat_template_kwargs",
        "reasoning_format",
    ),
}  # fmt: skip
"""Groups of the command's own options in its help."""
OWN_NAMES = (
    "host", "port", "api_key", "api_key_file", "ssl_cert_file", "ssl_key_file", "allowed_host", "allowed_origin",
    "strict_model", "lenient",
    "chat_template", "chat_template_file", "chat_template_kwargs", "reasoning_format", "alias", "prompt_cache",
)  # fmt: skip
"""Names of the flags above."""


@click.command(cls=Command, groups=GROUPS)
@common.options(common.MODEL, common.METHODS, common.GENERATION, OWN)
def serve(**flags: Any) -> None:
    """Serve a model over HTTP, with the APIs of OpenAI, Anthropic and llama-server.

    Sampling options are the defaults of requests that leave a field out. Ctrl-C or SIGTERM ends in order.
    """
    _check_installed()
    _begin_log(flags)
    settings = resolve_flags(flags)
    from spec_serve.server import listening_socket

    limits = limits_of(settings)
    listener = listening_socket(limits)
    settings = adapt_settings(without_own(settings))
    run, settings = run_of(settings, limits)
    _serve(run, settings, limits, listener)


def resolve_flags(flags: dict[str, Any]) -> Settings:
    """Settings from the flags of the command, the environment and the file. Raises UsageError."""
    own = common.pop_flags(flags, *OWN_NAMES)
    return common.settings_of(flags | {f"{NAME}.{name}": value for name, value in own.items()})


def _begin_log(flags: Mapping[str, Any]) -> None:
    """Begin the log in the form that the settings name, before anything is printed."""
    from spec_serve import logs

    try:
        file = read_file(flags["config"], os.environ)
    except UsageError:
        file = {}
    logs.begin_logging(logs.is_json(flags["options"], os.environ, file))


def _check_installed() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"spec serve needs {', '.join(missing).replace('_', '-')}",
            hint="install the extra: pip install 'spec-core[serve]'",
        )


def limits_of(settings: Settings) -> ServeSettings:
    """The server's own settings. Raises UsageError."""
    from spec_core.commands import construct_plugin
    from spec_serve import keys, origins, templates

    limits = construct_plugin(ServeSettings, settings.values_of(NAME), NAME)
    keys.keys_of(limits)
    templates.template_of(limits)
    _check_variables(limits)
    _check_encryption(limits)
    origins.check_origins(limits)
    return limits


def _check_variables(settings: ServeSettings) -> None:
    """Raise UsageError where the variables of the chat template are no JSON object."""
    try:
        variables = json.loads(settings.chat_template_kwargs or "{}")
    except ValueError:
        variables = None
    if not isinstance(variables, dict):
        raise UsageError(
            f"--chat-template-kwargs is {settings.chat_template_kwargs!r:.60}",
            hint='give a JSON object, such as {"enable_thinking": false}',
        )


def _check_encryption(settings: ServeSettings) -> None:
    """Raise UsageError where the certificate and its key are not a pair that can be read."""
    if (settings.ssl_cert_file is None) != (settings.ssl_key_file is None):
        raise UsageError("a certificate needs its key", hint="give both --ssl-cert-file and --ssl-key-file")
    if settings.ssl_cert_file is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.ssl_cert_file, settings.ssl_key_file)
    except OSError as error:  # ssl's own errors are some
        raise UsageError(
            f"--ssl-cert-file {settings.ssl_cert_file}, --ssl-key-file {settings.ssl_key_file}: {error_message(error)}",
            hint="name PEM files of a certificate and its private key",
        ) from error


def without_own(settings: Settings) -> Settings:
    """The settings without the server's: the run's."""
    return Settings({name: s for name, s in settings.table.items() if not name.startswith(f"{NAME}.")})


def run_of(settings: Settings, serve_settings: ServeSettings) -> tuple[Run, Settings]:
    """The run, and its settings with the room of the prompt cache. Raises UsageError, Refused."""
    from spec_serve.templates import template_of

    prepared = common.prepare_run(settings)
    memory_plan = _plan(prepared.target, prepared.plugins, settings, serve_settings)
    settings = _with_defaults(settings, cache_tokens=memory_plan.cached)
    if prepared.target.tokenizer is None:
        raise UsageError(f"{prepared.target.info.name} has no tokenizer", hint="serve a model that has one")
    template = template_of(serve_settings)
    run = common.load_run(prepared, settings)
    if template is not None:
        run.target.tokenizer.chat_template = template
    return run, settings


def _plan(target: Target, plugins: list[PluginInstance], settings: Settings, serve_settings: ServeSettings) -> Plan:
    """The memory plan, printed and checked."""
    asked = settings.table["cache_tokens"]
    cached = None if asked.origin == DEFAULT else asked.value
    cached = 0 if not settings["reuse"] else cached
    pictures = _picture_bytes(target, serve_settings)
    step = max(settings["prefill_chunk"], 1 + settings["draft_max"])
    memory_plan = plan(
        target.info, plugins, settings["max_sequences"], serve_settings.cache_mib * MIB, cached, pictures, step
    )
    check_memory(memory_plan, serve_settings.memory_mib * MIB, target.info.device)
    common.print_note("memory plan:\n" + "\n".join(memory_plan.lines()))
    return memory_plan


def _picture_bytes(target: Target, settings: ServeSettings) -> int:
    """Bytes for the pictures of all requests; 0 for a model that reads text alone."""
    from spec_core.toolkit import image_encoder

    encoder = image_encoder(target)
    return 0 if encoder is None else encoder.memory(settings.picture_pixels) + settings.picture_mib * MIB


def _load_encoder(target: Target) -> None:
    """Read what the first picture needs now: it takes seconds. Without its packages the server reads text alone."""
    from spec_core.toolkit import image_encoder

    if (encoder := image_encoder(target)) is None:
        return
    try:
        encoder.load()
    except UsageError as error:
        common.print_note(f"pictures are refused: {error.reason}; {error.hint}")


def adapt_settings(settings: Settings) -> Settings:
    """Set a server's defaults of the run: a failing method is switched off, long prompts do not slow others down."""
    return _with_defaults(settings, on_error="isolate", prefill_budget=PREFILL_BUDGET)


def _with_defaults(settings: Settings, **defaults: Any) -> Settings:
    """Set other defaults; settings of the user stay."""
    table = dict(settings.table)
    for name, value in defaults.items():
        if table[name].origin == DEFAULT:
            table[name] = attrs.evolve(table[name], value=value, origin=f"spec {NAME}")
    return Settings(table)


def _restore_cache(run: Run, settings: ServeSettings) -> Path | None:
    """The file of the prompt cache, whose prefixes are evaluated now; None without one. Raises UsageError."""
    from spec_serve import prompt_cache

    if settings.prompt_cache is None:
        return None
    path = Path(settings.prompt_cache)
    if not run.settings.reuse:
        raise UsageError("--prompt-cache keeps nothing with reuse=false", hint="leave one of them out")
    prompt_cache.check_folder(path)
    prefixes = prompt_cache.read_prefix_file(path, run)
    if prefixes is None:
        return None
    fitting = prompt_cache.fitting_prefixes(prefixes, run)
    if prefixes:
        rows = sum(len(prefix.tokens) for prefix in fitting)
        common.print_note(
            f"prompt cache: evaluating {len(fitting)} of {len(prefixes)} prefixes of {path}, {rows} tokens"
        )
    prompt_cache.evaluate_prefixes(run, fitting)
    return path


def prepare_engine(run: Run, settings: Settings, serve_settings: ServeSettings) -> tuple[Engine, ServerConfig]:
    """The engine of a server that does not listen yet, and what it holds requests to. Raises UsageError."""
    from spec_serve import prompt_cache
    from spec_serve.engine import Engine
    from spec_serve.server_config import ServerConfig, name_of_model
    from spec_serve.tracing import Tracing

    _load_encoder(run.target)
    cache = _restore_cache(run, serve_settings)
    engine = Engine(run, serve_settings.queue)
    if cache is not None:
        engine.closing.append(partial(prompt_cache.write_prefixes, cache))
    config = ServerConfig(run, serve_settings.alias or name_of_model(settings["model"]), serve_settings, settings)
    if serve_settings.traces:
        tracing = Tracing(config.model)
        engine.finished.append(tracing)
        engine.failures.append(tracing.fail)
    if run.stats.lossy:
        common.print_note(f"LOSSY: {run.stats.lossy}")
    if run.stats.steers:
        common.print_note(f"STEERED: {run.stats.steers}")
    return engine, config


def _serve(run: Run, settings: Settings, serve_settings: ServeSettings, listener: Any) -> None:
    from spec_serve.app import create_app
    from spec_serve.server import serve_app as listen
    from spec_serve.server import start_listening, warn_of_everyone

    engine, config = prepare_engine(run, settings, serve_settings)
    common.print_note(f"serving {config.model} at {start_listening(listener, serve_settings)}")
    warn_of_everyone(listener, serve_settings)
    with frozen_heap():
        listen(create_app(engine, config), engine, serve_settings, listener)
