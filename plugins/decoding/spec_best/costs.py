"""Costs of steps and drafts of a model and its drafters: measured once on this machine, then kept in a file."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter

from spec_costs.file import Costs, as_json, read_costs
from spec_costs.gains import measure_costs

from spec_best.drafters import Drafter
from spec_core import CONTRACT, TargetInfo, load
from spec_core.errors import SpecError

BYTES_MAX = 1 << 29
"""Bytes of the model and its drafters: larger ones are not loaded twice for a measurement."""
SECONDS = 2.0
"""Time that a measurement may take."""


class NotMeasured(Exception):
    """Why there are no costs, in one line."""


def costs_of(info: TargetInfo, drafters: Iterable[Drafter]) -> tuple[Costs, str]:
    """Costs of a plain step, of steps with more rows, and of drafts by method, and where they come from.

    Raises NotMeasured.
    """
    drafters = list(drafters)
    beside = [Path(drafter.file) for drafter in drafters if drafter.file and Path(drafter.file).exists()]
    files = [Path(info.file), *beside]
    if not info.file or not files[0].exists():
        raise NotMeasured("the model has no file of its own")
    if (size := sum(map(_bytes_of, files))) > BYTES_MAX:
        raise NotMeasured(f"{size / 2**20:,.0f} MiB would be read twice")
    path = _cache_folder() / f"{_key(info, files, drafters)}.json"
    try:
        return read_costs(path), "measured before"
    except SpecError:
        pass
    began = perf_counter()
    try:
        methods = [(drafter.name, drafter.method) for drafter in drafters]
        costs = measure_costs(load(info.file, device=info.device), methods, began + SECONDS)
    except Exception as error:  # a measurement never ends a load
        raise NotMeasured(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
    _keep(path, costs)
    return costs, f"measured in {perf_counter() - began:.1f} s"


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spec-core" / "costs"


def _key(info: TargetInfo, files: list[Path], drafters: list[Drafter]) -> str:
    """Changes with a file, the machine and the contract."""
    facts = [(str(path.resolve()), _bytes_of(path), path.stat().st_mtime_ns) for path in files]
    here = platform.node(), platform.machine(), os.cpu_count(), info.device, str(CONTRACT)
    names = [(drafter.name, drafter.file) for drafter in drafters]
    return hashlib.sha256(json.dumps([facts, here, names]).encode()).hexdigest()[:32]


def _bytes_of(path: Path) -> int:
    return (
        sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else path.stat().st_size
    )


def _keep(path: Path, costs: Costs) -> None:
    """Keep costs. A folder that cannot be written only means that they are measured again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(as_json(costs)), "utf-8")
        temporary.replace(path)
    except OSError:
        pass
