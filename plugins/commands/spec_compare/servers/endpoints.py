"""The servers of a comparison, from the options of the command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from spec_commands.http_client import Client, check_url, hide_secrets
from spec_commands.servers.models import parse_switch, read_key

from spec_core.errors import UsageError, quote_value

EXAMPLE = "write --url NAME=http://HOST:PORT, the server that others are compared with first"
KEY_HINT = "pass --key-env NAME=VARIABLE, the environment variable that has the key"


@attrs.frozen
class Endpoint:
    """A contender: a server under a name. fields: further ones of each request. switch: as in ``--off``, or None."""

    name: str
    url: str
    model: str | None = None
    fields: Mapping[str, Any] = attrs.field(factory=dict)
    switch: str | None = None
    key: str | None = attrs.field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """Its address without what may be secret."""
        return hide_secrets(self.url)

    def connect(self, seconds: float) -> Client:
        """A client of it. seconds: max time of a request."""
        return Client(self.url, self.key, seconds)


def read_endpoints(
    urls: Iterable[str],
    model: str | None,
    url_models: Iterable[str],
    off: Iterable[str],
    key_env: Iterable[str],
) -> list[Endpoint]:
    """The servers in the order of the command. Raises UsageError for a name without a server, and for two equal ones.

    model: of every server. url_models, off, key_env: each ``NAME=VALUE``.
    """
    addresses = _pairs("--url", urls, "http://HOST:PORT")
    models = _server_pairs("--url-model", url_models, addresses, "MODEL")
    switches = _server_pairs("--off", off, addresses, "FIELD=VALUE")
    keys = _keys(key_env, addresses)
    endpoints = [
        Endpoint(
            name,
            check_url(address),
            models.get(name, model),
            parse_switch(switches[name]) if name in switches else {},
            switches.get(name),
            read_key(keys.get(name)),
        )
        for name, address in addresses.items()
    ]
    if len(endpoints) < 2:
        raise UsageError("--url was passed once: there is nothing to compare", hint=f"pass it again; {EXAMPLE}")
    return endpoints


def _pairs(option: str, texts: Iterable[str], value: str) -> dict[str, str]:
    """{NAME: VALUE} of an option that is repeated."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not name.strip() or not rest or "/" in name:
            raise UsageError(f"{option}{_quote_value(option, text)} must be NAME={value}", hint=EXAMPLE)
        if name in pairs:
            raise UsageError(
                f"{option} was passed twice for{_quote_value(option, name)}", hint="give each server its own name"
            )
        pairs[name] = rest
    return pairs


def _quote_value(option: str, text: str) -> str:
    """A value for an error; nothing for a key, which some pass in place of its variable."""
    return "" if option == "--key-env" else f" {quote_value(hide_secrets(text))}"


def _server_pairs(option: str, texts: Iterable[str], names: Mapping[str, str], value: str) -> dict[str, str]:
    """The pairs of an option, whose names are names of servers."""
    pairs = _pairs(option, texts, value)
    if unknown := [name for name in pairs if name not in names]:
        known = ", ".join(names)
        raise UsageError(f"{option}{_quote_value(option, unknown[0])} is for no server", hint=f"servers: {known}")
    return pairs


def _keys(texts: Iterable[str], addresses: Mapping[str, str]) -> dict[str, str]:
    """{NAME: variable}. A variable alone is that of all servers, if they have one address."""
    alone = [text for text in texts if "=" not in text]
    keys = _server_pairs("--key-env", [text for text in texts if "=" in text], addresses, "VARIABLE")
    if alone and len({check_url(address) for address in addresses.values()}) > 1:
        raise UsageError(
            "--key-env would send one key to several servers", hint="write --key-env NAME=VARIABLE for each"
        )
    return {**(dict.fromkeys(addresses, alone[-1]) if alone else {}), **keys}
