"""The documentation matches the program: examples run, tables and hooks are up to date."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
import tomllib
from pathlib import Path

import attrs
import click
import pytest
from spec_cli.main import run_command
from spec_commands.machine import Load
from spec_commands.timing_warnings import TimingWarning
from spec_compare.figures.difference import Difference
from spec_compare.figures.summary import Row
from spec_kernels import drafting

import spec_core
from spec_core import UsageError, hookspecs, toolkit
from spec_core.assembly.discovery import GROUPS, discover_plugins, find_plugin, import_plugin
from spec_core.assembly.hooks import HOOKS
from spec_core.settings.resolve import DEFAULT, ENVIRONMENT, FILE, FLAG, resolve_layers
from tests.support.pages import Skimmer, blocks, follow
from tools import folders, results
from tools.document import KINDS, document
from tools.document import PAGES as GENERATED

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LITERALS = ("SampleMode",)
"""Types of the toolkit without a name of their own."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FOLLOWED = (
    "write-a-method.md",
    "write-a-head.md",
    "papers.md",
    "write-a-rule.md",
    "write-a-rollback.md",
    "write-a-target.md",
    "add-an-architecture.md",
    "write-a-controller.md",
    "write-an-engine-adapter.md",
    "train-a-head.md",
    "table-for-a-paper.md",
)
"""Pages that a reader follows step by step in an empty folder."""
TRAINING = {"train", "final_states", "main"}
"""Functions of the packages of papers.md that train, and draft nothing."""
SHORT = {"write-a-head.md", "write-an-engine-adapter.md"}
"""Pages that take seconds. The other pages run whole kits and trainings, and are followed before a release."""
NEEDS = {"structured-output.md": "llguidance", "forced.md": "llguidance", "notebook.md": "matplotlib"}
"""Pages whose examples need a package of an extra."""
PROGRAMS = {"table-for-a-paper.md": "pdflatex"}
"""Pages that call a program which is not ours."""
POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
OURS = [(kind, plugin) for kind in KINDS for plugin in POINTS.get(GROUPS[kind], {})]
OPS = ROOT / "kernels" / "spec_kernels" / "ops"


def name(page):
    return page.relative_to(ROOT).as_posix()


SERVED = ("serve.md", "serve-chats.md", "serve-operate.md", "pictures.md")
"""Pages that are followed against a server, in tests/serve, or a model of tests/targets."""


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in (*FOLLOWED, *SERVED)], ids=name)
def test_the_examples_of_a_page_run(page, tmp_path):
    """Its Python runs and prints the shown output; its commands and their options exist."""
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name], reason="needs an extra")
    follow(page, Skimmer(), tmp_path)


def test_a_method_is_eleven_lines():
    """The headline of the page counts its code: no blank line, no docstring, no comment of its own line."""
    package = [b for b in blocks(DOCS / "write-a-method.md") if b.file == "spec-recall/spec_recall.py"]

    assert [len(code(block)) for block in package[:3]] == [11, 11 + 3, 11 + 8]


def code(block):
    lines = [line.strip() for line in block.text.splitlines()]
    return [line for line in lines if line and not line.startswith(("#", '"""'))]


def test_the_page_of_papers_shows_the_packages_and_their_lines():
    """Its blocks are the modules; its table counts their classes and functions, apart from what trains."""
    page = DOCS / "papers.md"
    table = re.findall(r"^\| .* \| `spec-(\w+)` \| .* \| (\d+) \| (\d+) \|$", page.read_text("utf-8"), re.M)
    modules = {block.file: block.text.partition("\n")[2] for block in blocks(page) if block.file}

    assert modules == {file: (ROOT / "tests" / "out_of_tree" / file).read_text("utf-8") for file in modules}
    assert {name: (int(a), int(b)) for name, a, b in table} == {
        Path(file).stem.removeprefix("spec_"): lines_of_definitions(module) for file, module in modules.items()
    }


def lines_of_definitions(module):
    """(lines that draft, lines that train) of a module's classes and functions, without blank lines and docstrings."""
    counts = [0, 0]
    for node in ast.parse(module).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            counts[node.name in TRAINING] += len(code_lines(module, node))
    return tuple(counts)


def code_lines(module, node):
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    comments = {n for part in ast.walk(node) if is_docstring(part) for n in range(part.lineno, part.end_lineno + 1)}
    lines = enumerate(module.splitlines()[first - 1 : node.end_lineno], first)
    return [line for n, line in lines if line.strip() and n not in comments]


def is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@pytest.mark.slow
@pytest.mark.parametrize("page", [p if p in SHORT else pytest.param(p, marks=pytest.mark.release) for p in FOLLOWED])
def test_a_page_can_be_followed_to_the_letter(page, stranger, tmp_path):
    """In an empty folder, with the wheel and the page only: files, installation, commands, tests."""
    if shutil.which(PROGRAMS.get(page, "bash")) is None:
        pytest.skip(f"needs {PROGRAMS[page]}")
    follow(DOCS / page, stranger, tmp_path)


def test_an_example_that_does_not_work_is_found(tmp_path):
    """Wrong output, an option that does not exist, an error, a language that nobody runs."""
    page = tmp_path / "page.md"
    for wrong in (
        "```python\nprint(1)\n```\n\n```text\n2\n```",
        "```sh\nspec generate --no-such-option\n```",
        "```sh\nspec no-such-command\n```",
        "```python\nfrom spec_core import NoSuchName\n```",
        "```bash\nls\n```",
    ):
        page.write_text(wrong + "\n", "utf-8")
        with pytest.raises((AssertionError, ImportError, click.ClickException, UsageError)):
            follow(page, Skimmer(), tmp_path)


def test_a_figure_after_an_output_is_not_compared_with_it(tmp_path):
    """The output itself is."""
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n1\n```\n\n```text\nA figure.\n```\n", "utf-8")
    follow(page, Skimmer(), tmp_path)

    page.write_text("```python\nprint(1)\n```\n\n```text\nA figure.\n```\n\n```text\n1\n```\n", "utf-8")
    with pytest.raises(AssertionError):
        follow(page, Skimmer(), tmp_path)


def test_the_notebook_has_the_cells_of_its_page(tmp_path):
    """Every block of Python is a cell that compiles, with what it prints; commands begin with an exclamation mark."""
    body = json.loads((DOCS / "notebook.ipynb").read_text("utf-8"))
    code = ["".join(cell["source"]) for cell in body["cells"] if cell["cell_type"] == "code"]
    page = [*blocks(DOCS / "notebook.md")]

    assert body["nbformat"] == 4 and len({cell["id"] for cell in body["cells"]}) == len(body["cells"])
    assert [text for text in code if not text.startswith("!")] == [
        block.text.rstrip() for block in page if block.language == "python"
    ]
    assert [text.splitlines()[0] for text in code if text.startswith("!")] == [
        "!spec compare report measured report.html"
    ]
    printed = ["".join(one["text"]) for cell in body["cells"] for one in cell.get("outputs", ())]
    assert printed == [block.text for block in page if block.language == "text" and "..." not in block.text]


WORDS_OF_A_PAGE, WORDS_OF_PAGES = 3_000, 70_000
"""Max words of a page, and of all pages that are written by hand."""
LISTS = {*GENERATED, "api.md", "promises.md"} - {"add-an-architecture.md"}
"""Pages from docstrings, tables and metadata, which are looked up and not read."""


def test_pages_can_be_read_in_a_few_minutes_and_all_in_an_afternoon():
    """A page says one thing; measured figures are in files of results."""
    counts = {name(page): len(page.read_text("utf-8").split()) for page in PAGES}

    assert [page for page, words in counts.items() if words > WORDS_OF_A_PAGE] == []
    written = [page for page in counts if page.startswith("docs/") and page.removeprefix("docs/") not in LISTS]
    assert sum(counts[page] for page in written) <= WORDS_OF_PAGES


def test_the_picture_of_the_folders_has_at_most_25_that_exist_and_every_station_of_the_page():
    """Numbers and letters in it are the first cells of the two walks."""
    page = (DOCS / "architecture.md").read_text("utf-8")
    boxes = folders.folders()
    stations = {station for box in boxes for station in f"{box.token} {box.file}".split()}

    assert len(boxes) <= 25
    assert [box.path for box in boxes if not (ROOT / box.path).is_dir()] == []
    assert stations == set(re.findall(r"^\| ([1-9a-z]) \| `", page, re.M))


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_in_the_manual_with_its_arguments(hook):
    arguments = ", ".join(inspect.signature(getattr(hookspecs, hook)).parameters)

    assert f"## {hook}({arguments})" in (DOCS / "hooks.md").read_text("utf-8")


def test_the_contract_page_is_about_this_version_and_these_names():
    """Its version is the program's, and what it calls public is what can be imported."""
    text = (DOCS / "contract.md").read_text("utf-8")
    exported = re.search(r"What `spec_core` exports: (.*?);", text)[1]

    assert "Version **{}.{}**".format(*spec_core.CONTRACT) in text
    assert sorted(spec_core.__all__) == sorted(re.findall(r"`(\w+)`", exported))


def test_the_contract_page_lists_the_toolkit():
    """Every name can be imported, and none is left out."""
    listed = re.search(r"The toolkit is (.*)\.\n", (DOCS / "contract.md").read_text("utf-8"))[1]

    assert sorted(toolkit.__all__) == sorted(re.findall(r"`(\w+)`", listed))
    assert [name for name in toolkit.__all__ if getattr(toolkit, name).__name__ != name and name not in LITERALS] == []


def published_methods():
    """Rows of the page: the method, its names of the contract, its packages, and what is missing."""
    for line in (DOCS / "published-methods.md").read_text("utf-8").splitlines():
        if line.startswith("| ") and not line.startswith(("| method ", "| --- ")):
            method, _, names, packages, missing = (cell.strip() for cell in line[1:-1].split("|"))
            yield method, re.findall(r"`([^`]+)`", names), packages, missing


@pytest.mark.parametrize("row", [*published_methods()], ids=lambda row: row[0].strip("[").split("]")[0])
def test_a_published_method_has_names_of_the_contract_that_its_packages_use(row):
    """Every name is exported and stands in the code of a package; a row without a package says what is missing."""
    _, names, packages, missing = row
    if packages == "none":
        assert missing and not names
        return
    code = "".join(path.read_text("utf-8") for path in package_sources(packages))

    assert names and code
    assert [name for name in names if not is_exported(name)] == []
    assert [name for name in names if not is_used(name, code)] == []


def is_exported(name):
    """Whether a name, or a field or method as ``Class.name``, belongs to the public modules."""
    first, _, member = name.partition(".")
    module = next((module for module in (spec_core, toolkit, drafting) if first in module.__all__), None)
    return module is not None and (not member or hasattr(getattr(module, first), member))


def is_used(name, code):
    """Whether code has a name: a need or a declaration as an argument, a member of the step with its dot."""
    first, _, member = name.rpartition(".")
    pattern = {"Needs": rf"\b{member}=", "Compat": rf"\b{member}=", "Step": rf"step\.{member}\b"}
    first = "Step" if first.endswith("Step") else first
    return re.search(pattern.get(first, rf"\b{member}\b"), code) is not None


def package_sources(packages):
    """Modules of the plugins that a cell names, without their tests."""
    decoding = ROOT / "plugins" / "decoding"
    for title, kind, name in re.findall(r"`([^`]+)`(?:\]\((methods|rules)/([^)]+)\.md\))?", packages):
        if not kind:
            yield ROOT / "tests" / "out_of_tree" / title / f"{title.replace('-', '_')}.py"
            continue
        assert title == name
        path = decoding.joinpath(*POINTS[f"spec_core.{kind}"][name].split(":")[0].split("."))
        folder = path if path.is_dir() else path.parent
        yield from [path.with_suffix(".py")] if folder.parent == decoding else folder.glob("*.py")


def test_the_contract_page_names_every_entry_point_group():
    text = (DOCS / "contract.md").read_text("utf-8")

    assert [group for group in GROUPS.values() if f"`{group}`" not in text] == []


@pytest.mark.parametrize("page", GENERATED)
def test_generated_pages_are_up_to_date(page):
    """Regenerate with ``python -m tools.document docs``."""
    assert document(page) == (DOCS / page).read_text("utf-8")


def test_tables_and_figures_of_results_are_up_to_date():
    """Regenerate with ``python -m tools.results``."""
    assert [path for path, text in results.pages().items() if (ROOT / path).read_text("utf-8") != text] == []


@pytest.mark.parametrize(("kind", "plugin"), OURS)
def test_every_plugin_has_a_page_with_its_settings(kind, plugin):
    """Each setting with the default the class has."""
    cls = import_plugin(find_plugin(plugin, (kind,)))
    text = (DOCS / KINDS[kind][1] / f"{plugin}.md").read_text("utf-8")
    for field in attrs.fields(cls) if attrs.has(cls) else ():
        if field.init:
            assert re.search(rf"\| `{field.name}` \| {re.escape(default_text(field.default))} ?\|", text), field.name


def default_text(default):
    """Default as on a page: nothing for none, words of the settings file for the others."""
    if default is None:
        return ""
    if isinstance(default, tuple):
        return ", ".join(map(str, default))
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_every_name_of_a_comparison_s_files_is_described():
    """Of a row of the summary, of a difference, a warning and the load; lines of results.jsonl are generated."""
    text = (DOCS / "output.md").read_text("utf-8")
    names = [f.name for cls in (Row, Difference, TimingWarning, Load) for f in attrs.fields(cls)]

    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_name_of_generate_s_json_is_described(capsys):
    """Of the object, its times and its log-probabilities; and ``id`` of several."""
    assert run_command(["generate", "-m", "zoo:pico", "-p", "x", "-n", "2", "--json", "--logprobs", "1"]) == 0
    body = json.loads(capsys.readouterr().out)
    text = (DOCS / "output.md").read_text("utf-8").split("## `results.jsonl`")[0]
    names = ["id", *body, *body["times"], *body["logprobs"][0]]

    assert [name for name in names if f"`{name}`" not in text] == []


def test_the_page_describes_summary_json_as_it_is_written(tmp_path, capsys):
    """Every name at its top, and what a setting is made of."""
    measured = ["--method", "ngram", "--limit", "1", "--repeats", "1", "-n", "2", "--out", str(tmp_path / "out")]
    assert run_command(["compare", "-m", "zoo:pico", *measured]) == 0
    body = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    text = (DOCS / "output.md").read_text("utf-8").split("## `summary.json`")[1]
    (line,) = [line for line in text.splitlines() if line.startswith("| `settings` |")]

    assert [name for name in body if f"`{name}`" not in text] == []
    assert {f"`{name}`" for setting in body["settings"].values() for name in setting} == {"`value`", "`origin`"}
    assert {setting["origin"] for setting in body["settings"].values()} >= {"flag", "default"}
    assert all(f"`{setting['origin']}`" in line for setting in body["settings"].values())


def test_every_installed_command_of_ours_is_in_the_table_of_commands():
    text = (DOCS / "command-line.md").read_text("utf-8")
    ours = [entry.name for entry in discover_plugins(["command"]) if entry.distribution == "spec-core"]

    assert [name for name in ours if f"| `spec {name}` |" not in text] == []


def test_the_page_names_the_fields_of_a_setting_and_every_origin():
    """As ``settings`` of summary.json and of generate's JSON have them."""
    page = (DOCS / "output.md").read_text("utf-8").splitlines()
    lines = [line for line in page if line.startswith("| `settings` | every setting by name")]
    settings = resolve_layers({"draft_max": 3}, {}, {}, set())
    words = [*settings.as_json()["draft_max"], FLAG, ENVIRONMENT, FILE, DEFAULT]

    assert len(lines) == 2
    assert [name for name in words for line in lines if f"`{name}`" not in line] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_is_markdown_alone(page):
    """No field lists, literal blocks or directives of reStructuredText."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)

    assert re.findall(r"^.*::$|^\s*:\w+[^:\n]*: .*$|^\.\. .*$", prose, re.M) == []


def links(page):
    """Files that the prose of a page links to."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    return [(page.parent / target).resolve() for target in re.findall(r"\]\((?!http)([^)#]+)", prose)]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(page):
    assert [target for target in links(page) if not target.exists()] == []


def test_every_page_can_be_reached_from_the_readme():
    """Every page has a link to it."""
    reached, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page.suffix == ".md" and page.exists() and page not in reached:
            reached.add(page)
            ahead += links(page)

    assert [name(page) for page in PAGES if page not in reached] == []


@pytest.mark.parametrize("op", sorted(file.parent.name for file in OPS.glob("*/reference.py")))
def test_every_operation_is_on_the_page_of_kernels(op):
    assert f"| `{op}` | " in (DOCS / "kernels.md").read_text("utf-8")
