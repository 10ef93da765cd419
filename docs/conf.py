"""The documentation as a site: ``make docs``. The pages are plain Markdown, and say nothing of this.

The source is the repository's root, so that links to the README and to CONTRIBUTING lead somewhere here too.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

project = "spec-core"
release = version = PACKAGE["version"]
copyright = "the authors of spec-core, Apache-2.0"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "docs/**.md"]
exclude_patterns = [".*", "build", "shared", "results", "zoo-work", "**/__pycache__"]
html_theme = "furo"
html_title = f"spec-core {release}"
myst_heading_anchors = 3
myst_links_external_new_tab = False
highlight_language = "text"

CONTENTS = ("docs/index", "docs/plugins", "docs/rules/README")
"""Pages whose links are the table of contents, section by section; a page that two of them link to stands once."""
LINK = re.compile(r"\]\((?!http)([^)#\s]+\.md)\)")


def contents(page: str, text: str, taken: set[str]) -> str:
    """A hidden table of contents for each section of a page that links to pages nobody has listed yet."""
    tables = []
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        found = [_document(page, link) for link in LINK.findall(section)]
        fresh = [name for name in dict.fromkeys(found) if name not in taken]
        taken.update(fresh)
        if fresh:
            caption = section.partition("\n")[0]
            tables.append("\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *fresh, "```"]))
    return "\n\n".join(tables)


def _document(page: str, link: str) -> str:
    """The name of the page that a link leads to, from the root."""
    parts: list[str] = []
    for part in (PurePosixPath(page).parent / link).with_suffix("").parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/" + "/".join(parts)


def all_contents() -> dict[str, str]:
    taken = {f"/{root_doc}"}
    return {page: contents(page, (ROOT / f"{page}.md").read_text("utf-8"), taken) for page in CONTENTS}


def setup(app: Any) -> None:
    tables = all_contents()

    def add(app: Any, page: str, source: list[str]) -> None:
        if page in tables:
            source[0] += "\n\n" + tables[page] + "\n"

    app.connect("source-read", add)
