"""The chat page: its files, which need no key, and the policy that lets it load nothing else."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from spec_serve.errors import ApiError
from spec_serve.shape import CheckedRoute

FOLDER = "page"
"""Folder of the page's files in addresses."""
SCRIPTS = (
    "page.js", "answer.js", "conversation.js", "dom.js", "generation.js", "markdown.js", "marks.js", "pictures.js",
    "race.js", "server.js", "trace.js", "turn.js",
)  # fmt: skip
KINDS = {"page.css": "text/css", **dict.fromkeys(SCRIPTS, "text/javascript")}
"""Media type of each file."""
PATHS = ("/", *(f"/{FOLDER}/{name}" for name in KINDS))
"""Paths of the page and its files."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
"""Nothing is loaded from another server, and no script or style but the page's files is executed."""
router = APIRouter(route_class=CheckedRoute, tags=["server"])


@router.get("/", response_class=HTMLResponse)
async def get_page() -> Response:
    """A chat that shows drafts."""
    return HTMLResponse(_read_file("page.html"), headers=HEADERS)


@router.get(f"/{FOLDER}/{{name}}", include_in_schema=False)
async def get_page_file(name: str) -> Response:
    """A style or script of the page."""
    if name not in KINDS:
        raise ApiError(404, f"the page has no file {name!r:.80}", code="not_found")
    return Response(_read_file(name), media_type=KINDS[name], headers=HEADERS)


def _read_file(name: str) -> str:
    return files("spec_serve").joinpath("web", name).read_text("utf-8")
