"""What all bodies of requests have in common: what is unknown, or known and not supported, is refused by its name."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

from spec_serve.errors import ApiError, unknown_field, unsupported_field
from spec_serve.shape import check_lengths

log = logging.getLogger("spec_serve")
ANY = object()
IGNORED_MAX = 1000
"""Names of which a lenient server warns."""


class Body(BaseModel):
    """A body whose unknown fields are refused.

    neutral: fields of the original API that have no form here, each with values that ask for nothing.
    where: how a refusal calls the body. ids: fields of token ids, and of biases for them, which may be long.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    where: ClassVar[str] = ""
    ids: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        check_lengths(given, cls.ids)
        given = nest(given) if "speculative" in cls.model_fields else dict(given)
        known = [field.alias or key for key, field in cls.model_fields.items()]
        for name in list(given):
            if name in cls.neutral:
                if not _asks_nothing(given.pop(name), cls.neutral[name]):
                    _refuse(name, unsupported_field(name))
            elif name not in known:
                _refuse(name, unknown_field(name, known, cls.where))
                del given[name]
        return given


IGNORED: ContextVar[set[str] | None] = ContextVar("ignored", default=None)
"""Names of fields that a lenient server has ignored; None where it is not lenient."""


def _refuse(name: str, error: ApiError) -> None:
    """Raises the error, or warns once where the server is lenient."""
    ignored = IGNORED.get()
    if ignored is None:
        raise error
    if name not in ignored and len(ignored) < IGNORED_MAX:
        ignored.add(name)
        log.warning("ignored from now on: %.300s", error.message)


def _asks_nothing(value: Any, neutral: tuple[Any, ...]) -> bool:
    return any(n is ANY or (type(n) is type(value) and n == value) for n in neutral)


def nest(given: Mapping[str, Any]) -> dict[str, Any]:
    """``{"speculative.n_max": 4}``, as llama-server writes it, is ``{"speculative": {"n_max": 4}}``."""
    flat = {name: value for name, value in given.items() if name.startswith("speculative.")}
    if not flat:
        return dict(given)
    if given.get("speculative") is not None:
        raise ApiError(400, f"speculative and {min(flat)} are both given; write one of the two", min(flat))
    inner = {name.partition(".")[2]: value for name, value in flat.items()}
    return {**{n: v for n, v in given.items() if n not in flat}, "speculative": inner}
