"""Tests of products and operators, and random models, under the address and undefined behaviour sanitizers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.native.compiled import ROOT
from tests.native.ops_library import here
from tests.native.sanitized import problem, random_assistants, random_heads, random_models, start

TESTS = ROOT / "tests"
PARTS = {
    "products": [TESTS / "kernels" / "test_products.py"],
    "operators": [
        *(
            TESTS / "native" / f"test_ops_{part}.py"
            for part in ("rows", "attention", "pools", "delta", "streams", "experts")
        ),
        TESTS / "kernels" / "test_recurrences.py",
    ],
}
MISSING = problem()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=f"{MISSING}")]


@pytest.mark.release
@pytest.mark.parametrize("part", PARTS)
def test_no_sanitizer_complains(part):
    done = finish(*PARTS[part])

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.release
def test_no_sanitizer_complains_about_the_best_instruction_set():
    """That this processor has: a few cases of every test of its operators. Products are in the random models below."""
    best = here()[0]
    sets = ",".join(name for name in here() if name in best)
    done = finish(*PARTS["operators"], "--variants", "4", SPEC_NATIVE_SETS=sets)

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert re.search(r"^\d+ passed", done.stdout, re.M)


def finish(*arguments: Path | str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Pytest under the sanitizers, run to its end."""
    return start("-m", "pytest", "-x", "-s", "-p", "no:cacheprovider", *map(str, arguments), **environment)


@pytest.mark.parametrize("seeds", [2, pytest.param(5, marks=pytest.mark.release)])
@pytest.mark.repeats(1)
@pytest.mark.parametrize("tried", [random_models, random_heads, random_assistants])
def test_no_sanitizer_complains_about_random_models_and_heads(tried, seeds):
    done = tried(0, seeds)

    assert (done.returncode, done.stdout) == (0, "nothing found\n"), done.stdout[-3000:] + done.stderr[-3000:]
