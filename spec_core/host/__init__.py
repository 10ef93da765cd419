"""Methods inside an engine that owns the loop: the engine schedules, verifies and samples, a Host asks the plugins.

``Host(EngineModel(info), methods, serves)`` refuses what the engine cannot serve, then reads the methods' weights;
``check`` only refuses.
For every request call ``begin(key, prompt)`` once and ``end(key)`` when it is over. After every step of the engine call
``step({key: Progress(tokens, checked)})``: the plugins learn what was verified, and return drafts for the next step.

The first use of one of these names imports torch; importing this module does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spec_core.lazy import lazy

if TYPE_CHECKING:
    from spec_core.host.choice import sample_then_match as sample_then_match
    from spec_core.host.driver import Host as Host
    from spec_core.host.engine import EngineModel as EngineModel
    from spec_core.host.engine import Serves as Serves
    from spec_core.host.engine import check as check
    from spec_core.host.progress import Progress as Progress

_WHERE = {
    "EngineModel": "host.engine",
    "Host": "host.driver",
    "Progress": "host.progress",
    "Serves": "host.engine",
    "check": "host.engine",
    "sample_then_match": "host.choice",
}

__all__ = [*sorted(_WHERE)]


__getattr__ = lazy(globals(), _WHERE)


def __dir__() -> list[str]:
    return __all__
