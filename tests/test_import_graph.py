"""The tests of a change: ``make quick BASE=COMMIT``."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tools import import_graph
from tools.import_graph import ROOT, STYLE, changed_files, changed_modules, importers, points, select_tests


@pytest.fixture(scope="module", autouse=True)
def graph():
    """The graph of the project, made once."""
    graph = import_graph.graph()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_graph, "graph", lambda: graph)
        yield graph


def test_a_changed_module_reaches_all_that_import_it_through_others():
    graph = {"a": {"b"}, "b": {"c"}, "c": set(), "d": {"a"}, "e": {"d", "e"}}

    assert importers({"b"}, graph) == {"a", "b", "d", "e"}
    assert importers({"e"}, graph) == {"e"}


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        ("plugins/decoding/spec_methods/ngram.py", {"tests/methods/test_ngram.py", "tests/compare/test_compare.py"}),
        ("plugins/decoding/spec_rules/typical.py", {"tests/rules/test_lossy.py"}),
        ("kernels/spec_kernels/native/matmul/some.c", {"tests/native/test_programs.py"}),
        ("spec_core/loop/run.py", {"tests/core/test_order.py", "tests/methods/test_ngram.py"}),
        ("tests/targets/drive.py", {"tests/targets/test_parity.py"}),
        ("tests/core/toys.py", {"tests/core/test_order.py"}),
        ("tests/core/test_heap.py", {"tests/core/test_heap.py"}),
        ("tools/results.py", {"tests/test_docs.py"}),
    ],
)
def test_the_tests_of_a_change_are_those_that_import_it(changed, chosen):
    """By names that ``spec_core`` exports too, and by the name of a plugin."""
    tests = select_tests([changed])

    assert chosen <= {*tests}
    assert all((ROOT / test).exists() for test in tests)


def test_tests_that_do_not_import_a_change_are_left_out():
    assert "tests/core/test_heap.py" not in select_tests(["plugins/commands/spec_serve/llama.py"])
    assert select_tests(["docs/serve.md"]) == [f"tests/test_{name}.py" for name in STYLE]
    assert select_tests(["deploy/ray.yaml", "README.md"]) == select_tests([])


def test_what_every_test_depends_on_chooses_all():
    assert select_tests(["pyproject.toml"]) == select_tests(["tests/conftest.py", "docs/serve.md"]) == ["tests"]


def test_every_plugin_is_named_by_a_module(graph):
    assert len(points()) > 50
    assert [name for name, module in points().items() if module not in graph] == []
    assert changed_modules(["plugins/models/spec_hub/__init__.py"]) == {"spec_hub"}


def test_a_commit_that_does_not_exist_ends_with_the_message_of_git():
    with pytest.raises(SystemExit, match="nowhere"):
        changed_files("nowhere")


@pytest.mark.release
@pytest.mark.slow
def test_the_command_lists_tests_of_the_working_tree():
    command = [sys.executable, "-m", "tools.import_graph", "HEAD"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()

    assert listed == ["tests"] or {f"tests/test_{name}.py" for name in STYLE} <= {*listed}
