"""Options of the command about servers, and the options that may be combined with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import click

from spec_core.errors import UsageError

OPTIONS = [
    click.option(
        "--url",
        "urls",
        multiple=True,
        metavar="NAME=URL",
        help="A server with OpenAI's API that runs already; repeated, the first is the baseline.",
    ),
    click.option(
        "--url-model", "url_models", multiple=True, metavar="NAME=MODEL", help="Its model; the default is its first."
    ),
    click.option("--off", multiple=True, metavar="NAME=SWITCH", help="Ask it without drafts: FIELD=VALUE, or spec."),
    click.option("--key-env", multiple=True, metavar="NAME=VARIABLE", help="The environment variable with its key."),
    click.option(
        "--timeout", type=click.FloatRange(1, 3600), default=120, show_default=True, help="Max seconds of a request."
    ),
    click.option("--unequal", is_flag=True, help="Show speeds of servers whose texts differ from the first's."),
]
SERVER_FLAGS = ("urls", "url_models", "off", "key_env", "timeout", "unequal")
GROUP = {"Servers": SERVER_FLAGS}
COMBINED = (
    *SERVER_FLAGS,
    "out", "report", "against", "wide", "as_json", "no_prompts", "file", "suite", "chat", "families", "limit",
    "repeats", "batch", "model", "max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
    "presence_penalty", "frequency_penalty", "seed", "options", "config", "debug",
)  # fmt: skip
"""Options that ``--url`` may be combined with."""


def check_flags(passed: Mapping[str, str], urls: Collection[str]) -> None:
    """Raise UsageError for options that servers cannot have, and for options of servers without ``--url``.

    passed: {parameter: option} of the command line.
    """
    if urls:
        wrong = [option for name, option in passed.items() if name not in COMBINED]
        if wrong:
            raise UsageError(
                f"{wrong[0]} cannot be combined with --url", hint="leave it out, or start the server with it"
            )
        return
    if alone := [option for name, option in passed.items() if name in SERVER_FLAGS]:
        raise UsageError(f"{alone[0]} was passed without --url", hint="add --url NAME=URL for every server")
