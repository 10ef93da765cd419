"""Requests of an engine in a host: what each did in a step, and the drafts for the next one. Knows no engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

import attrs
from torch import Tensor

from spec_core import Request
from spec_core.errors import SpecError, UsageError
from spec_core.host import Host, Progress
from spec_core.toolkit import DraftStatistics

log = logging.getLogger("spec_core")

PUBLISHED = 16
"""Steps between two updates of metrics."""
SWITCHES = {"spec_draft_max": "draft_max", "spec_methods": "methods"}
"""Keys of a request's own arguments, and the fields of Request that they set."""


@attrs.frozen(eq=False)
class Share:
    """One request in one step of an engine.

    key: the engine's id. start: position of the first row. rows: rows of the step, ``checked`` draft tokens among them.
    tokens: committed by the step; none while more of the prompt follows. logits: [1 + checked, V].
    hidden: {i: [rows, D]}. final: [rows, D]. Hidden states and logits are empty unless the host needs them.
    """

    key: str
    start: int
    rows: int
    checked: int = 0
    tokens: tuple[int, ...] = ()
    logits: Tensor | None = None
    hidden: Mapping[int, Tensor] = attrs.field(factory=dict)
    final: Tensor | None = None


@attrs.define(eq=False)
class Requests:
    """The running requests of an engine in one host. Requests that plugins cannot serve run without drafts.

    publish: called with ``report`` after some steps, and when requests end. seconds: time of all steps, with plugins.
    """

    host: Host
    publish: Callable[[dict[str, Any]], None] | None = None
    running: set[str] = attrs.field(factory=set)
    refused: set[str] = attrs.field(factory=set)
    steps: int = 0
    seconds: float = 0.0

    def step(self, shares: Sequence[Share], asked: Callable[[str], Request], longest: int) -> dict[str, list[int]]:
        """The engine made a step; returns {key: draft} for the next one.

        asked: the request of a key, called once per key. longest: 0 where the engine takes no drafts in the next step.
        """
        began = perf_counter()
        for share in shares:
            self._begin(share.key, asked)
        progress: dict[Hashable, Progress] = {
            share.key: self._progress(share) for share in shares if self._tells(share)
        }
        drafts = self.host.step(progress, dict.fromkeys(progress, longest), rows=sum(share.rows for share in shares))
        self.steps += 1
        if self.steps % PUBLISHED == 0:
            self._publish()
        self.seconds += perf_counter() - began
        return {key: list(draft.ids) for key, draft in drafts.items()}

    def _begin(self, key: str, asked: Callable[[str], Request]) -> None:
        if key in self.running or key in self.refused:
            return
        try:
            self.host.begin(key, asked(key))
        except SpecError as error:
            self.refused.add(key)
            log.warning("%s runs without drafts: %s", key, error.reason)
        else:
            self.running.add(key)

    def end(self, finished: Iterable[str]) -> None:
        """The engine finished these requests."""
        ended = self.running.intersection(finished)
        self.running -= ended
        self.refused.difference_update(finished)
        for key in ended:
            self.host.end(key)
        if ended:
            self._publish()

    def _publish(self) -> None:
        if self.publish is not None:
            self.publish(self.report())

    def _tells(self, share: Share) -> bool:
        """Parts of prompts are told where plugins read hidden states; otherwise the last part tells all."""
        return share.key in self.running and bool(share.tokens or self.reads_rows)

    def report(self) -> dict[str, Any]:
        """Statistics as of a run, running requests included; ``adapter_seconds``: time of all steps of the host."""
        whole = DraftStatistics()
        for tally in (self.host.stats.pooled, *self.host.stats.running.values()):
            whole.merge(tally)
        return self.host.stats.report() | whole.report() | {"adapter_seconds": self.seconds}

    @property
    def reads_rows(self) -> bool:
        """Whether plugins read a hidden state of every committed token."""
        return bool(self.host.needs.hidden) or self.host.needs.final

    def _progress(self, share: Share) -> Progress:
        start = share.start if self.reads_rows else None
        if not share.tokens:
            return Progress(start=start, prompt_rows=share.rows, hidden=share.hidden, final=share.final)
        return Progress(share.tokens, share.checked, start, 0, share.logits, share.hidden, share.final)


def switch_fields(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Fields of Request that a request's own arguments set. Raises UsageError for an unknown ``spec_`` key."""
    switches = {key: value for key, value in (extra or {}).items() if key.startswith("spec_")}
    if unknown := switches.keys() - SWITCHES.keys():
        raise UsageError(
            f"{', '.join(sorted(unknown))} is no switch of a request", hint=f"known: {', '.join(SWITCHES)}"
        )
    fields = {SWITCHES[key]: value for key, value in switches.items()}
    if isinstance(fields.get("methods"), str):
        fields["methods"] = tuple(name for name in fields["methods"].split(",") if name)
    return fields
