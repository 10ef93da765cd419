"""Files with one changed header field: loaded and run, or refused by name, also under sanitizers."""

from __future__ import annotations

import pytest

from tests.native.sanitized import library, problem, start
from tests.targets.mutations import FILES, faults

MISSING = problem()


@pytest.mark.parametrize("first", range(0, 4 * len(FILES), len(FILES)))
def test_a_changed_header_is_run_or_refused_by_name(first):
    assert faults(first * 8, (first + len(FILES)) * 8) == {}


@pytest.mark.slow
@pytest.mark.skipif(MISSING is not None, reason=f"{MISSING}")
def test_no_sanitizer_complains_about_changed_headers():
    done = start("-m", "tests.targets.mutations", str(library()), "0", "48")

    assert done.returncode == 0 and done.stdout.endswith("nothing found\n"), (done.stdout + done.stderr)[-3000:]
