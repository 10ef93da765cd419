"""Counters of drafts in the metrics of vLLM, this project, llama-server and SGLang."""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from spec_commands.http_client import Client
from spec_core.errors import UsageError

LINE = re.compile(r"^(vllm|spec|llamacpp|sglang):(\w+?)(_total)?(\{[^}]*\})? ([0-9.eE+-]+)$", re.MULTILINE)
NAMES = {
    "spec_decode_num_drafts": "drafts",
    "spec_decode_num_draft_tokens": "drafted",
    "spec_decode_num_accepted_tokens": "accepted",
    "generation_tokens": "tokens",
    "tokens_predicted": "tokens",
}
LENGTH = "spec_accept_length"
"""SGLang's gauge."""


@attrs.frozen
class Counters:
    """Sums over all labels. source: whose names they are. length: SGLang's mean acceptance length."""

    source: str
    values: Mapping[str, float]
    length: float | None = None

    def __sub__(self, before: Counters) -> dict[str, float]:
        """What was counted between two readings."""
        return {name: value - before.values.get(name, 0.0) for name, value in self.values.items()}


def read_counters(client: Client) -> Counters | None:
    """The counters of a server, None if it shows none."""
    try:
        reply = client.get("/metrics")
    except UsageError:
        return None
    if reply.refused or not isinstance(reply.body, str):
        return None
    return parse_counters(reply.body)


def parse_counters(text: str) -> Counters | None:
    """Counters in the text form of Prometheus, of the first server whose names occur."""
    sums: dict[str, dict[str, float]] = {}
    length = None
    for match in LINE.finditer(text):
        value = float(match[5]) if re.fullmatch(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?", match[5]) else 0.0
        if match[2] == LENGTH:
            length = value
        if match[2] in NAMES:
            own = sums.setdefault(match[1], {})
            own[NAMES[match[2]]] = own.get(NAMES[match[2]], 0.0) + value
    for source in ("vllm", "spec", "llamacpp"):
        if "accepted" in sums.get(source, {}):
            return Counters(source, sums[source], length)
    return Counters("sglang", {}, length) if length is not None else None
