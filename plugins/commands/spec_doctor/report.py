"""What ``spec doctor`` says: lines for people, and one JSON object."""

from __future__ import annotations

from typing import Any

from spec_commands.tables import Cells
from spec_costs.gains import Gain

from spec_doctor.diagnosis import Diagnosis, ReadingResult

SHOWN = 8
"""Readings that the table shows at most."""
LITTLE = 0.05
"""Share of first tokens below which a head accepts next to nothing."""


def as_object(file: Any, target: Any, diagnosis: Diagnosis, gain: Gain | None) -> dict[str, Any]:
    """The whole result."""
    best = diagnosis.best
    return {
        "head": file.info.name,
        "target": target.info.name,
        "kind": file.head.kind,
        "dialect": file.head.producer,
        "repairs": list(file.head.repairs),
        "layers": list(file.head.sources(target.info.layers)),
        "readings": [_reading(result) for result in diagnosis.results],
        "best": best.name,
        "changes": {} if best.reading is None else dict(best.reading.changes),
        "cause": diagnosis.cause,
        "acceptance": diagnosis.whole.conditional,
        "accepted": diagnosis.whole.length,
        "costs": None if gain is None else {"step": gain.step, "draft_token": gain.draft, "row": gain.rows},
        "speedup": None if gain is None else gain.speedup,
        "draft_length": None if gain is None else gain.drafts,
    }


def _reading(result: ReadingResult) -> dict[str, Any]:
    a = result.acceptance
    facts = {"name": result.name, "cause": None if result.reading is None else result.reading.cause}
    if a is None:
        return {**facts, "error": result.error}
    positions = {"tested": list(a.tested), "accepted": list(a.accepted), "conditional": a.conditional}
    return {**facts, **positions, "length": a.length, "chance_ratio": result.ratio, "better": result.is_better}


def table_of(diagnosis: Diagnosis) -> Cells:
    """Acceptance by position: the reading of the dialect, then the others, the best first."""
    first, *others = diagnosis.results
    ranked = sorted((t for t in others if t.difference is not None), key=lambda t: -t.ratio)
    shown = [first, *ranked[:SHOWN]]
    longest = max(len(t.acceptance.tested) for t in shown if t.acceptance)
    titles = ["reading", *(str(i + 1) for i in range(longest)), "chance"]
    return Cells(titles, [_row(t) for t in shown], {"reading"})


def _row(result: ReadingResult) -> list[str]:
    a = result.acceptance
    assert a is not None
    shares = [f"{share:.0%}" if tested else "-" for share, tested in zip(a.conditional, a.tested, strict=True)]
    return [result.name, *shares, f"{result.ratio:.2f}"]


def last_lines(diagnosis: Diagnosis, gain: Gain | None) -> list[str]:
    """The best reading, its cause, and what it costs and gains."""
    shares = " ".join(f"{share:.0%}" for share in diagnosis.whole.conditional)
    lines = [f"best reading: {diagnosis.best.name}; acceptance by position {shares}"]
    if diagnosis.cause is not None:
        lines.append(f"cause: {diagnosis.cause}")
    elif diagnosis.whole.first < LITTLE:
        lines.append("it accepts next to nothing in every reading: none of the usual causes explains it")
    if gain is None:
        return [*lines, "what its drafts cost was not measured"]
    costs = f"a step takes {gain.step * 1e3:.2f} ms, drafting one token {gain.draft * 1e3:.2f} ms"
    what = f"{gain.speedup:.2f} times plain decoding with {gain.drafts} drafted tokens" if gain.drafts else "no gain"
    return [*lines, f"{costs}, one more row {gain.rows * 1e3:.2f} ms: {what}"]
