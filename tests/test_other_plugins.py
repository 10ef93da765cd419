"""The page of other packages' plugins: what is read of its list, and a row for a package that pip installs."""

from __future__ import annotations

import re
import subprocess
from datetime import date

import pytest

from spec_core import CONTRACT
from tests.support.installed import OFFLINE, ROOT
from tools import other_plugins

LIST = ROOT / "tools" / "other-plugins.txt"
PAGE = ROOT / "docs" / "other-plugins.md"


def test_a_line_is_a_package_and_what_its_plugins_need(tmp_path):
    file = tmp_path / "list.txt"
    file.write_text("# comment\n\nspec-a\nspec-b b=x.txt c:n=1 # more\n'a b'\n", "utf-8")

    assert other_plugins.entries(file) == [
        other_plugins.Entry("spec-a", {}),
        other_plugins.Entry("spec-b", {"b": "b=x.txt", "c": "c:n=1"}),
        other_plugins.Entry("a b", {}),
    ]


@pytest.mark.slow
def test_a_package_gets_a_row_with_what_the_kit_found(tmp_path, monkeypatch):
    """Installed by pip in an environment of its own, without the index."""
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "list.txt"
    file.write_text(f"{ROOT}/tests/out_of_tree/spec-bandit\n", "utf-8")

    page = other_plugins.page(file, date(2026, 1, 2))

    assert "on 2026-01-02, with contract {}.{}.".format(*CONTRACT) in page
    assert re.search(
        r"\n\| `bandit` \| control \| spec-bandit 0\.1\.0 \| Ask .* \| \d+ kept(, \d+ not .*)? \|\n$", page
    )


@pytest.mark.parametrize(
    ("code", "out", "err", "result"),
    [
        (0, '{"result": "kept"}\n{"result": "skipped"}\n{"result": "kept"}\n', "", "2 kept, 1 not applicable"),
        (1, '{"result": "broken"}\n', "method x: ...", "**1 broken**"),
        (2, "", "error: rest: no corpus is not a file\n  name a text\n", "not checked: rest: no corpus is not a file"),
        (-9, "", "", "not checked: no output"),
    ],
)
def test_a_result_counts_promises_or_says_why_there_are_none(code, out, err, result):
    assert other_plugins.result_of(subprocess.CompletedProcess([], code, out, err)) == result


def test_a_package_from_the_index_is_linked_and_no_text_breaks_the_table():
    row = other_plugins.Row("a", "rule", "spec-a", "1.0", "x | y", "1 kept", "https://pypi.org/project/spec-a/")

    assert row.text() == "| `a` | rule | [spec-a 1.0](https://pypi.org/project/spec-a/) | x / y | 1 kept |"


def test_the_page_has_rows_for_every_package_of_the_list():
    packages = {entry.package.rpartition("/")[2] for entry in other_plugins.entries(LIST)}
    rows = re.findall(r"^\| `[\w-]+` \| \w+ \| \[?([\w-]+) ", PAGE.read_text("utf-8"), re.MULTILINE)

    assert set(rows) == packages
