"""A check of the kit is a test that carries the promise it checks, and says it when it fails."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spec_core.errors import PluginError, Refused, SpecError

Check = Callable[[Any], None]
BASE = "test_one_request_is_survived"
"""The check without which no other says anything."""
BROKEN, UNCHECKED = "promise broken", "not checked"
FRAMES = 4
"""Innermost calls that are shown of an exception."""


class Broken(pytest.fail.Exception):  # type: ignore[name-defined]
    """A promise of the contract that was not kept: what it says, what was found, how to see it alone."""


class Found(Exception):
    """What a check found: raised inside of a check, shown by ``promise``."""


def promise(sentence: str) -> Callable[[Check], Check]:
    """Mark a check with the promise it checks; whatever it raises becomes a message that quotes it.

    Where something was raised that one plain request raises too, nothing was checked, and the message says so.
    """

    def mark(check: Check) -> Check:
        @functools.wraps(check)
        def checked(self: Any) -> None:
            try:
                check(self)
            except Found as found:
                raise _broken(BROKEN, self, check, sentence, str(found)) from None
            except Exception as error:
                word = UNCHECKED if _fails_at_all(self, check) else BROKEN
                raise _broken(word, self, check, sentence, _shown(error)) from None

        checked.promise = sentence  # type: ignore[attr-defined]
        return checked

    return mark


def _broken(word: str, kit: Any, check: Check, sentence: str, found: str) -> Broken:
    here, name = ("alone", check.__name__) if word == BROKEN else ("fix first", BASE)
    return Broken(
        f'{word}: {sentence}\nfound: {found}\n{here}: pytest -k "{type(kit).__name__} and {name}"', pytrace=False
    )


def _fails_at_all(kit: Any, check: Check) -> bool:
    """Does one plain request fail as well?"""
    if check.__name__ == BASE:
        return False
    try:
        kit.one_request()
    except Exception:
        return True
    return False


def _shown(error: Exception) -> str:
    """The error in words, and where it was raised."""
    if isinstance(error, Refused):
        return f"{error}\n  or give the kit a target that it takes: def target(self)"
    root = error.__cause__ if isinstance(error, PluginError) and error.__cause__ is not None else error
    said = error.reason if isinstance(error, SpecError) else f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(root.__traceback__)[-FRAMES:]
    return said + "\n" + "".join(traceback.format_list(frames)).rstrip()


def promises(kit: type) -> Iterator[tuple[str, str]]:
    """(name of the check, promise) of a conformance class, in the order of definition, base classes first."""
    seen: dict[str, str] = {}
    for cls in reversed(kit.__mro__):
        for name, check in vars(cls).items():
            if hasattr(check, "promise"):
                seen[name] = check.promise
    yield from seen.items()
