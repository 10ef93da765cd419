"""Writes results to a directory: each lap when it is finished, and a summary at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from spec_cli import common

from spec_core.errors import UsageError

if TYPE_CHECKING:
    from spec_compare.measure import Lap

LAPS, SUMMARY = "results.jsonl", "summary.json"


class Results:
    """``results.jsonl``, a line per prompt, contender and repeat, and ``summary.json``.

    Finished laps are kept if a run is interrupted. Raises UsageError before anything is measured if the directory
    cannot be written to or has results already.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        found = [name for name in (LAPS, SUMMARY) if (out / name).exists()]
        if found:
            raise UsageError(
                f"{out} has results already: {', '.join(found)}",
                hint="pass another directory as --out, or move them away",
            )

    def make_room(self) -> None:
        """The directory, checked before the measurement."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise common.unwritable(self.out, error) from error

    def add(self, lap: Lap) -> None:
        """Append a finished lap."""
        text = "".join(common.as_json(line) + "\n" for line in lines(lap))
        try:
            with (self.out / LAPS).open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise common.unwritable(self.out, error) from error

    def conclude(self, body: dict[str, Any]) -> None:
        """Write the summary, and print the paths of both files."""
        try:
            (self.out / SUMMARY).write_text(json.dumps(body, indent=1, ensure_ascii=False, default=str), "utf-8")
        except OSError as error:
            raise common.unwritable(self.out, error) from error
        common.note(f"written: {self.out / LAPS}, {self.out / SUMMARY}")


def lines(lap: Lap) -> list[dict[str, Any]]:
    """Records of a lap; ``lap`` carries what all its prompts share."""
    shared = {name: getattr(lap, name) for name in ("seconds", "cpu_seconds", "split", "forwards", "rows", "reports")}
    shared["prompts"] = [record.prompt for record in lap.records]
    own = [attrs.asdict(record, filter=lambda field, _: field.name != "tally") for record in lap.records]
    return [record | {"lap": shared} for record in own]
