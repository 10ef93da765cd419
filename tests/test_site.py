"""The documentation is a site: every page is in it, and building it warns of nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

for needed in ("sphinx", "myst_parser", "furo"):
    pytest.importorskip(needed, reason=f"{needed} is not installed: pip install 'spec-core[docs]'")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built pages; a warning fails the build."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs", ".", str(folder)]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_in_the_site(site):
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]

    assert [page for page in pages if not (site / page.relative_to(ROOT)).with_suffix(".html").exists()] == []


@pytest.mark.slow
def test_links_between_pages_lead_to_pages_of_the_site(site):
    """Not to the Markdown they were made from."""
    text = (site / "docs" / "index.html").read_text("utf-8")

    assert 'href="api.html"' in text and 'href="../CONTRIBUTING.html"' in text
