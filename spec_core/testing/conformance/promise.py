"""A check of the kit is a test with a promise, which is quoted if the check fails."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spec_core.errors import PluginError, Refused, SpecError

Check = Callable[[Any], None]
BASE = "test_one_request_is_survived"
"""The check that all others require."""
BROKEN, UNCHECKED = "promise broken", "not checked"
FRAMES = 4
"""Number of an exception's innermost calls that are shown."""


class Broken(pytest.fail.Exception):  # type: ignore[name-defined, misc]
    """A broken promise of the contract: its text, the finding, and how to run the check alone."""


class Found(Exception):
    """A finding of a check, which ``promise`` reports."""


def promise(sentence: str) -> Callable[[Check], Check]:
    """Mark a check with its promise; any exception in it becomes a message that quotes the promise.

    If one plain request raises too, the check could not test anything, and the message says so.
    """

    def mark(check: Check) -> Check:
        @functools.wraps(check)
        def run_check(self: Any) -> None:
            try:
                check(self)
            except Found as finding:
                raise _broken_promise(BROKEN, self, check, sentence, str(finding)) from None
            except Exception as error:
                word = UNCHECKED if _fails_at_all(self, check) else BROKEN
                raise _broken_promise(word, self, check, sentence, _describe_error(error)) from None

        run_check.promise = sentence  # type: ignore[attr-defined]
        return run_check

    return mark


def _broken_promise(word: str, kit: Any, check: Check, sentence: str, finding: str) -> Broken:
    here, name = ("alone", check.__name__) if word == BROKEN else ("fix first", BASE)
    return Broken(
        f'{word}: {sentence}\nfound: {finding}\n{here}: pytest -k "{type(kit).__name__} and {name}"', pytrace=False
    )


def _fails_at_all(kit: Any, check: Check) -> bool:
    """Whether one plain request fails as well."""
    if check.__name__ == BASE:
        return False
    try:
        kit.one_request()
    except Exception:
        return True
    return False


def _describe_error(error: Exception) -> str:
    """The error's message, and where it was raised."""
    if isinstance(error, Refused):
        return f"{error}\n  or give the kit a target that the plugin accepts: def target(self)"
    root = error.__cause__ if isinstance(error, PluginError) and error.__cause__ is not None else error
    text = error.reason if isinstance(error, SpecError) else f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(root.__traceback__)[-FRAMES:]
    return text + "\n" + "".join(traceback.format_list(frames)).rstrip()


def promises(kit: type) -> Iterator[tuple[str, str]]:
    """(name of the check, promise) of a conformance class, in the order of definition, base classes first."""
    seen: dict[str, str] = {}
    for cls in reversed(kit.__mro__):
        for name, check in vars(cls).items():
            if hasattr(check, "promise"):
                seen[name] = check.promise
    yield from seen.items()
