"""Asks a server whether it lives, for containers: ``python -m spec_serve.health [OPTIONS OF spec serve]``.

Without options they are process 1's, so that the health check of an image fits whatever its container starts.
The exit code is 0 if the server answers that it generates texts, else 1.
"""

from __future__ import annotations

import ipaddress
import ssl
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from click import ClickException
from spec_commands.common import print_note

from spec_core.errors import SpecError
from spec_serve.settings import ServeSettings

SECONDS = 10
"""Time in which the server must answer."""
FIRST_PROCESS = Path("/proc/1/cmdline")


def options_of(command_line: bytes) -> list[str]:
    """Arguments of ``spec serve`` in the command line of a process, as Linux has it."""
    words = command_line.decode("utf-8", "surrogateescape").split("\0")[:-1]
    return words[words.index("serve") + 1 :] if "serve" in words else []


def settings_of(options: list[str]) -> ServeSettings:
    """The server's own settings with these options, the environment and the settings file. Raises UsageError."""
    from spec_serve.command import limits_of, resolve_flags, serve

    flags = dict(serve.make_context("spec serve", list(options)).params)
    return limits_of(resolve_flags(flags))


def url_of(settings: ServeSettings) -> str:
    """Where the server is asked: on this machine."""
    host = settings.host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        loopback = "::1" if address.version == 6 else "127.0.0.1"
        host = loopback if address.is_unspecified else host
        host = f"[{host}]" if address.version == 6 else host
    return f"{'https' if settings.ssl_cert_file else 'http'}://{host}:{settings.port}/health"


def is_healthy(url: str) -> bool:
    """Whether a server answers there. Its certificate is not checked: it is of another name than this machine's."""
    context = ssl._create_unverified_context() if url.startswith("https") else None
    try:
        with urlopen(url, timeout=SECONDS, context=context) as answer:  # a redirect or an error is no health
            return bool(answer.status == 200)
    except (URLError, OSError) as error:
        print_note(f"{url}: {error}")
        return False


def main() -> int:
    """The exit code."""
    try:
        limits = settings_of(sys.argv[1:] or options_of(FIRST_PROCESS.read_bytes()))
    except (SpecError, ClickException) as error:
        print_note(f"error: {error}")
        return 1
    return 0 if is_healthy(url_of(limits)) else 1


if __name__ == "__main__":
    sys.exit(main())
