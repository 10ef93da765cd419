"""Measurements of a comparison: laps, the records of their texts, and the steps of each text."""

from __future__ import annotations

from typing import Any

import attrs

from spec_compare.records.described import field, unwritten_field
from spec_core.toolkit import DraftStatistics

PLAIN = "plain"
"""Name of plain decoding with the settings of the command."""
ORACLE = "oracle"
"""Method of a contender that knows the text."""


@attrs.define
class Steps:
    """Steps of the generation phase, one entry per step in every list."""

    drafted: list[int] = field("drafted tokens", factory=list)
    depth: list[int] = field("length of the longest path of the draft", factory=list)
    accepted: list[int] = field("accepted drafted tokens", factory=list)
    emitted: list[int] = field("emitted tokens", factory=list)
    seconds: list[float] = field("seconds since the end of the step before", factory=list)
    tested: list[int] = field("drafted positions that the rule decided on", factory=list)
    verified: list[int] = field(
        "accepted drafted tokens before the cut at stops and limits; empty in files of version 1.1 and before",
        factory=list,
    )


@attrs.define
class Trace:
    """Drafts of all steps, with --trace: one entry per step in every list; empty or null without a draft."""

    budget: list[int] = field("longest draft that was allowed", factory=list)
    ids: list[list[int]] = field("token ids of the draft", factory=list)
    parents: list[list[int] | None] = field(
        "index of the token that each drafted token follows, -1 for the text; null for a chain", factory=list
    )
    sources: list[list[str]] = field("the method that drafted each token", factory=list)
    confidence: list[list[float] | None] = field(
        "the method's estimate of each token's acceptance probability", factory=list
    )
    path: list[list[int]] = field("indices of the accepted tokens", factory=list)
    limits: list[dict[str, int]] = field(
        "longest draft that a controller's plan allowed, by method; empty without a plan", factory=list
    )
    seconds: list[dict[str, float]] = field("seconds by hook and plugin, and of verify", factory=list)
    texts: list[list[str]] = field("the text of each drafted token", factory=list)
    prices: list[dict[str, float]] = field(
        "min acceptance probability of a drafted token that a controller's plan set, by method",
        factory=list,
    )
    priced: list[list[str]] = field("methods that asked for that probability", factory=list)
    pieces: list[list[int]] = field("number of tokens of each piece, in the order proposed", factory=list)
    uncut: list[list[int]] = field("indices of the accepted tokens before the cut at stops and limits", factory=list)
    step: list[int] = field("number of the step in the contender's run, from 0", factory=list)
    before: list[float | None] = field("seconds of the whole step before; null in the first of a run", factory=list)
    start: list[int] = field("position of the first row", factory=list)
    pending: list[int] = field("rows of the text, without the draft's", factory=list)


@attrs.define
class PromptSteps:
    """Steps up to the first token, with --trace: one entry per step in every list; fields as in ``Trace``."""

    step: list[int] = field("number of the step in the contender's run, from 0", factory=list)
    before: list[float | None] = field("seconds of the whole step before; null in the first of a run", factory=list)
    start: list[int] = field("position of the first row", factory=list)
    pending: list[int] = field("rows of the prompt in this step", factory=list)
    seconds: list[dict[str, float]] = field("seconds by hook and plugin, and of verify", factory=list)


@attrs.frozen
class ServedText:
    """What a server says of a text; null where it does not say it."""

    tokens: int = field("tokens of the output, as the server counts them")
    source: str | None = field("where its counts of drafts are: `answer` or `/metrics`; null without them")
    drafts: int | None = field("steps with a draft")
    drafted: int | None = field("drafted tokens")
    accepted: int | None = field("accepted drafted tokens")
    gaps: list[float] = field("seconds between the events of the stream that have text", factory=list)

    @property
    def draft_statistics(self) -> DraftStatistics:
        """Its counts. A step emits one token more than it accepts, so steps follow from the accepted tokens."""
        if self.drafted is None or self.accepted is None:
            return DraftStatistics()
        emitted, drafts = max(0, self.tokens - 1), self.drafts or 0
        return DraftStatistics(
            steps=max(emitted - self.accepted, drafts, 1 if emitted else 0),
            drafted=self.drafted,
            accepted=self.accepted,
            emitted=emitted,
            drafts=drafts,
            depth=self.drafted if drafts else 0,
        )


@attrs.frozen(eq=False)
class Record:
    """One text: a prompt, or one turn of a conversation, by one contender."""

    contender: str = field("name of the contender")
    prompt: str = field("the prompt's `id`")
    family: str = field("the prompt's family")
    repeat: int = field("number of the repeat, from 0")
    seed: int = field("seed of this prompt, the same for all contenders")
    prompt_tokens: int = field("tokens of the prompt")
    tokens: list[int] = field("token ids of the output; empty if a server made it")
    finish: str = field("why the text ended: `stop`, `length`, `cancelled` or `error`")
    first_seconds: float = field("seconds until the first token: prefill")
    decode_seconds: float = field("seconds from the first token to the last")
    whole_seconds: float = field("this text's share of the time of all texts that ran together, prefill included")
    cpu_seconds: float = field("CPU seconds of this process from the first token to the last, all threads")
    steps: Steps = field("the steps after the first token")
    draft_statistics: DraftStatistics = unwritten_field(factory=DraftStatistics)
    text: str = field("the output as text", default="")
    baseline: str = field("name of the plain decoding that it is compared with", default=PLAIN)
    turn: int = field("number of the turn of a conversation, from 0", default=0)
    reused: int = field("prompt tokens whose rows were taken over from the turn before", default=0)
    pieces: list[str] | None = field("with --trace: the text of each output token", default=None)
    trace: Trace | None = field("with --trace: the draft of every step", default=None)
    prompt_steps: PromptSteps | None = field("with --trace: the steps up to the first token", default=None)
    served: ServedText | None = field("what a server says of the text; null if this program made it", default=None)

    @property
    def token_count(self) -> int:
        """Tokens of the output."""
        return len(self.tokens) if self.served is None else self.served.tokens

    @property
    def decode_tokens(self) -> int:
        """Tokens after the first one, which prefill produces."""
        return max(0, self.token_count - 1)

    @property
    def content(self) -> list[int]:
        """What must equal plain decoding's: token ids, or the characters of a server's text."""
        return self.tokens if self.served is None else [*map(ord, self.text)]


@attrs.frozen(eq=False)
class Lap:
    """One run of a batch of prompts by a contender. Values belong to all its texts together."""

    contender: str
    family: str
    repeat: int
    seconds: float = field("seconds of the whole lap")
    cpu_seconds: float = field("CPU seconds of this process, all threads")
    split: dict[str, float] = field(
        "seconds of the steps after the first token by hook, with `verify` for the target and `host` for the rest"
    )
    forwards: dict[str, int] = field("forwards of these steps by the target and each method")
    rows: dict[str, int] = field("rows of these forwards")
    records: list[Record] = unwritten_field()
    number: int = field("number of the lap in the order of the comparison, from 0", default=0)
    busy_seconds: float | None = field(
        "CPU seconds of the whole machine, all programs; null if the system does not report them", default=None
    )
    load_average: float | None = field(
        "load average of the last minute at the end of the lap; null if not reported", default=None
    )
    drafting: dict[str, list[float]] = field(
        "by length of the draft, 0 for none: number of these steps, and the seconds that `draft` and `process` took",
        factory=dict,
    )
    peak_bytes: int | None = field(
        "max resident memory of this process during the lap, with the models of all contenders; null if not reported",
        default=None,
    )
    device_peak_bytes: int | None = field(
        "max memory that torch allocated on the device; null if the CPU computes", default=None
    )
    joules: float | None = field(
        "energy of processors and device during the lap, all programs; null if the machine does not report it",
        default=None,
    )
    reports: dict[str, Any] = field("reports of plugins on the contender's run so far, by plugin", factory=dict)


def statistics_of(steps: Steps) -> DraftStatistics:
    """Sums over the steps of a record, by position. ``by_method`` and ``tv_distance`` are not in a record."""
    draft_statistics = DraftStatistics(steps=len(steps.emitted), emitted=sum(steps.emitted))
    columns = zip(steps.drafted, steps.depth, steps.accepted, steps.tested, strict=True)
    for drafted, depth, accepted, tested in columns:
        if drafted:
            one = DraftStatistics(drafted=drafted, accepted=accepted, drafts=1, depth=depth)
            one.reached, one.tested, one.kept = ({n: 1} for n in (depth, tested, accepted))
            draft_statistics.merge(one)
    return draft_statistics
