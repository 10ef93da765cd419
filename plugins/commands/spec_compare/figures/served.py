"""What a comparison of servers cannot know, and warnings about what the servers say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spec_commands.timing_warnings import TimingWarning

from spec_compare.figures.summary import text_of
from spec_compare.records.header import SERVER, Header
from spec_compare.records.record import Lap, Record

UNKNOWN = "unknown"
LONG = 16
"""Min tokens of a text whose times are judged."""
BURST = 0.02
"""Share of the time of a text below which its tokens came together: something buffers the stream."""
END = 1
"""Tokens by which counts of one text may differ: some servers count the end token."""


def has_servers(header: Header) -> bool:
    """Whether the contenders are servers."""
    return all(target.family == SERVER for target in header.targets)


def unknown_facts(header: Header, laps: Iterable[Lap]) -> list[str]:
    """Lines on what cannot be known of servers; none for a comparison of methods."""
    if not has_servers(header):
        return []
    records: dict[str, list[Record]] = {}
    for record in (record for lap in laps for record in lap.records):
        records.setdefault(record.contender, []).append(record)
    return [
        "weights, precision, device and caches of the servers, and what else they served meanwhile",
        "token ids: texts are compared by their characters, and each server counts its own tokens",
        "acceptance by position, and steps: each token that is no accepted draft is taken for one",
        *(line for name, own in records.items() for line in _unknown_counts(name, own)),
    ]


def _unknown_counts(name: str, records: list[Record]) -> Iterator[str]:
    served = [record.served for record in records if record.served is not None]
    without = sum(one.drafted is None for one in served)
    if without == len(served):
        yield f"{name}: acceptance and tokens per step, as neither its answers nor /metrics count drafts of one text"
        return
    if without:
        yield f"{name}: the drafts of {without} of {len(served)} texts, whose counters counted other requests too"
    if all(one.drafts is None for one in served):
        yield f"{name}: the number of drafts, so also their mean acceptance length"


def server_warnings(laps: Iterable[Lap]) -> list[TimingWarning]:
    """Counts of equal texts that differ, and texts whose tokens came together."""
    records = [record for lap in laps for record in lap.records if record.served is not None]
    plain = {text_of(r): r for r in records if r.contender == r.baseline and r.repeat == 0}
    return [
        warning
        for name in dict.fromkeys(record.contender for record in records)
        for warning in _warnings(name, [record for record in records if record.contender == name], plain)
    ]


def _warnings(name: str, records: list[Record], plain: dict) -> Iterator[TimingWarning]:
    for record in records:
        first = plain.get(text_of(record))
        if first and first.text == record.text and abs(first.token_count - record.token_count) > END:
            counts = f"{record.token_count} tokens for a text that {first.contender} counts as {first.token_count}"
            text = f"{name} counts {counts} ({record.prompt}): rates of different counts cannot be compared"
            yield TimingWarning("server", name, text)
            break
    long = [record for record in records if record.token_count >= LONG]
    together = sum(r.decode_seconds < BURST * (r.first_seconds + r.decode_seconds) for r in long)
    if together * 2 > len(long):
        text = f"{name} sent the tokens of {together} of {len(long)} texts together: something buffers its stream"
        yield TimingWarning("server", name, text)
