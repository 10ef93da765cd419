"""Pages that may call a server without a key: its own, and pages of allowed origins.

A foreign web page can reach a local server in two ways: from its own origin, which the browser names, or as a
name that leads to this machine after the page was loaded (DNS rebinding), which the header ``Host`` shows.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import attrs
from starlette.datastructures import Headers

from spec_core import UsageError
from spec_serve.errors import ApiError
from spec_serve.keys import keys_of
from spec_serve.settings import ServeSettings

ANY = "*"


@attrs.frozen
class Origins:
    """names: hosts by which the server is called. addresses: whether any address is one too. allowed: other origins."""

    names: frozenset[str]
    addresses: bool
    allowed: tuple[str, ...]

    def check(self, headers: Headers) -> None:
        """Raise ApiError for a page of a stranger."""
        host = headers.get("host")
        if host is not None and not self._has_host(host):
            raise ApiError(
                403,
                f"the host {host!r:.80} is not one of this server; start it with --allowed-host, or with a key",
                code="host_not_allowed",
            )
        origin = headers.get("origin")
        if origin is not None and not self._has_origin(origin, host):
            raise ApiError(
                403,
                f"pages of {origin!r:.80} may not call this server; start it with --allowed-origin, or with a key",
                code="origin_not_allowed",
            )

    def _has_host(self, host: str) -> bool:
        name = _name(host)
        address = _address(name)
        if address is None:
            return name in self.names or name.endswith(".localhost")
        return self.addresses or address.is_loopback or name in self.names

    def _has_origin(self, origin: str, host: str | None) -> bool:
        return ANY in self.allowed or origin in self.allowed or urlsplit(origin).netloc == host


def origins_of(settings: ServeSettings) -> Origins | None:
    """Origins that a server without a key checks; None for one with a key, which a page of a stranger does not have."""
    if keys_of(settings):
        return None
    address = _address(_name(settings.host))
    everyone = settings.host == "" or (address is not None and address.is_unspecified)
    names = {"localhost", _name(settings.host), *map(_name, split_names(settings.allowed_host))}
    return Origins(frozenset(names), everyone, split_names(settings.allowed_origin))


def split_names(text: str | None) -> tuple[str, ...]:
    """Names that are separated by commas."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def check_origins(settings: ServeSettings) -> None:
    """Raise UsageError for an origin that no browser sends."""
    for origin in split_names(settings.allowed_origin):
        parts = urlsplit(origin)
        if origin != ANY and (not parts.scheme or not parts.netloc or parts.path or parts.query):
            raise UsageError(
                f"--allowed-origin {origin}: an origin has a scheme, a host and no path",
                hint="give one such as https://example.org or http://localhost:3000; * is every origin",
            )


def _name(host: str) -> str:
    """A host without its port and brackets, in small letters."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0].removesuffix(".")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return None
