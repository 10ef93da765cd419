"""How often the operating system took a processor away from this process: a step in which it did shows no cost."""

from __future__ import annotations

from collections.abc import Callable


def _counter() -> Callable[[], int]:
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:  # not on Windows: every step counts there
        return lambda: 0
    return lambda: getrusage(RUSAGE_SELF).ru_nivcsw


preemptions = _counter()
"""Times since the process began."""
