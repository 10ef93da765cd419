"""The modules of the project and what they import; ``python -m tools.import_graph BASE`` prints the tests of a change.

A test belongs to a change since the commit BASE if it imports a changed module, directly or through others, or names a
plugin whose module does. Of a file that is no module, such as C, all modules of its folder count as changed.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {
    "spec_core": ROOT / "spec_core",
    "spec_kernels": ROOT / "kernels" / "spec_kernels",
    **{path.name: path for path in sorted((ROOT / "plugins").glob("*/spec_*"))},
}
"""Packages of the product, and their folders."""
OTHERS = {name: ROOT / name for name in ("tests", "tools", "benchmarks")}
EVERYTHING = ("pyproject.toml", "setup.py", "constraints.txt", "tests/conftest.py")
"""Files on which every test depends."""
STYLE = ("architecture", "contributing", "prose", "texts", "docs")
"""Tests of texts and structure, ``tests/test_NAME.py``: every change has them."""
PAGES = (".md", ".toml", ".svg")
EXPORT = re.compile(r"^from (\S+) import (\w+) as \2$", re.MULTILINE)
"""A name that the stub of a package exports."""


def modules(package: str) -> Iterator[tuple[str, Path]]:
    """(dotted name, file) of every module of a package."""
    root = {**SOURCES, **OTHERS}[package]
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


def imports(source: str, module: str) -> set[str]:
    """Dotted names that a module imports, anywhere in it; relative imports are resolved."""
    return _imports(ast.walk(ast.parse(source)), module)


def _imports(nodes: Iterable[ast.AST], module: str) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module.split(".")[: -node.level]) if node.level else ""
            name = ".".join(part for part in (base, node.module or "") if part)
            names |= {f"{name}.{alias.name}" for alias in node.names} | {name}
    return names


def graph() -> dict[str, set[str]]:
    """{module: modules of the project that it imports or names}; names that a stub exports lead to where they are."""
    files = {name: file for package in (*SOURCES, *OTHERS) for name, file in modules(package)}
    exports = {f"{name}.{exported}": where for name, file in files.items() for where, exported in _exports(file)}
    return {
        name: {_module(exports.get(each, each), files) for each in _names(name, file)} & files.keys() - {name}
        for name, file in files.items()
    }


def _exports(file: Path) -> Iterable[tuple[str, str]]:
    stub = file.with_suffix(".pyi")
    return EXPORT.findall(stub.read_text("utf-8")) if stub.exists() else ()


def _names(module: str, file: Path) -> set[str]:
    """What a module imports; of a test also the modules of plugins that it names."""
    nodes = [*ast.walk(ast.parse(file.read_text("utf-8")))]
    names = _imports(nodes, module)
    if not module.startswith("tests"):
        return names
    names |= {f"tests.{name}" for name in names} | {f"{module.rpartition('.')[0]}.{name}" for name in names}
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    words = {re.split(r"[:=]", text)[0] for text in texts if isinstance(text, str)}
    return names | {points()[word] for word in words & points().keys()}


@functools.cache
def points() -> dict[str, str]:
    """{name of an entry point: its module}."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    return {name: value.partition(":")[0] for group in groups.values() for name, value in group.items()}


def _module(name: str, files: Mapping[str, Path]) -> str:
    """The module of a dotted name: itself, or the one that defines it."""
    return name if name in files else name.rpartition(".")[0]


def importers(changed: Iterable[str], graph: Mapping[str, Iterable[str]]) -> set[str]:
    """Modules that import one of these, directly or through others, and these."""
    importers_of: dict[str, set[str]] = {}
    for module, names in graph.items():
        for name in names:
            importers_of.setdefault(name, set()).add(module)
    reached, waiting = set[str](), list(changed)
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += importers_of.get(module, ())
    return reached


def changed_modules(paths: Iterable[str]) -> set[str]:
    """Modules of these files, relative to the project; of another file in a package, its folder's."""
    files = {file: name for package in (*SOURCES, *OTHERS) for name, file in modules(package)}
    folders: dict[Path, set[str]] = {}
    for file, name in files.items():
        for folder in file.parents:
            folders.setdefault(folder, set()).add(name)
    changed: set[str] = set()
    for path in (ROOT / path for path in paths):
        if path in files:
            changed.add(files[path])
        elif path.name.startswith("test_") and path.suffix == ".py":
            continue  # a test that was removed
        elif path.suffix not in PAGES and path.is_relative_to(ROOT):
            changed |= _in_folder(path.parent, folders)
    return changed


def _in_folder(folder: Path, folders: Mapping[Path, set[str]]) -> set[str]:
    """Modules of the nearest folder with some, inside of a package."""
    homes = [*SOURCES.values(), *OTHERS.values()]
    while any(folder.is_relative_to(home) for home in homes):
        if folder in folders:
            return folders[folder]
        folder = folder.parent
    return set()


def select_tests(paths: Iterable[str]) -> list[str]:
    """Files of the tests of these changed files, the tests of style last; ``tests`` if every test depends on one."""
    paths = [*paths]
    if any(path in EVERYTHING for path in paths):
        return ["tests"]
    reached = importers(changed_modules(paths), graph())
    files = {name: file for name, file in modules("tests") if name.rpartition(".")[2].startswith("test_")}
    chosen = [file.relative_to(ROOT).as_posix() for name, file in files.items() if name in reached]
    style = [f"tests/test_{name}.py" for name in STYLE]
    return [*(path for path in chosen if path not in style), *style]


def changed_files(base: str) -> list[str]:
    """Files that differ from a commit, and new ones."""
    return [*_git("diff", "--name-only", base, "--"), *_git("ls-files", "--others", "--exclude-standard")]


def _git(*arguments: str) -> list[str]:
    """Lines that git prints. Exits with its message if it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout.splitlines()


if __name__ == "__main__":
    print("\n".join(select_tests(changed_files(sys.argv[1]))))
