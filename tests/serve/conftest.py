"""One server for the tests that only ask."""

import pytest


@pytest.fixture(scope="module")
def served():
    pytest.importorskip("fastapi", reason="needs the extra serve")
    from tests.support.served import serving

    with serving("zoo:pico", ["ngram", "draft-model"]) as server:
        yield server
