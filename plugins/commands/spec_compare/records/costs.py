"""The costs of steps that belong to a comparison: ``costs.jsonl``, a line per baseline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from spec_commands import common
from spec_costs import file
from spec_costs.file import Costs

from spec_core.errors import UsageError, error_message
from spec_core.toolkit import JsonLimits

NAME = "costs.jsonl"
LIMITS = JsonLimits(containers=1 << 18, values=1 << 20, texts=1 << 18)


def write_costs(folder: Path, costs: Mapping[str, Costs]) -> None:
    """Write costs. Raises UsageError if the file cannot be written."""
    lines = [common.as_json(file.as_json(own_costs, baseline=name)) + "\n" for name, own_costs in costs.items()]
    try:
        common.write_file(folder / NAME, "".join(lines).encode())
    except OSError as error:
        raise common.write_error(folder, error) from error


def read_costs(folder: Path) -> dict[str, Costs] | None:
    """{baseline: costs}; None if the comparison has none. Raises UsageError for a malformed file."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        data = path.read_bytes()
        LIMITS.check(data)
        lines = [json.loads(line) for line in data.decode("utf-8").splitlines()]
        return {str(line["baseline"]): file.parse_costs(line, str(path)) for line in lines}
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path}: {error_message(error)}", hint="pass a directory that `spec compare --out` wrote"
        ) from error
