"""What the machine has left."""

from __future__ import annotations

import ctypes
import os
import sys


def free_bytes(device: str) -> int:
    """Memory that is free where tensors of ``device`` live, with what the system would give back for it.

    Where the system does not say, nothing is known to be too large: ``sys.maxsize``.
    """
    if device.startswith("cuda"):
        import torch

        return torch.cuda.mem_get_info(device)[0]
    return _available() or _unused()


def _available() -> int:
    """Linux: its own estimate, page cache counted in. 0 elsewhere."""
    try:
        with open("/proc/meminfo") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:")), 0)
    except OSError:
        return 0


def _unused() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def trim() -> None:
    """Give memory that is free in this process back to the system, where its C library can (glibc)."""
    library = ctypes.CDLL(None) if os.name == "posix" else None
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
"""Threads that wait for others sleep. Spinning ones take the cores from whoever they wait for, as soon as anything else
runs on these: a forward of milliseconds then takes seconds."""
_late: list[bool] = []


def wait_passively() -> None:
    """Set how torch's threads wait, unless the environment says so already; must come before torch is imported."""
    if not _late:
        _late.append("torch" in sys.modules)
    if not _late[0] and not any(name in os.environ for name in (*WAITING, "KMP_BLOCKTIME")):
        os.environ.update(WAITING)


def waiting() -> str:
    """How threads wait for each other, in words, for ``spec env``."""
    said = ", ".join(f"{name}={os.environ[name]}" for name in (*WAITING, "KMP_BLOCKTIME") if name in os.environ)
    if _late == [True]:
        hint = "import spec_core.assembly.early and call its prepare() first, or set OMP_WAIT_POLICY=passive"
        return f"torch was imported before it could be set ({said or 'torch spins'}); {hint}"
    return said or "torch's own: threads spin"
