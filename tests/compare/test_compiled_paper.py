"""The paper of docs/table-for-a-paper.md from recorded results of ``zoo:pico``: two pages, nothing too wide."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
from contextlib import chdir, redirect_stdout
from pathlib import Path

import pytest
from spec_cli.main import run_command

from tests.support.pages import blocks

pytest.importorskip("matplotlib", reason="needs the extra report")
ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "compare" / "recorded" / "pico"
MISSING = [name for name in ("pdflatex", "bibtex", "pdftotext") if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def follow_paper(folder: Path) -> None:
    """Run the commands of the page from the export on, with ours in this process."""
    page = [block.text for block in blocks(ROOT / "docs" / "table-for-a-paper.md") if block.language == "sh"]
    first = next(i for i, text in enumerate(page) if "paper.tex" in text)
    for text in page[first : first + 2]:
        rest = re.sub(r"^spec (.*)$", lambda line: call_command(line[1], folder), text, flags=re.M)
        subprocess.run(["bash", "-ec", rest], cwd=folder, check=True, capture_output=True, text=True)


def call_command(line: str, folder: Path) -> str:
    """Run a command here; what it prints goes where the line says. Returns nothing for the shell to run."""
    words, _, file = line.partition(" > ")
    printed = io.StringIO()
    with chdir(folder), redirect_stdout(printed):
        assert run_command(shlex.split(words)) == 0
    if file:
        (folder / file).write_text(printed.getvalue())
    return ""


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    """The folder of the compiled paper."""
    folder = tmp_path_factory.mktemp("paper")
    shutil.copytree(RECORDED, folder / "results")
    follow_paper(folder)
    return folder


def pages(folder: Path) -> list[str]:
    """The text of each page."""
    done = subprocess.run(["pdftotext", "-layout", "paper.pdf", "-"], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode().split("\f")[:-1]


def test_the_paper_has_two_pages_with_a_table_two_figures_and_a_citation(paper):
    first, second = pages(paper)

    assert "Table 1" in first and "ngram:draft" in first and "suffix" in first and "T = 0.8" in first
    assert "Figure 1" in second and "Figure 2" in second and "References" in second
    assert "The spec-core developers" in first and "arXiv 2411.04975" in second
    assert "accepted tokens of a draft" in second, "the figure itself"


def test_nothing_is_too_wide_and_every_reference_is_found(paper):
    log = (paper / "paper.log").read_text(errors="replace")

    assert not re.findall(r"Overfull.*|.*undefined.*|LaTeX Warning.*", log)


def test_an_anonymous_paper_names_no_machine(paper):
    assert os.uname().nodename not in (paper / "table.tex").read_text()
