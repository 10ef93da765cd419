"""Runs a conformance class outside of pytest's collection: one plugin, all promises, an outcome each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import attrs
import pytest

from spec_core.testing.conformance.promise import Broken, promises


@attrs.frozen
class Outcome:
    """The result of one check. found: the message of a broken promise, or the reason of a skipped one."""

    check: str
    promise: str
    result: Literal["kept", "broken", "skipped"]
    found: str = ""


def outcome(kit: type, check: str, make: Callable[[], Any], **declared: Any) -> Outcome:
    """One check of a kit on the plugin of ``make``. declared: methods and attributes of the class, by name."""
    attributes = {name: _method(value) for name, value in {"make": make, **declared}.items()}
    tested = type(f"Test{getattr(make, '__name__', 'Plugin')}", (kit,), attributes)()
    sentence = dict(promises(kit))[check]
    try:
        getattr(tested, check)()
    except Broken as broken:
        return Outcome(check, sentence, "broken", str(broken))
    except pytest.skip.Exception as skipped:
        return Outcome(check, sentence, "skipped", str(skipped))
    return Outcome(check, sentence, "kept")


def _method(value: Any) -> Any:
    return (lambda self: value()) if callable(value) else value


def check_conformance(kit: type, make: Callable[[], Any], **declared: Any) -> list[Outcome]:
    """Run all checks of a kit, in order; see ``outcome``."""
    return [outcome(kit, check, make, **declared) for check, _ in promises(kit)]
