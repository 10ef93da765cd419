"""Counts of methods with vLLM's own metrics: with PROMETHEUS_MULTIPROC_DIR its ``/metrics`` shows them too."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

COUNTED = {
    "spec:spec_decode_num_drafts": ("Drafts that were verified.", "drafts"),
    "spec:spec_decode_num_draft_tokens": ("Drafted tokens that were verified.", "drafted"),
    "spec:spec_decode_num_accepted_tokens": ("Drafted tokens that were accepted.", "accepted"),
}


class Counters:
    """Counters of prometheus_client, raised to what a report says."""

    def __init__(self) -> None:
        from prometheus_client import Counter

        self.counters = {name: Counter(name, help_text, ["method"]) for name, (help_text, _) in COUNTED.items()}
        self.seconds = Counter("spec:hook_seconds", "Time in hooks of plugins.", ["hook"])
        self.known: dict[tuple[str, str], float] = {}

    @classmethod
    def create(cls) -> Counters | None:
        """None without PROMETHEUS_MULTIPROC_DIR: another process could not read them."""
        return cls() if os.environ.get("PROMETHEUS_MULTIPROC_DIR") else None

    def __call__(self, report: Mapping[str, Any]) -> None:
        for name, label, value in self._values(report):
            counter = self.counters.get(name, self.seconds)
            counter.labels(label).inc(max(0.0, value - self.known.get((name, label), 0.0)))
            self.known[name, label] = value

    @staticmethod
    def _values(report: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
        for method, counts in report["methods"].items():
            for name, (_, key) in COUNTED.items():
                yield name, method, counts[key]
        for hook, seconds in report["seconds"].items():
            yield "spec:hook_seconds", hook, seconds
