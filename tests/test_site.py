"""The documentation as a site: it has a start page and every page, and its search finds the names.

What stands on the pages is checked without building them; what needs the built site builds it once.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

import spec_core
from spec_core import toolkit
from spec_core.assembly.hooks import HOOKS
from tools.reference import list_fields

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PUBLIC = ("spec_core", "toolkit", "host", "testing", "commands")
"""Public modules, in the order of the page about them."""
PAGES = sorted(page.relative_to(DOCS).with_suffix(".html").as_posix() for page in DOCS.rglob("*.md"))
PICTURES = sorted(picture.relative_to(DOCS).as_posix() for picture in DOCS.rglob("*.svg"))
TERMS = (
    "stop string",
    "stop sequence",
    "assistant model",
    "lookahead",
    "draft length",
    "num_speculative_tokens",
    "acceptance rate",
    "target model",
    "verifier",
    "prompt lookup",
    "bonus token",
    "draft-max",
)
"""Search terms of readers of vLLM, llama.cpp and transformers."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built pages, built once for all processes of a test run; a warning fails the build."""
    for needed in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(needed, reason=f"{needed} is not installed: pip install 'spec-core[docs]'")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", str(folder / "html")]
            built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
            assert built.returncode == 0, built.stderr
            (folder / "built").touch()
    return folder / "html"


@pytest.fixture(scope="module")
def inventory(site):
    """{(kind, name): address} of what other sites can link to."""
    from sphinx.util.inventory import InventoryFile

    items = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    return {(kind, name): item.uri for kind, named in items.items() for name, item in named.items()}


class Page(HTMLParser):
    """Anchors of a page, addresses that it links to, and descriptions of its pictures."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.pictures: dict[str, str] = {}
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors.add(values.get("id") or "")
        if tag == "a":
            self.links.append(values.get("href") or "")
        if tag == "img":
            self.pictures[values.get("src") or ""] = values.get("alt") or ""


# the pages as they are written


def test_the_first_page_says_what_it_is_shows_a_step_and_ten_lines():
    """Before any list of links."""
    first = (DOCS / "index.md").read_text("utf-8").split("## Get started")[0]
    code = re.search(r"```python\n(.*?)```", first, re.S)[1].splitlines()

    assert "](step.svg)" in first and 5 <= len([line for line in code if line]) <= 10
    assert "](" not in first.replace("](step.svg)", "")


def test_every_group_of_the_index_says_for_whom_it_is():
    """Get started, pick, compare, write: a sentence before the links. Only what is looked up is a list alone."""
    groups = (DOCS / "index.md").read_text("utf-8").split("\n## ")[2:]
    sections = {group.split("\n")[0]: group.split("\n- ")[0].split("\n", 1)[1].strip() for group in groups}

    assert [title for title, text in sections.items() if not text] == ["Look things up"]
    assert {"Pick a method", "Compare methods", "Write a method"} <= sections.keys()


@pytest.mark.parametrize("file", PICTURES)
def test_a_picture_can_be_read_in_light_and_dark_and_by_a_screen_reader(file):
    """Its own background, both schemes, a title and a description; every colour of the first is in the second."""
    picture = ElementTree.parse(DOCS / file).getroot()
    name = "{http://www.w3.org/2000/svg}"
    light, dark = picture.find(f"{name}style").text.split("@media (prefers-color-scheme: dark)")
    classes = set(re.findall(r"^\s*\.(\w+) \{ (?:fill|stroke)", light, re.M))

    assert picture.get("role") == "img" and picture.find(f"{name}title").text and picture.find(f"{name}desc").text
    assert picture.find(f"{name}rect").get("class") == "page"
    assert classes == set(re.findall(r"^\s*\.(\w+) \{ (?:fill|stroke)", dark, re.M)) >= {"page", "text", "line"}


def test_every_picture_is_on_a_page_with_a_text_that_describes_it():
    described = {
        (page.parent / target).resolve()
        for page in DOCS.rglob("*.md")
        for target in re.findall(r"!\[[^\]]{40,}\]\(([^)]+\.svg)\)", page.read_text("utf-8"))
    }

    assert [file for file in PICTURES if DOCS / file not in described] == []


def test_long_code_is_not_cut_off():
    style = (DOCS / "_static" / "site.css").read_text("utf-8")

    assert re.search(r"pre \{ overflow-x: auto; \}", style) and re.search(
        r"literal \{ overflow-wrap: break-word", style
    )


@pytest.mark.parametrize("term", TERMS)
def test_the_glossary_has_the_words_of_other_programs(term):
    rows = re.findall(r"^\| (.*?) \| .*$", (DOCS / "glossary.md").read_text("utf-8"), re.M)

    assert [row for row in rows if term in row.split(", ")]


class Noted:
    """Anchors of a page, as {(kind, name): anchor}: it stands in for Sphinx's environment and its domains."""

    def __init__(self, page: str) -> None:
        self.docname, self.found = page, {}

    def get_domain(self, name: str) -> Noted:
        return self

    def note_object(self, first: str, second: str, anchor: str, **options: object) -> None:
        self.found[first, second] = anchor


@pytest.fixture
def read_page(monkeypatch):
    """Reads a page as the site does, without building it."""
    pytest.importorskip("myst_parser", reason="myst_parser is not installed: pip install 'spec-core[docs]'")
    from docutils.core import publish_doctree
    from myst_parser.parsers.docutils_ import Parser

    monkeypatch.syspath_prepend(DOCS / "_site")
    objects = importlib.import_module("site_objects")

    def read(page: str) -> dict[tuple[str, str], str]:
        text, settings = (DOCS / f"{page}.md").read_text("utf-8"), {"doctitle_xform": False, "report_level": 5}
        doctree = publish_doctree(text, parser=Parser(), settings_overrides=settings)
        env = Noted(page)
        objects.register(SimpleNamespace(env=env), doctree)
        return env.found

    return read


def test_the_api_page_lists_every_public_name():
    """One directive each; what the other public modules export, Sphinx reads from their ``__all__``."""
    text = (DOCS / "api.md").read_text("utf-8")
    names = re.findall(r"^\.\. auto(?:class|exception|function):: (\w+)$", text, re.M)

    assert sorted(names) == sorted({*spec_core.__all__} - {"CONTRACT", "hookimpl"})
    assert re.findall(r"^\.\. automodule:: (\S+)$", text, re.M) == [f"spec_core.{name}" for name in PUBLIC[1:]]


def test_descriptions_in_a_docstring_become_a_list_of_fields():
    text = "Reads rows.\n\nfirst: the first row. last, step: the\nlast one.\n\nRaises an error."

    def read(first, last, step): ...

    assert list_fields(read, text).split("\n\n") == [
        "Reads rows.",
        "Raises an error.",
        "- ``first``: the first row.\n- ``last``, ``step``: the last one.\n",
    ]


def test_the_glossary_registers_every_synonym(read_page):
    entries = read_page("glossary")

    assert {("term", term) for term in TERMS} <= entries.keys()
    assert len(set(entries.values())) == len(entries)


# the built site


@pytest.mark.release
@pytest.mark.slow
def test_every_page_is_in_the_site(site):
    assert [page for page in PAGES if not (site / page).exists()] == []
    assert "index.html" in PAGES


@pytest.mark.slow
def test_links_between_pages_lead_to_pages_of_the_site(site):
    """Not to the Markdown they were made from; the one file that lies at the root of the repository is there too."""
    first = Page(site / "index.html")
    inside = [link.partition("#")[0] for link in first.links if link and not link.startswith(("http", "#", "_sources"))]

    assert [link for link in inside if link and not (site / link).exists()] == []
    assert {"api.html", "contributing.html"} <= set(inside)
    page, heading = (site / "contributing.html").read_text("utf-8"), re.compile(r"^## ([\w ]+)$", re.M)
    assert [h for h in heading.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8")) if f"<h2>{h}<" not in page] == []


@pytest.mark.slow
def test_the_picture_of_the_first_page_is_described(site):
    ((source, text),) = Page(site / "index.html").pictures.items()

    assert (site / source).exists()
    assert all(f"{hook}:" in text for hook in ("Draft", "Verify", "Accept", "Rollback", "Process"))


@pytest.mark.slow
def test_the_public_names_are_registered_where_they_are_described(site, inventory):
    """For the search, and for links from other sites: what is exported, hooks, and members of every kind."""
    names = {name for (kind, name) in inventory if kind.startswith("py:")}
    exported = {f"spec_core.{name}" for name in spec_core.__all__ if name not in ("CONTRACT", "hookimpl")}

    assert exported | {f"spec_core.toolkit.{name}" for name in toolkit.__all__} <= names
    assert {f"spec_core.hookspecs.{hook}" for hook in HOOKS} <= names
    assert {
        ("py:class", "spec_core.Step"),
        ("py:method", "spec_core.DraftStep.propose"),
        ("py:attribute", "spec_core.Request.max_tokens"),
        ("py:property", "spec_core.Run.busy"),
        ("py:function", "spec_core.load"),
        ("py:exception", "spec_core.UsageError"),
        ("py:class", f"{spec_core.Step.__module__}.Step"),
    } <= inventory.keys()


@pytest.mark.slow
def test_every_public_name_of_the_other_modules_is_registered(inventory):
    names = {name for (kind, name) in inventory if kind.startswith("py:")}
    modules = [importlib.import_module(f"spec_core.{name}") for name in PUBLIC[1:]]

    assert not {f"{module.__name__}.{name}" for module in modules for name in module.__all__} - names


@pytest.mark.slow
def test_every_registered_name_has_its_place(site, inventory):
    ours = [uri.split("#") for (kind, _), uri in inventory.items() if kind.startswith("py:") or kind == "std:term"]
    pages = {page: Page(site / page).anchors for page in {page for page, _ in ours}}

    assert len(ours) > 400
    assert [f"{page}#{anchor}" for page, anchor in ours if anchor not in pages[page]] == []


@pytest.mark.slow
@pytest.mark.parametrize("term", TERMS)
def test_the_terms_of_the_glossary_are_registered(inventory, term):
    assert inventory["std:term", term].startswith("glossary.html#term-")


@pytest.mark.slow
def test_a_search_for_stop_string_finds_the_glossary(site):
    """Both words, as the search of the site stems them; and the object that ``DraftStep.propose`` names."""
    index = (site / "searchindex.js").read_text("utf-8")
    index = json.loads(index[index.index("(") + 1 : index.rindex(")")])
    entries = [index["terms"][word] for word in ("stop", "string")]
    pages = [{p} if isinstance(p, int) else set(p) for p in entries]

    assert index["docnames"].index("glossary") in set.intersection(*pages)
    assert "propose" in [entry[4] for entry in index["objects"]["spec_core.DraftStep"]]
