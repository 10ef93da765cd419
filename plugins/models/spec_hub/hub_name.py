"""Names of models on a hub: ``ORG/NAME[@REVISION][:FILE or quantisation]``, with ``hub:`` before it or without."""

from __future__ import annotations

import re

import attrs

from spec_core.errors import UsageError

SCHEME = "hub:"
DEFAULT_REVISION = "main"
PATTERN = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?(?::(?P<part>.+))?")
COMMIT = re.compile(r"[0-9a-f]{40}")


@attrs.frozen
class HubName:
    """repository: ``ORG/NAME``. revision: a branch, tag or commit. part: a file or a quantisation, None for neither."""

    repository: str
    revision: str = DEFAULT_REVISION
    part: str | None = None

    def __str__(self) -> str:
        revision = "" if self.revision == DEFAULT_REVISION else f"@{self.revision}"
        return f"{SCHEME}{self.repository}{revision}" + (f":{self.part}" if self.part else "")


def parse_name(text: str) -> HubName:
    """Read a name. Raises UsageError for anything else."""
    match = PATTERN.fullmatch(text.removeprefix(SCHEME))
    parts = [] if match is None else f"{match['repository']}/{match['revision'] or DEFAULT_REVISION}".split("/")
    if match is None or {"", ".", ".."} & {*parts}:
        raise UsageError(
            f"{text[:100]!r} is not the name of a model on a hub",
            hint="write ORG/NAME, ORG/NAME:Q4_K_M for one quantisation, ORG/NAME:FILE, or ORG/NAME@REVISION",
        )
    return HubName(match["repository"], match["revision"] or DEFAULT_REVISION, match["part"])
