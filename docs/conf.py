"""The documentation as a site: ``make docs``. The pages are plain Markdown, and say nothing of this."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS / "_site")]

PACKAGE = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

project = "spec-core"
release = version = PACKAGE["version"]
copyright = "the authors of spec-core, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "docstrings", "site_objects"]
autodoc_default_options = {"members": True, "undoc-members": True}
autodoc_member_order = "bysource"
include_patterns = ["**.md"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = f"spec-core {release}"
myst_heading_anchors = 3
myst_links_external_new_tab = False
highlight_language = "text"

CONTENTS = ("index", "plugins", "rules/README", "engines")
"""Pages whose links are the table of contents, section by section; a page that two of them link to stands once."""
LINK = re.compile(r"\]\((?!http)([^)#\s]+\.md)\)")


def contents(page: str, text: str, taken: set[str]) -> str:
    """A hidden table of contents for each section of a page that links to pages that are not listed yet."""
    tables = []
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        documents = [_document(page, link) for link in LINK.findall(section)]
        fresh = [name for name in dict.fromkeys(documents) if name not in taken]
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
    taken = {"/index"}
    return {page: contents(page, (DOCS / f"{page}.md").read_text("utf-8"), taken) for page in CONTENTS}


def contributing() -> str:
    """The file at the root of the repository, which lies outside of what Sphinx reads; its links are to pages here."""
    return (ROOT / "CONTRIBUTING.md").read_text("utf-8").replace("](docs/", "](")


def setup(app: Any) -> None:
    tables = all_contents()

    def add(app: Any, page: str, source: list[str]) -> None:
        if page == "contributing":
            source[0] = contributing()
        if page in tables:
            source[0] += "\n\n" + tables[page] + "\n"

    app.connect("source-read", add)
