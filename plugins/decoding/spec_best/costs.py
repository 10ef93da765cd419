"""Costs of steps and drafts of a model and its drafters: measured once on this machine, then kept in a file."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from spec_costs import drafting, steps
from spec_costs.file import Costs, DraftCost, StepCost, as_json, machine, read

from spec_best.drafters import Drafter
from spec_core import CONTRACT, Request, Run, Sampling, Target, TargetInfo, load
from spec_core.errors import SpecError

BYTES_MAX = 1 << 29
"""Bytes of the model and its drafters: larger ones are not loaded twice for a measurement."""
SECONDS = 2.0
"""Time that a measurement may take."""
ROWS = (1, 2, 4, 8)
"""Rows of the steps that are timed."""
DEPTH, REPEATS, LONGEST, TOKENS = 64, 3, 8, 24
"""Prompt tokens; repetitions of a step; the longest draft; tokens of a text that shows what drafts take."""


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
        return read(path), "measured before"
    except SpecError:
        pass
    began = perf_counter()
    try:
        costs = _measure(load(info.file, device=info.device), drafters, began + SECONDS)
    except Exception as error:  # a measurement never ends a load
        raise NotMeasured(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
    _keep(path, costs)
    return costs, f"measured in {perf_counter() - began:.1f} s"


def _measure(target: Target, drafters: list[Drafter], ends_at: float) -> Costs:
    """Time steps, then the drafts of each drafter while there is time."""
    step_costs = [
        StepCost(1, DEPTH, rows, median(timing.step for timing in timings))
        for rows, timings in steps.measure(target, ROWS, DEPTH, 1, REPEATS, Sampling(temperature=0.0)).items()
    ]
    draft_costs: list[DraftCost] = []
    for drafter in drafters:
        if perf_counter() < ends_at:
            draft_costs += _draft_costs(target, drafter)
    return Costs(machine(target), step_costs, draft_costs)


def _draft_costs(target: Target, drafter: Drafter) -> list[DraftCost]:
    """Time the drafts of a method, in two texts; the first one warms it up."""
    make: Callable[[Any], Run] = lambda control: Run(
        target, [("lengths", control), drafter.method], draft_max=LONGEST, reuse=False, max_sequences=1
    )
    prompt = [1 + i % (target.info.vocab - 1) for i in range(DEPTH)]
    requests = [Request(prompt, max_tokens=TOKENS, seed=seed, ignore_eos=True) for seed in (0, 1)]
    seconds = drafting.measure(make, requests, LONGEST, REPEATS)
    return [DraftCost(drafter.name, length, median(each), len(each)) for length, each in seconds.items() if each]


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
