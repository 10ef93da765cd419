"""The memory plan: what a server will take, added up from metadata before a weight is read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from spec_kernels.machine import free_bytes

from spec_core.errors import UsageError

if TYPE_CHECKING:
    from spec_core import TargetInfo
    from spec_core.commands import PluginInstance

MIB = 1 << 20
READING = 256 * MIB
"""Bytes for requests while they are read: a long text that is tokenized, and grammars that are compiled."""
CHECKPOINTS = 9
"""States that a sequence of a hybrid keeps: its own, and those from which its prefix can be continued."""
LIMIT = Path("/sys/fs/cgroup/memory.max")
"""File with the memory limit of a container."""


@attrs.frozen
class Plan:
    """Bytes by what takes them."""

    weights: int
    """Bytes of the weights of the target."""
    step: int
    """Bytes of the largest step."""
    drafters: dict[str, int]
    """{method: bytes of its weights}."""
    slots: int
    """Bytes of ``sequences`` texts that fill the context, drafters' rows included."""
    cache: int
    """Bytes of rows of ended texts."""
    cached: int
    """Number of these rows."""
    sequences: int
    context: int
    pictures: int = 0
    """Bytes of the tower, and of pictures that are read or held; 0 for a model that reads text alone."""

    @property
    def total(self) -> int:
        weights = self.weights + sum(self.drafters.values())
        return weights + self.step + self.slots + self.cache + self.pictures + READING

    def lines(self) -> list[str]:
        """Lines of the plan for people."""
        drafters = [f"{_mib(size):>9} weights of {name}" for name, size in self.drafters.items()]
        return [
            f"{_mib(self.weights):>9} weights",
            *drafters,
            *([f"{_mib(self.step):>9} the largest step"] if self.step else []),
            f"{_mib(self.slots):>9} {self.sequences} texts of up to {self.context} tokens",
            f"{_mib(self.cache):>9} prompt cache of {self.cached} tokens",
            *(
                [f"{_mib(self.pictures):>9} pictures: the tower, one prompt that is read, and those held"]
                * bool(self.pictures)
            ),
            f"{_mib(READING):>9} requests while they are read",
            f"{_mib(self.total):>9} together",
        ]


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f} MiB"


def plan(
    info: TargetInfo,
    plugins: Iterable[PluginInstance],
    sequences: int,
    cache: int,
    cached: int | None = None,
    pictures: int = 0,
    step: int = 0,
) -> Plan:
    """The plan of a run. cache: bytes for the prompt cache. cached: its rows where they were asked for.

    pictures: bytes for them. step: max rows of a sequence in one forward.
    """
    plugins = list(plugins)
    memories = [chosen.compat.memory for chosen in plugins]
    row = (info.row_bytes or 0) + sum(memory.get("row", 0) for memory in memories)
    text = (info.rows_bytes(info.context, step) or 0) + sum(drafter_bytes(one, info.context) for one in memories)
    sizes = info.recurrent
    states = 0 if sizes is None else CHECKPOINTS * sizes.layers * sizes.state_bytes
    rows = cached if cached is not None else cache // row if row else 0
    weights = {chosen.name: chosen.compat.memory.get("weights", 0) for chosen in plugins}
    return Plan(
        weights=info.weight_bytes or 0,
        step=info.step_bytes or 0,
        drafters={name: size for name, size in weights.items() if size},
        slots=sequences * (text + states),
        cache=rows * row,
        cached=rows,
        sequences=sequences,
        context=info.context,
        pictures=pictures,
    )


def drafter_bytes(memory: Mapping[str, int], positions: int) -> int:
    """Bytes of the rows of a drafter for a text of this length, see ``Compat.memory``."""
    whole = positions * memory.get("row", 0)
    return min(whole, positions * memory.get("kept_row", memory.get("row", 0)) + memory.get("windows", 0))


def available_bytes() -> int | None:
    """Bytes that this process may still use, None where the system does not say."""
    limits = []
    try:
        limits.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits = [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")] or limits
        limits.append(int(LIMIT.read_text()))
    except (OSError, ValueError):
        pass  # no such system, no container, or a container without a limit
    return min(limits, default=None)


def check_memory(plan: Plan, limit: int, device: str = "cpu") -> None:
    """Raise UsageError where the plan does not fit. limit: bytes that were allowed, 0 is what is free."""
    free = limit or (available_bytes() if device.startswith("cpu") else free_bytes(device))
    if free is not None and plan.total > free:
        raise UsageError(
            f"the server would take {_mib(plan.total)}, and {_mib(free)} are "
            f"{'allowed' if limit else 'free'}:\n" + "\n".join(plan.lines()),
            hint="lower --context, -o max_sequences, -o serve.cache_mib or -o serve.picture_pixels, or take a smaller "
            "model",
        )
