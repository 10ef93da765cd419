"""One browser and one server for the tests of a file; every test has a page of its own."""

from __future__ import annotations

import pytest

from tests.support.browser import CHROMIUM, browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture(scope="module")
def scripted_pages():
    pytest.importorskip("fastapi", reason="needs the extra serve")
    from tests.support.page_server import page_server

    with page_server() as server:
        yield server


@pytest.fixture
def pages(scripted_pages):
    """A server that answers as the test says; each test finds it as it was made."""
    from tests.support.page_server import PageServer

    fresh = PageServer(url=scripted_pages.url)
    for name in ("answer", "props", "status", "bodies", "most", "is_busy"):
        setattr(scripted_pages, name, getattr(fresh, name))
    return scripted_pages


@pytest.fixture
def tab(chromium, pages):
    """The page of that server."""
    chromium.open(f"{pages.url}/")
    chromium.wait("document.body?.dataset.ready")
    yield chromium
    assert chromium.errors == []
    chromium.close()
