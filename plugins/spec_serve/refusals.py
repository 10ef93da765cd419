"""What the application answers to a request that it refuses."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from spec_core import SpecError
from spec_serve.errors import ApiError, api_error_of
from spec_serve.guard import answer

STATUS = {404: "no such path; /openapi.json lists them", 405: "another method than this path takes"}


def add_refusals(app: FastAPI) -> None:
    """Answer errors in the form of the API whose path was asked for."""

    async def refusal(request: Request, error: Any) -> Response:
        return answer(api_error_of(error), request.url.path)

    async def invalid(request: Request, error: Any) -> Response:
        return answer(_invalid(error), request.url.path)

    async def http_error(request: Request, error: Any) -> Response:
        message = STATUS.get(error.status_code, str(error.detail))
        return answer(ApiError(error.status_code, message), request.url.path)

    app.add_exception_handler(ApiError, refusal)
    app.add_exception_handler(SpecError, refusal)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, refusal)


def _invalid(error: RequestValidationError) -> ApiError:
    """The innermost field that does not fit, with all that would."""
    first = max(error.errors(), key=lambda e: len(_place(e).split(".")))
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not valid JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    if not (place := _place(first)):
        return ApiError(400, "the body must be a JSON object, with Content-Type: application/json")
    messages = dict.fromkeys(e["msg"] for e in error.errors() if _place(e) == place)
    return ApiError(400, f"{place}: {', or '.join(messages)}", place, "invalid_value")


def _place(error: Any) -> str:
    """The field, without the names that pydantic gives to alternatives of its type."""
    types = ("str", "int", "float", "bool")
    return ".".join(str(part) for part in error["loc"][1:] if not (part in types or "[" in str(part)))
