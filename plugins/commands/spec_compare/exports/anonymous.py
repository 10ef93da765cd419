"""Results without the names of machines, persons and folders: for a paper whose reviewers must not know its authors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from spec_commands import common

from spec_compare.inputs.conversation import PICTURE
from spec_compare.records import costs, prompts
from spec_compare.records.reading import LAPS, read_results

PATH = re.compile(r"[^\s,;:=\"'()]*[/\\][^\s,;:=\"'()]*")
"""A path inside a text, such as the file of a method."""
ADDRESS = re.compile(r"https?:/*[^\s\"')]*", re.IGNORECASE)
"""An address of a server."""
MEASURED = ("environment", "kernels", "exact", "family", "dtype")
"""Fields of a header that this program writes itself: they have no paths, and slashes of other meanings."""
NOTE = "names of the machine, paths and the command line are in it; --anonymous leaves them out"


@contextmanager
def anonymous_copy(folder: Path, is_anonymous: bool) -> Iterator[Path]:
    """The folder of results, or a copy of its finished laps without names, which lasts as long as the block.

    Raises UsageError for results that cannot be read.
    """
    if not is_anonymous:
        yield folder
        return
    end, own_costs = read_results(folder).end, costs.read_costs(folder)
    with TemporaryDirectory() as place:
        copy = Path(place)
        copy.joinpath(LAPS).write_bytes(hide_names((folder / LAPS).read_bytes()[:end]))
        if own_costs is not None:
            costs.write_costs(copy, {hide_paths(name): one for name, one in own_costs.items()})
        if (folder / prompts.NAME).exists():
            copy.joinpath(prompts.NAME).write_bytes(_hide_pictures((folder / prompts.NAME).read_bytes()))
        yield copy


def _hide_pictures(data: bytes) -> bytes:
    """Stored prompts, whose pictures have no folders."""
    rows = (json.loads(line) for line in data.splitlines())
    shown = ({**row, PICTURE: hide_paths(row[PICTURE])} if PICTURE in row else row for row in rows)
    return "".join(f"{common.as_json(row)}\n" for row in shown).encode()


def hide_names(data: bytes) -> bytes:
    """The lines of ``results.jsonl`` without hosts, commands and folders."""
    return "".join(f"{common.as_json(_hide_line(json.loads(line)))}\n" for line in data.splitlines()).encode()


def _hide_line(line: dict[str, Any]) -> dict[str, Any]:
    if line.get("kind") == "record":
        return {**line, **{name: hide_paths(line[name]) for name in ("contender", "baseline")}}
    shown = {name: value if name in MEASURED else hide_paths(value) for name, value in line.items()}
    return {**shown, "command": []} | ({"host": ""} if "host" in line else {})


def hide_paths(value: Any) -> Any:
    """A value whose texts, names of fields included, have of each path its last part alone."""
    if isinstance(value, str):
        value = ADDRESS.sub("URL", value)
        return PATH.sub(lambda match: re.split(r"[/\\]", match[0].rstrip("/\\"))[-1], value)
    if isinstance(value, list):
        return [hide_paths(one) for one in value]
    if isinstance(value, dict):
        return {hide_paths(name): one if name in MEASURED else hide_paths(one) for name, one in value.items()}
    return value
