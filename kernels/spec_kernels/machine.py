"""What the machine has left."""

from __future__ import annotations

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
