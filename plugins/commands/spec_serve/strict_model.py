"""Base class of all bodies of requests: a field that is unknown or not supported is refused by its name."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from functools import cache
from math import isfinite
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from spec_core.errors import nearest_names
from spec_serve.shape import ENTRIES_MAX

log = logging.getLogger("spec_serve")
ANY = object()
IGNORED_MAX = 1000
"""Max names that a lenient server warns about."""


T = TypeVar("T")
ListOf = Annotated[list[T], Field(fail_fast=True)]
"""A list whose check stops at the first entry that does not fit: a refusal costs no more than an answer."""
REFUSED = "refused"
"""Type of an error of a body that has no code of its own."""


def field_error(name: str, problem: str, code: str = REFUSED) -> PydanticCustomError:
    """A refusal of a field. pydantic adds the place of its object, and cannot take half a surrogate pair."""
    texts = {"problem": problem, "field": name[:80]}
    encodable = {key: text.encode(errors="replace").decode() for key, text in texts.items()}
    return PydanticCustomError(code, "{problem}", encodable)  # type: ignore[arg-type]


class Body(BaseModel):
    """A body whose unknown fields are refused.

    neutral: unsupported fields of the original API, each with the values that are accepted because they change nothing.
    where: how a refusal calls the body. ids: fields of token ids, and of biases for them, which may be long.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    where: ClassVar[str] = ""
    ids: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        _check_lengths(fields, cls.ids)
        known = _known_names(cls)
        if fields.keys() <= known:
            return fields
        fields = nest_names(fields) if "speculative" in cls.model_fields else dict(fields)
        for name in list(fields):
            if name in cls.neutral:
                if not _asks_nothing(fields.pop(name), cls.neutral[name]):
                    _refuse(name, f"{name} is not supported; leave it out", "not_supported")
            elif name not in known:
                inside = f" in {cls.where}" if cls.where else ""
                problem = f"unknown field {name!r:.80}{inside}; known, nearest first: {nearest_names(name, known)}"
                _refuse(name, problem, "unknown_field")
                del fields[name]
        return fields

    @model_validator(mode="after")
    def _check_numbers(self) -> Body:
        """Refuse numbers that are no JSON in a field of any JSON, as a schema is: Python's parser reads them."""
        for name, value in self.__dict__.items():
            if isinstance(value, (dict, list)) and has_odd_number(value):
                raise field_error(name, f"{name} has NaN, or a number that is too large: this is no JSON")
        return self


def has_odd_number(value: Any) -> bool:
    """Whether NaN or an infinite number is in a value of objects; a list of numbers is checked by its type."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        inner = part.values() if isinstance(part, dict) else part
        if isinstance(part, list) and (not part or isinstance(part[0], int)):
            continue
        for one in inner:
            if isinstance(one, float) and not isfinite(one):
                return True
            if isinstance(one, (dict, list)):
                waiting.append(one)
    return False


@cache
def _known_names(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(field.alias or key for key, field in model.model_fields.items())


IGNORED: ContextVar[set[str] | None] = ContextVar("ignored", default=None)
"""Names of fields that a lenient server has ignored; None where it is not lenient."""


def _refuse(name: str, problem: str, code: str) -> None:
    """Raise a refusal of the field, or warn once where the server is lenient."""
    ignored = IGNORED.get()
    if ignored is None:
        raise field_error(name, problem, code)
    if name not in ignored and len(ignored) < IGNORED_MAX:
        ignored.add(name)
        log.warning("ignored from now on: %.300s", problem)


def _check_lengths(fields: Mapping[str, Any], ids: Collection[str]) -> None:
    """Refuse a field with too many entries. ids: fields of token ids, which have limits of their own."""
    for name, value in fields.items():
        if isinstance(value, (dict, list)) and len(value) > ENTRIES_MAX and name not in ids:
            raise field_error(name, f"{name} has {len(value)} entries, at most {ENTRIES_MAX} are allowed")


def _asks_nothing(value: Any, neutral: tuple[Any, ...]) -> bool:
    return any(n is ANY or (type(n) is type(value) and n == value) for n in neutral)


def nest_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """``{"speculative.n_max": 4}``, as llama-server writes it, is ``{"speculative": {"n_max": 4}}``."""
    flat = {name: value for name, value in fields.items() if name.startswith("speculative.")}
    if not flat:
        return dict(fields)
    if fields.get("speculative") is not None:
        raise field_error(min(flat), f"speculative and {min(flat)} are both given; write one of the two")
    inner = {name.partition(".")[2]: value for name, value in flat.items()}
    return {**{n: v for n, v in fields.items() if n not in flat}, "speculative": inner}
