"""Answers of the application to refused requests."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from spec_core import SpecError
from spec_serve.errors import ApiError, api_error_of
from spec_serve.guard import answer
from spec_serve.shape import Unfit
from spec_serve.strict_model import REFUSED

STATUS = {404: "no such path; /openapi.json lists them", 405: "another method than this path takes"}


async def refusal_answer(request: Request, error: Any) -> Response:
    """The answer to an error, in the form of the API whose path was asked for."""
    return answer(api_error_of(error), request.scope["path"])


async def refuse_body(request: Request, error: Any) -> Response:
    return answer(_invalid(error.errors()), request.scope["path"])


async def refuse_unfit(request: Request, unfit: Unfit) -> Response:
    """The answer to a large body that was read in a thread."""
    return answer(_invalid([{**one, "loc": ("body", *one["loc"])} for one in unfit.errors]), request.scope["path"])


async def refuse_converted_body(request: Request, error: Any) -> Response:
    """The answer to a body that does not fit as that of another API: its places lack the word ``body``."""
    errors = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
    return answer(_invalid(errors), request.scope["path"])


async def refuse_request(request: Request, error: Any) -> Response:
    message = STATUS.get(error.status_code, str(error.detail))
    return answer(ApiError(error.status_code, message, headers=error.headers), request.scope["path"])


HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    ApiError: refusal_answer,
    SpecError: refusal_answer,
    RequestValidationError: refuse_body,
    ValidationError: refuse_converted_body,
    Unfit: refuse_unfit,
    HTTPException: refuse_request,
}
"""Handlers of errors that a route raises."""


def _invalid(errors: Sequence[Any]) -> ApiError:
    """A refusal of the body itself, or of the innermost field that does not fit, with all that would."""
    own = next((e for e in errors if "field" in e.get("ctx", ())), None)
    if own is not None:
        place = ".".join(filter(None, (_place(own), own["ctx"]["field"])))
        return ApiError(400, own["msg"], place, None if own["type"] == REFUSED else own["type"])
    first = max(errors, key=lambda e: len(_place(e).split(".")))
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not valid JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    if not (place := _place(first)):
        return ApiError(400, "the body must be a JSON object, with Content-Type: application/json")
    messages = dict.fromkeys(e["msg"] for e in errors if _place(e) == place)
    return ApiError(400, f"{place}: {', or '.join(messages)}", place, "invalid_value")


def _place(error: Any) -> str:
    """The field, without the names that pydantic gives to alternatives of its type."""
    types = ("str", "int", "float", "bool")
    return ".".join(str(part) for part in error["loc"][1:] if not (part in types or "[" in str(part)))
