"""CONTRIBUTING.md and the pages name files that exist."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def paths(text: str) -> list[str]:
    """Texts in backticks with a slash, without placeholders."""
    return [p for p in re.findall(r"`([\w./]+/[\w./]+)`", text) if "NAME" not in p and not p.startswith("shared/")]


def test_the_files_that_contributing_names_exist():
    mentioned = paths((ROOT / "CONTRIBUTING.md").read_text("utf-8"))

    assert len(mentioned) > 20
    assert not [path for path in mentioned if not (ROOT / path).exists()]
    assert paths("`docs/x.md` `NAME/x.py` `a word`") == ["docs/x.md"]


def test_the_files_to_look_at_exist():
    """The table in docs/architecture.md."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    mentioned = paths(page.partition("## Where to look")[2].partition("\n## ")[0])

    assert len(mentioned) > 12
    assert not [path for path in mentioned if not (ROOT / path).is_file()]


HISTORIES = ("zoo-changelog.md",)
"""Pages about the past, which may name files that are gone."""
FENCED = re.compile(r"```.*?```", re.DOTALL)
SOURCE = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|c|h|inc))`")


def missing_files(text: str, files: Iterable[str]) -> list[str]:
    """Source files that a page names, outside of its blocks of code, and that are not the end of the path of one."""
    ends = {"/".join(parts[i:]) for file in files for parts in [file.split("/")] for i in range(len(parts))}
    return [name for name in SOURCE.findall(FENCED.sub("", text)) if name not in ends]


def test_the_source_files_that_pages_name_exist():
    """By the end of their path, such as ``loop/run.py``."""
    files = [path.relative_to(ROOT).as_posix() for path in source_files()]
    pages = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in HISTORIES]
    missing = {page.name: names for page in pages if (names := missing_files(page.read_text("utf-8"), files))}

    assert not missing
    assert missing_files("`loop/turns.py`, `loop/run.py`", ["spec_core/loop/run.py"]) == ["loop/turns.py"]


def source_files() -> Iterator[Path]:
    for folder in ("spec_core", "kernels", "plugins", "tests", "tools", "benchmarks", "docs"):
        yield from (path for path in (ROOT / folder).rglob("*.*") if path.suffix in (".py", ".c", ".h", ".inc"))
