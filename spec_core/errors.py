"""Errors a user can act on: what was found, what was needed, what to do."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, TypeVar

import attrs

T = TypeVar("T")


class SpecError(Exception):
    """An error with a hint for the user.

    :param reason: what was found and what was needed.
    :param hint: what to do about it.
    """

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.reason}\n  {self.hint}"


class UsageError(SpecError):
    """The user's input cannot be used as it is: exit code 2."""


class Unsupported(UsageError):
    """A file is whole, and describes a model that its reader cannot run; another target may."""


class Refused(UsageError):
    """One or more plugins refused the target in ``compat``; every refusal is listed."""


CONSTRUCTION = "its constructor"
"""The place of a failure before any hook."""
OUTSIDE = (CONSTRUCTION, "compat", "load", "close")
"""Calls of a plugin before and after everything that runs."""


def message(error: BaseException) -> str:
    """The message of an error. A plugin's own exception may fail to print; then a placeholder."""
    try:
        values = error.args[:1] if any(isinstance(a, attrs.Attribute) for a in error.args[1:]) else ()
        return str(values[0]) if values else str(error)  # a validator of attrs adds its field and more to its message
    except Exception:
        return "(its message cannot be printed)"


def error_message(error: Exception) -> str:
    """The message of an error; for an OSError only the reason, without errno and path."""
    return getattr(error, "strerror", None) or str(error)


FOREIGN = (Exception, SystemExit)
"""What the code of other packages may raise: ``sys.exit()`` in a plugin ends the plugin, not the program."""


class ProgramExit(Exception):
    """A plugin called ``sys.exit()``."""


def as_exception(error: BaseException) -> Exception:
    """The error itself, or what stands for the end of the program that a plugin wanted."""
    if isinstance(error, Exception):
        return error
    ended = ProgramExit(f"it called sys.exit({error})")
    ended.__cause__ = error
    return ended


class PluginError(SpecError):
    """A plugin raised, or made a draft or verdict that breaks the contract.

    The original exception is ``__cause__``.
    """

    def __init__(self, plugin: str, hook: str, cause: BaseException, sequence: str = "") -> None:
        where = f" on sequence {sequence}" if sequence else ""
        isolated = "" if hook in OUTSIDE else "or with on_error=isolate, "
        super().__init__(
            f"plugin {plugin!r} failed in {hook}{where}: {type(cause).__name__}: {message(cause)}",
            hint=f"run without it, {isolated}or report it to the author of {plugin!r}",
        )
        self.plugin = plugin
        self.hook = hook
        self.sequence = sequence


class LoadError(SpecError):
    """The loader of a scheme raised, or returned something that is not a target. The exception is ``__cause__``."""


class TargetError(SpecError):
    """The target returned an invalid result: the sequence ends, others continue."""


class SequencesFailed(TargetError):
    """A target cannot evaluate some sequences of a batch: these end, each with its error, and the others go on.

    Raised by ``forward`` before it has computed anything.
    """

    def __init__(self, errors: Mapping[Any, Exception]) -> None:
        """errors: of each such sequence."""
        super().__init__("some sequences cannot be evaluated", hint="see the error of each")
        self.errors = dict(errors)


class NoFiniteLogit(TargetError):
    """Every logit of a row is -inf."""


class ConstraintError(SpecError):
    """The constraint of a request raised, or allows no token: the sequence ends, others continue."""


class NoTokenAllowed(TargetError, ConstraintError, UsageError):
    """A request forbids every token: by its bias, or by a constraint with a dead end or without bounds. It ends."""


class NotRequested(KeyError):
    """A plugin reads a hidden state that its ``compat`` did not request."""

    def __str__(self) -> str:
        return str(self.args[0])


class PhaseError(AttributeError):
    """A plugin used a name of a step that belongs to another hook."""


NAME_MAX = 100
"""Longest name to compare: comparing takes quadratic time."""


def nearest_names(name: str, known: Iterable[str]) -> str:
    """The known names, nearest to ``name`` first, as one line for a hint."""
    known, name = sorted(known), name[:NAME_MAX]
    close = difflib.get_close_matches(name, known, n=len(known) or 1, cutoff=0.5)
    return ", ".join([*close, *(k for k in known if k not in close)]) or "none"


def suggest_fields(cls: type[T]) -> type[T]:
    """A decorator of an attrs class: a keyword that it does not have raises TypeError with the nearest names."""
    fields = [field.alias or field.name for field in attrs.fields(cls) if field.init]  # type: ignore[arg-type]
    create: Any = cls.__init__

    @functools.wraps(create)
    def check_fields(self: Any, *values: Any, **named: Any) -> None:
        for name in named:
            if name not in fields:
                raise TypeError(f"{cls.__name__} has no {name!r}; it has, nearest first: {nearest_names(name, fields)}")
        create(self, *values, **named)

    cls.__init__ = check_fields  # type: ignore[assignment,misc]
    return cls


def quote_value(value: Any) -> str:
    """A value for a message, in at most 40 characters; numpy numbers without their type."""
    try:
        text = repr(float(value) if isinstance(value, Real) and not isinstance(value, int) else value)
    except Exception:  # Python refuses to print an int of thousands of digits
        whole = isinstance(value, int)
        return f"a whole number of {value.bit_length()} bits" if whole else f"of type {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:37]}..."
