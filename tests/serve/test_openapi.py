"""A few requests made from the OpenAPI description; ``tests/campaigns/openapi.py`` sends thousands."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("schemathesis", reason="needs schemathesis")

from tests.support.openapi import count_statuses


def test_no_generated_request_is_a_failure():
    statuses, wrong = count_statuses("zoo:pico", 90, 1)

    assert wrong == []
    assert statuses[200] > 10 and statuses[400] > 10
