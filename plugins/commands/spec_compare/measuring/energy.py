"""Peak memory and energy of a lap, where the machine reports them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RAPL = Path("/sys/class/powercap")
RESET_PEAK = "5"
"""Written to ``clear_refs``, it sets the peak of the resident memory to what is resident now."""


@attrs.frozen
class Counter:
    """One energy counter. joules: reads it. wraps: joules at which it starts again at 0; None if it does not."""

    joules: Callable[[], float]
    wraps: float | None = None

    def since(self, before: float) -> float:
        spent = self.joules() - before
        return spent + self.wraps if spent < 0 and self.wraps is not None else spent


@attrs.frozen
class Usage:
    """peak_bytes: max resident memory of this process. device_peak_bytes: max memory that torch used on the device.
    joules: energy of the processors and the device, all programs. None if it is not reported.
    """

    peak_bytes: int | None
    device_peak_bytes: int | None
    joules: float | None


@attrs.define(eq=False)
class Meter:
    """Measures from ``begin`` to ``end``. device: of the target, such as ``cpu`` or ``cuda:0``."""

    device: str = "cpu"
    status: Path = STATUS
    clear: Path = CLEAR
    counters: list[Counter] = attrs.field(factory=list)
    _resets: bool = False
    _before: list[float] = attrs.field(factory=list)

    @classmethod
    def of(cls, device: str) -> Meter:
        """Meter with the energy counters of this machine."""
        return cls(device, counters=[*rapl(), *nvml(device)])

    def begin(self) -> None:
        self._resets = _write(self.clear, RESET_PEAK)
        if self.device.startswith("cuda"):
            _cuda().reset_peak_memory_stats(self.device)
        self._before = [counter.joules() for counter in self.counters]

    def end(self) -> Usage:
        spent = [c.since(before) for c, before in zip(self.counters, self._before, strict=True)]
        device = _cuda().max_memory_allocated(self.device) if self.device.startswith("cuda") else None
        return Usage(_peak(self.status) if self._resets else None, device, sum(spent) if spent else None)


def _write(path: Path, text: str) -> bool:
    try:
        path.write_text(text)
    except OSError:
        return False
    return True


def _peak(status: Path) -> int | None:
    try:
        match = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.M)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def rapl(folder: Path = RAPL) -> list[Counter]:
    """The processor packages of Linux's powercap; most systems let only root read them."""
    counters = []
    for zone in sorted(folder.glob("intel-rapl:*")):
        if re.fullmatch(r"intel-rapl:\d+", zone.name) and _microjoules(zone / "energy_uj") is not None:
            wraps = _microjoules(zone / "max_energy_range_uj")
            counters.append(Counter(_reader(zone / "energy_uj"), wraps))
    return counters


def _reader(file: Path) -> Callable[[], float]:
    return lambda: _microjoules(file) or 0.0


def _microjoules(file: Path) -> float | None:
    """The content of the file in joules; None if it cannot be read."""
    try:
        return int(file.read_text()) / 1e6
    except (OSError, ValueError):
        return None


def nvml(device: str) -> list[Counter]:
    """The energy counter of an NVIDIA device, if the package ``nvidia-ml-py`` is installed."""
    if not device.startswith("cuda"):
        return []
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{_cuda().get_device_properties(device).uuid}")
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except pynvml.NVMLError:
        return []
    return [Counter(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3)]


def _cuda() -> Any:
    import torch

    return torch.cuda
