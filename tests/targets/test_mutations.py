"""Files with one changed header field: loaded and run, or refused by name, also under sanitizers."""

from __future__ import annotations

import pytest

from tests.native.sanitized import library, problem, start
from tests.targets.mutations import FILES, faults

MISSING = problem()


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.release)])
def test_a_changed_header_is_run_or_refused_by_name(part):
    """Sixteen changes of every file."""
    assert faults(16 * part * len(FILES), 16 * (part + 1) * len(FILES)) == {}


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.skipif(MISSING is not None, reason=f"{MISSING}")
@pytest.mark.parametrize("chosen", [("0", "48"), ("0", "200", "heads")])
def test_no_sanitizer_complains_about_changed_headers(chosen):
    """Of all files, and of heads of every kind."""
    done = start("-m", "tests.targets.mutations", str(library()), *chosen)

    assert done.returncode == 0 and done.stdout.endswith("nothing found\n"), (done.stdout + done.stderr)[-3000:]
