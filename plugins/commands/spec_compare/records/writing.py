"""Writes results to a directory: the header first, each lap when it is finished, and a summary at the end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import attrs
from spec_commands import common
from spec_commands.json_text import format_json
from spec_commands.prompts import Prompt

from spec_compare.records import prompts
from spec_compare.records.aliases import aliases
from spec_compare.records.continuation import check_same
from spec_compare.records.header import Header, Session
from spec_compare.records.reading import LAPS, SUMMARY, Comparison, read_results
from spec_compare.records.record import Lap, Record
from spec_compare.records.schema import stored_fields
from spec_compare.records.sessions import new_session
from spec_core.errors import UsageError

Written = Callable[[bytes], None]
"""Called with lines of the results after they were written."""


def ignore_line(line: bytes) -> None:
    """Ignore a line: the default."""


class Results:
    """``results.jsonl``, a header and a line per text, and ``summary.json``.

    Finished laps are kept if a run is interrupted, and a run with the same ``--out`` continues after them.
    Raises UsageError before anything is loaded if the directory has a summary without results, or results that
    cannot be read.

    written: called with the header, and the lines of each lap, after they were written.
    """

    def __init__(self, out: Path, written: Written = ignore_line) -> None:
        self.out, self.written = out, written
        self.before: Comparison | None = read_results(out) if has_header(out) else None
        if self.before is None and (out / SUMMARY).exists():
            raise UsageError(
                f"{out} has {SUMMARY} without {LAPS}", hint="pass another directory as --out, or move it away"
            )

    @property
    def laps(self) -> list[Lap]:
        """Finished laps of the run that was interrupted."""
        return [] if self.before is None else self.before.laps

    @property
    def sessions(self) -> list[Session]:
        """Continuations so far, this one included."""
        return read_results(self.out).sessions

    def begin(self, header: Header, chosen: list[Prompt] | None) -> None:
        """Make the directory and write the header; or check that the interrupted run was the same, and continue it.

        chosen: prompts to store; None to store none. Raises UsageError that names what changed.
        """
        if self.before is None:
            self._try(lambda: self.out.mkdir(parents=True, exist_ok=True))
            self._append([{"kind": "header", **attrs.asdict(header)}], "wb")
        else:
            check_same(self.before.header, header, self.out)
        if chosen is not None and not (self.out / prompts.NAME).exists():
            prompts.write_prompts(self.out, chosen)
        if self.before is not None and not self.before.complete:
            end = self.before.end
            self._try(lambda: os.truncate(self.out / LAPS, end))
            self._append([{"kind": "session", **attrs.asdict(new_session(len(self.laps)))}])

    def add(self, lap: Lap) -> None:
        """Append a finished lap."""
        self._append(lines(lap))

    def conclude(self, body: dict[str, Any]) -> None:
        """Write the summary, and print the paths of both files."""
        text = format_json(body, indent=1)
        self._try(lambda: common.write_file(self.out / SUMMARY, text.encode()))
        common.print_note(f"written: {self.out / LAPS}, {self.out / SUMMARY}")

    def _append(self, objects: list[dict[str, Any]], mode: Literal["ab", "wb"] = "ab") -> None:
        lines = "".join(common.as_json(one) + "\n" for one in objects).encode()

        def write() -> None:
            with (self.out / LAPS).open(mode) as file:
                file.write(lines)

        self._try(write)
        self.written(lines)

    def _try(self, write: Any) -> None:
        try:
            write()
        except OSError as error:
            raise common.write_error(self.out, error) from error


def has_header(out: Path) -> bool:
    """Whether the directory has at least the header: a program may end while it writes that."""
    try:
        with (out / LAPS).open("rb") as file:
            return file.readline().endswith(b"\n")
    except FileNotFoundError:
        return False
    except OSError as error:
        raise common.write_error(out, error) from error


def lines(lap: Lap) -> list[dict[str, Any]]:
    """Records of a lap; ``lap`` carries what all its texts share."""
    shared = {field.name: getattr(lap, field.name) for field in stored_fields(Lap)}
    shared |= {"prompts": list(dict.fromkeys(r.prompt for r in lap.records)), "texts": len(lap.records)}
    return [{"kind": "record", **own_fields(record), **aliases(record), "lap": shared} for record in lap.records]


def own_fields(record: Record) -> dict[str, Any]:
    """The fields of a record that are written."""
    return attrs.asdict(record, filter=lambda field, _: field.name != "draft_statistics")
