"""A file of costs: written by ``spec bench step --out``, read by ``spec compare --costs``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, get_type_hints

import attrs

from spec_core import Target
from spec_core.errors import UsageError, error_message
from spec_costs.curve import Curve, Curves

FORMAT, VERSION = "spec-costs", "1.0"
MACHINE = ("target", "device", "dtype", "threads", "kernels")
"""Facts that costs depend on: all must be equal where the costs are used."""
AGAIN = "measure again with `spec bench step --out FILE`"
MANY = 1 << 20
"""Max rows, sequences, cached rows and entries: a file from a stranger may name any number."""


@attrs.frozen
class StepCost:
    """Cost of a step. rows: of each sequence. seconds: median time. depth: cached rows of each sequence."""

    batch: int
    depth: int
    rows: int
    seconds: float


@attrs.frozen
class DraftCost:
    """seconds: median time that the method added to steps with drafts of this length. steps: their number.

    drafts: 0 for steps in which the method found no draft.
    """

    method: str
    drafts: int
    seconds: float
    steps: int


@attrs.frozen
class Costs:
    """Costs of steps and drafts. machine: the values of MACHINE."""

    machine: dict[str, Any]
    steps: list[StepCost]
    drafting: list[DraftCost] = attrs.field(factory=list)

    def curves(self, batch: int) -> Curves:
        """Seconds of a step by rows and depth. Raises UsageError if none were measured for this batch."""
        costs_of_batch = [cost for cost in self.steps if cost.batch == batch]
        if not costs_of_batch:
            batches = ", ".join(map(str, sorted({cost.batch for cost in self.steps}))) or "none"
            raise UsageError(f"no costs of steps with batch {batch}, only: {batches}", hint=f"{AGAIN} --batch {batch}")
        depths = {cost.depth for cost in costs_of_batch}
        return Curves({d: Curve({c.rows: c.seconds for c in costs_of_batch if c.depth == d}) for d in depths})

    def drafts(self, method: str) -> Curve | None:
        """Seconds that a method adds, by length of its draft; None if it was not measured."""
        seconds_by_drafts = {cost.drafts: cost.seconds for cost in self.drafting if cost.method == method}
        return Curve({0: 0.0} | seconds_by_drafts) if seconds_by_drafts else None

    def check(self, target: Target) -> None:
        """Raise UsageError if they were measured with another model or on another device."""
        for name, here in machine(target).items():
            if self.machine.get(name) != here:
                there = self.machine.get(name)
                raise UsageError(
                    f"these costs were measured with {name} {there!r}, but here it is {here!r}", hint=AGAIN
                )


def machine(target: Target) -> dict[str, Any]:
    """The values of MACHINE here. threads: without the measurement that chose them."""
    info = target.info
    executor = {name: getattr(info, name) or None for name in ("threads", "kernels")}
    threads = None if executor["threads"] is None else str(executor["threads"]).partition(",")[0]
    return {"target": info.name, "device": info.device, "dtype": info.dtype, **executor, "threads": threads}


def as_json(costs: Costs, **more: Any) -> dict[str, Any]:
    """The content of a file. more: what else is written, such as the environment."""
    return {"format": FORMAT, "version": VERSION, **attrs.asdict(costs), **more}


def read_costs(path: Path) -> Costs:
    """Read costs. Raises UsageError for a file that cannot be read, or is not one of costs."""
    try:
        body = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: costs cannot be read: {error_message(error)}", hint=AGAIN) from error
    return parse_costs(body, str(path))


def parse_costs(body: Any, path: str) -> Costs:
    """The costs of a JSON value. path: where it comes from, for errors. Raises UsageError if it is malformed."""
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise UsageError(f"{path} has no costs: its format is not {FORMAT!r}", hint=AGAIN)
    if str(body.get("version")).partition(".")[0] != VERSION.partition(".")[0]:
        raise UsageError(f"{path}: version {body.get('version')!r} of {FORMAT} is not {VERSION}", hint=AGAIN)
    try:
        steps = [_create(StepCost, entry, 1) for entry in _list(body, "steps")]
        drafting = [_create(DraftCost, entry, 0) for entry in _list(body, "drafting")]
        known = body["machine"]
        return Costs({name: known.get(name) for name in MACHINE}, steps, drafting)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: costs are malformed: {error_message(error)}", hint=AGAIN) from error


def _list(body: dict[str, Any], name: str) -> list[Any]:
    if not isinstance(body[name], list) or len(body[name]) > MANY:
        raise TypeError(f"{name} must be a list")
    return body[name]


def _create(cls: type, entry: Any, low: int) -> Any:
    """low: min of whole numbers. Raises TypeError or ValueError for another field, a wrong type, or a wrong number."""
    cost: Any = cls(**entry)
    for name, kind in get_type_hints(cls).items():
        value: Any = getattr(cost, name)
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise TypeError(f"{name} must be {kind.__name__}, not {value!r:.40}")
        if kind is int and not low <= value <= MANY:
            raise ValueError(f"{name} must be between {low} and {MANY}, not {value}")
        if kind is float and not (math.isfinite(value) and (value > 0 if low else value >= 0)):
            raise ValueError(f"{name} must be seconds, not {value}")
    return cost
