"""A check of the kit is a test that carries the promise it checks, and says it when it fails."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from spec_core.errors import Refused, SpecError

Check = Callable[[Any], None]


class Broken(AssertionError):
    """A promise of the contract that was not kept: what it says, what was found, how to see it alone."""


class Found(Exception):
    """What a check found: raised inside of a check, shown by ``promise``."""


def promise(sentence: str) -> Callable[[Check], Check]:
    """Mark a check with the promise it checks; whatever it raises becomes a message that quotes it."""

    def mark(check: Check) -> Check:
        @functools.wraps(check)
        def checked(self: Any) -> None:
            __tracebackhide__ = True
            try:
                check(self)
            except Found as found:
                raise Broken(_message(self, check.__name__, sentence, str(found))) from None
            except Refused as refused:
                takes = f"{refused}\n  or give the kit a target it takes: def target(self)"
                raise Broken(_message(self, check.__name__, sentence, takes)) from refused
            except Exception as error:
                raised = error.reason if isinstance(error, SpecError) else f"{type(error).__name__}: {error}"
                raise Broken(_message(self, check.__name__, sentence, raised)) from error

        checked.promise = sentence  # type: ignore[attr-defined]
        return checked

    return mark


def _message(kit: Any, check: str, sentence: str, found: str) -> str:
    alone = f'pytest -k "{type(kit).__name__} and {check}"'
    return f"promise broken: {sentence}\nfound: {found}\nalone: {alone}"


def promises(kit: type) -> Iterator[tuple[str, str]]:
    """(name of the check, promise) of a conformance class, in the order of definition, base classes first."""
    seen: dict[str, str] = {}
    for cls in reversed(kit.__mro__):
        for name, check in vars(cls).items():
            if hasattr(check, "promise"):
                seen[name] = check.promise
    yield from seen.items()
