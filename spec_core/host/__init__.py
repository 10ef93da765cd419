"""Methods inside an engine that owns the loop: the engine schedules, verifies and samples, a Host asks the plugins.

``Host(EngineModel(info), methods, serves)`` refuses what the engine cannot serve, then reads the methods' weights;
``check`` only refuses.
For every request call ``begin(key, prompt)`` once and ``end(key)`` when it is over. After every step of the engine call
``step({key: Progress(tokens, checked)})``: the plugins learn what was verified, and return drafts for the next step.

The first use of one of these names imports torch; importing this module does not. ``__init__.pyi`` lists them.
"""

from __future__ import annotations

from spec_core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(globals())
