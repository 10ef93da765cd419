"""Reads the results of a comparison: of one that finished, or as far as an interrupted one came.

Everything that works on results reads them here. The files may come from anyone: every line is checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from spec_compare.records.agreement import check_header, check_record, check_values
from spec_compare.records.convert import LapFacts, structure
from spec_compare.records.header import FORMAT, VERSION, Header, Session
from spec_compare.records.record import Lap, Record
from spec_core.errors import UsageError, error_message, quote_value
from spec_core.toolkit import JsonLimits

LAPS, SUMMARY = "results.jsonl", "summary.json"
LINE_BYTES = 64 << 20
"""Bytes of a line."""
LINE = JsonLimits(containers=1 << 19, values=1 << 22, texts=1 << 19)
"""Values of a line: a text of a million tokens, with all its steps."""
HINT = "pass a directory that `spec compare --out` wrote"


@attrs.frozen(eq=False)
class Comparison:
    """Contents of a directory: the header, continuations, and the finished laps in the order of the comparison.

    end: bytes of the file up to the last complete lap. After it there may be a part of a lap.
    """

    folder: Path
    header: Header
    sessions: list[Session]
    laps: list[Lap]
    end: int

    @property
    def labels(self) -> dict[str, str]:
        """{contender: why its texts need not equal plain decoding's}."""
        return {c.name: c.label for c in self.header.contenders if c.label is not None}

    @property
    def complete(self) -> bool:
        return len(self.laps) == self.header.laps


def read_results(folder: Path) -> Comparison:
    """The results in a directory. Raises UsageError that names the file and the line that is wrong."""
    file = folder / LAPS
    reader = Reader(file)
    for line in _lines(file):
        reader.take(line)
    if reader.header is None:
        raise UsageError(f"{file} is empty", hint=HINT)
    return Comparison(folder, reader.header, reader.sessions, reader.laps, reader.end)


def _lines(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as stream:
            while line := stream.readline(LINE_BYTES + 1):
                yield line
    except OSError as error:
        raise UsageError(f"{file}: {error_message(error)}", hint=HINT) from error


@attrs.define(eq=False)
class Reader:
    """Takes one line after the other. A lap counts once the records of all its texts are there."""

    file: Path
    header: Header | None = None
    sessions: list[Session] = attrs.field(factory=list)
    laps: list[Lap] = attrs.field(factory=list)
    end: int = 0
    number: int = 0
    at: int = 0
    open: list[tuple[LapFacts, Record]] = attrs.field(factory=list)
    numbers: set[int] = attrs.field(factory=set)
    torn: bool = False

    def take(self, line: bytes) -> None:
        self.number += 1
        if len(line) > LINE_BYTES:
            raise self._error(f"has more than {LINE_BYTES >> 20} MiB")
        self.at += len(line)
        if self.torn:
            raise self._error("follows a line that is not complete")
        if not line.endswith(b"\n"):
            self.torn = True  # the program ended while it wrote
            return
        try:
            self._add(self._object(line))
        except UsageError:
            raise
        except (ValueError, RecursionError) as error:
            raise self._error(str(error)) from error

    def _object(self, line: bytes) -> dict[str, Any]:
        LINE.check(line)
        try:
            value = json.loads(line.decode("utf-8"), parse_constant=_refuse)
        except json.JSONDecodeError as error:
            raise ValueError(f"not valid JSON: {error.msg} at column {error.colno}") from error
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
        check_values(value)
        return value

    def _add(self, value: dict[str, Any]) -> None:
        kind = value.pop("kind", None)
        if self.header is None:
            self.header = self._header(kind, value)
            self.end = self.at
        elif kind == "session":
            self.open.clear()  # a lap that was interrupted is measured again
            self.sessions.append(structure(value, Session))
            self.end = self.at
        elif kind == "record":
            self._record(value)
        else:
            raise ValueError(f"its kind is {quote_value(kind)}: record or session is needed")

    def _header(self, kind: Any, value: dict[str, Any]) -> Header:
        if kind != "header" or value.get("format") != FORMAT:
            raise UsageError(f"{self.file}, line 1 is not a header of {FORMAT}", hint=HINT)
        _check_version(self.file, value.get("version"))
        header = structure(value, Header)
        check_header(header)
        return header

    def _record(self, value: dict[str, Any]) -> None:
        facts = structure(value.pop("lap", None), LapFacts)
        record = structure(value, Record)
        assert self.header is not None
        check_record(self.header, facts, record)
        if self.open and self.open[0][0].number != facts.number:
            self.open.clear()
        self.open.append((facts, record))
        talking = list(dict.fromkeys(r.prompt for _, r in self.open))
        if talking == facts.prompts and len(self.open) == facts.texts:
            self._close(facts)

    def _close(self, facts: LapFacts) -> None:
        if facts.number in self.numbers:
            raise ValueError(f"lap {facts.number} is there twice")
        self.numbers.add(facts.number)
        self.laps.append(facts.of([record for _, record in self.open]))
        self.open.clear()
        self.end = self.at

    def _error(self, problem: str) -> UsageError:
        return UsageError(f"{self.file}, line {self.number}: {problem[:200]}", hint=HINT)


def _check_version(file: Path, version: Any) -> None:
    major = str(version).partition(".")[0]
    if major != str(VERSION[0]):
        raise UsageError(
            f"{file} has the format version {quote_value(version)}, this program reads {VERSION[0]}.x",
            hint="use the version of spec-core that wrote it: its header names it under environment.packages",
        )


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a JSON number")
