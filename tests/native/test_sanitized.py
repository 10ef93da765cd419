"""Tests of products and operators, and random models, under the address and undefined behaviour sanitizers."""

from __future__ import annotations

import pytest

from tests.native.compiled import ROOT
from tests.native.sanitized import problem, random_heads, random_models, start

TESTS = ROOT / "tests"
PARTS = {
    "products": [TESTS / "kernels" / "test_products.py"],
    "operators": [TESTS / "native" / f"test_ops_{part}.py" for part in ("rows", "attention", "delta", "experts")],
}
MISSING = problem()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=f"{MISSING}")]


@pytest.mark.parametrize("part", PARTS)
def test_no_sanitizer_complains(part):
    done = start("-m", "pytest", "-q", "-x", "-s", "-p", "no:cacheprovider", *map(str, PARTS[part]))

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.parametrize("tried", [random_models, random_heads])
def test_no_sanitizer_complains_about_random_models_and_heads(tried):
    done = tried(0, 5)

    assert (done.returncode, done.stdout) == (0, "nothing found\n"), done.stdout[-3000:] + done.stderr[-3000:]
