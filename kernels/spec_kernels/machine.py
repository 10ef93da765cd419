"""Free memory of the machine, and how threads wait."""

from __future__ import annotations

import ctypes
import os
import sys


def free_bytes(device: str) -> int:
    """Free memory for tensors of ``device``, including memory that the system would reclaim for it.

    ``sys.maxsize`` if the system does not report it.
    """
    if device.startswith("cuda"):
        import torch

        return torch.cuda.mem_get_info(device)[0]
    return _available() or _unused_bytes()


def _available() -> int:
    """Linux: its own estimate, including the page cache. 0 elsewhere."""
    try:
        with open("/proc/meminfo") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:")), 0)
    except OSError:
        return 0


def _unused_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def trim_memory() -> None:
    """Return free memory of this process to the system, if its C library can (glibc)."""
    library = ctypes.CDLL(None) if os.name == "posix" else None
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
"""Waiting threads sleep. Spinning threads take cores from the threads that they wait for when other programs
run too: a forward of milliseconds then takes seconds."""
_late: list[bool] = []


def wait_passively() -> None:
    """Set how torch's threads wait, unless the environment already does; must run before torch is imported."""
    if not _late:
        _late.append("torch" in sys.modules)
    if not _late[0] and not any(name in os.environ for name in (*WAITING, "KMP_BLOCKTIME")):
        os.environ.update(WAITING)


def thread_waiting() -> str:
    """Way in which threads wait, for ``spec env``."""
    settings = ", ".join(f"{name}={os.environ[name]}" for name in (*WAITING, "KMP_BLOCKTIME") if name in os.environ)
    if _late == [True]:
        hint = "call spec_core.lazy.call_before_torch() first, or set OMP_WAIT_POLICY=passive"
        return f"torch was imported before it could be set ({settings or 'torch spins'}); {hint}"
    return settings or "torch's own: threads spin"
