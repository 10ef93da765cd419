"""One server for the tests that only ask."""

from time import monotonic, sleep

import pytest


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("fastapi", reason="needs the extra serve")
    from tests.support.served import serving

    with serving("zoo:pico", ["ngram", "draft-model"]) as server:
        yield server


@pytest.fixture(autouse=True)
def idle(request):
    """The next test finds a server on which nothing runs: a text whose client left may take another step."""
    yield
    if "server" in request.fixturenames:
        engine, end = request.getfixturevalue("server").engine, monotonic() + 20
        while engine.open and monotonic() < end:
            sleep(0.005)
