"""Types for editors and type checkers: the public functions, and a plugin of another package."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from spec_cli.new import KINDS, Names

from tests.support.installed import FOLDERS, ROOT, copy_source

CONFIG = """\
[mypy]
strict = True
follow_imports = silent
[mypy-torch.*,numpy.*]
follow_imports = skip
follow_imports_for_stubs = True
"""
"""Strict for the plugin. Torch and numpy are left out: reading them takes a minute."""

PLUGIN = '''
import attrs

from spec_core import Compat, Draft, Refusal, DraftStep, Rows, Run, Target, hookimpl, load
from spec_core.testing import DrafterConformance, ToyTarget
from spec_core.toolkit import AcceptanceEstimate


@attrs.define(eq=False)
class Repeat:
    """The last token, again."""

    estimate: AcceptanceEstimate = attrs.field(factory=AcceptanceEstimate, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        return Compat(refusals=[Refusal("no tokens", hint="none")] if target.info.vocab < 2 else ())

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            step.propose(seq, Draft(seq.tokens[-1:] * budget))

    @hookimpl
    def process(self, rows: Rows) -> None:
        for _, part in rows.step.draft_results:
            self.estimate.learn(part.drafted, len(part.full_verdict.path) if part.full_verdict else 0)


class TestRepeat(DrafterConformance):
    def make(self) -> Repeat:
        return Repeat()


def text() -> str:
    with Run(load("zoo:pico"), [Repeat()]) as run:
        return run.generate("x = 1", max_tokens=8).text
'''


def check(folder: Path, source: str) -> str:
    """Output of mypy about a plugin's module in a folder of its own."""
    (folder / "mypy.ini").write_text(CONFIG)
    (folder / "plugin.py").write_text(source)
    path = os.pathsep.join(str(ROOT / folder) for folder in FOLDERS)
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", "plugin.py"]
    done = subprocess.run(command, cwd=folder, env={"MYPYPATH": path}, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shared: mypy keeps there what it has read."""
    return tmp_path_factory.mktemp("typed")


def test_a_plugin_from_outside_is_checked_with_types(folder):
    assert "Success: no issues found" in check(folder, PLUGIN)


@pytest.mark.parametrize("module", sorted((ROOT / "tests" / "out_of_tree").glob("*/spec_*.py")), ids=lambda p: p.stem)
def test_plugins_without_annotations_use_names_that_exist(folder, module):
    """The bodies of their functions are checked too."""
    source = (
        "# mypy: allow-untyped-defs, allow-untyped-calls, check-untyped-defs, no-strict-optional\n"
        + module.read_text("utf-8")
    )

    assert "Success: no issues found" in check(folder, source)


@pytest.mark.parametrize("name", ["medusa", "pard", "rest"])
def test_annotated_plugins_and_their_tests_pass_the_strict_check(folder, name):
    package = ROOT / "tests" / "out_of_tree" / f"spec-{name}"
    module = (package / f"spec_{name}.py").read_text("utf-8")
    (folder / f"spec_{name}.py").write_text(module, "utf-8")

    assert "Success: no issues found" in check(folder, module)
    assert "Success: no issues found" in check(folder, (package / f"test_{name}.py").read_text("utf-8"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_package_passes_the_strict_check(folder, kind):
    names = Names(kind, "fresh")
    (folder / "spec_fresh.py").write_text(names.fill(kind))

    assert "Success: no issues found" in check(folder, names.fill(kind))
    assert "Success: no issues found" in check(folder, names.fill(f"{kind}_test"))


def test_names_of_the_front_door_are_classes(folder):
    source = (
        "from spec_core import Run, Step, load\nreveal_type(Run('zoo:pico'))\nreveal_type(load)\nreveal_type(Step)\n"
    )
    output = check(folder, source)

    assert 'Revealed type is "spec_core.loop.run.Run"' in output
    assert "-> spec_core.contract.step.Step" in output
    assert '"Any"' not in output


def test_a_target_may_say_that_it_has_a_tokenizer(folder):
    """Though the protocol allows None: its tokenizer is read, never replaced."""
    source = "from spec_core import Run\nfrom spec_core.testing import ToyTarget\nRun(ToyTarget())\n"

    assert "Success: no issues found" in check(folder, source + "ToyTarget().tokenizer.encode('a')\n")


def test_several_prompts_give_several_generations(folder):
    kinds = ["'a'", "Request('a')", "[1, 2]", "[{'role': 'user', 'content': 'a'}]"]
    lines = [f"reveal_type(Run('zoo:pico').generate([{kind}, {kind}]))" for kind in kinds]
    output = check(folder, "\n".join(["from spec_core import Request, Run", *lines]) + "\n")

    assert output.count('Revealed type is "list[spec_core.loop.generation.Generation]"') == len(kinds), output


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("def f(step: DraftStep) -> None:\n    step.propos()", '"DraftStep" has no attribute "propos"'),
        ("def f(step: DraftStep) -> None:\n    step.decide", '"DraftStep" has no attribute "decide"'),
        ("def f(step: AcceptStep) -> None:\n    step.propose", '"AcceptStep" has no attribute "propose"'),
        ("def f(step: AcceptStep) -> None:\n    step.noise", '"AcceptStep" has no attribute "noise"'),
        ("def f(step: RollbackStep) -> None:\n    step.undrafted", '"RollbackStep" has no attribute "undrafted"'),
        ("def f(rows: Rows) -> None:\n    rows.step.rewind", '"ProcessStep" has no attribute "rewind"'),
        (
            "def f(step: DraftStep) -> None:\n    step.number = 1",
            'Property "number" defined in "HookStep" is read-only',
        ),
        ("Run('zoo:pico').generate(1.5)", "No overload variant"),
        ("Request('text', max_tokens='8')", 'Argument "max_tokens" to "Request" has incompatible type'),
        ("from spec_core import NoSuchName", 'has no attribute "NoSuchName"'),
    ],
)
def test_a_mistake_in_a_plugin_is_found(folder, wrong, says):
    assert says in check(
        folder, f"from spec_core import AcceptStep, DraftStep, Request, RollbackStep, Rows, Run\n{wrong}\n"
    )


def stub(package: Path) -> set[str]:
    """Names that the typed form of a package exports."""
    tree = ast.parse(package.read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.asname for node in imports for alias in node.names if alias.asname}


@pytest.mark.parametrize("package", ["spec_core", "spec_core.toolkit", "spec_core.host", "spec_core.testing"])
def test_the_typed_form_names_what_the_package_exports(package):
    """Its stub, or imports for type checkers; every name can be imported."""
    module = __import__(package, fromlist=["__all__"])
    file = Path(module.__file__)
    typed = stub(file.with_suffix(".pyi") if file.with_suffix(".pyi").exists() else file)

    assert typed == set(module.__all__)
    assert [name for name in typed if not hasattr(module, name)] == []


def test_every_package_says_that_it_is_typed():
    roots = [root for folder in FOLDERS for root in (ROOT / folder).glob("spec_*/")]

    assert [root.name for root in roots if re.match(r"spec_\w+$", root.name) and not (root / "py.typed").exists()] == []


@pytest.mark.release
@pytest.mark.slow
def test_an_editable_install_shows_its_types(tmp_path):
    """Without a path of its own, mypy finds the packages in the folders that the install lists."""
    source, env = tmp_path / "source", tmp_path / "env"
    copy_source(source)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(env)], check=True)
    [packages] = env.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(packages)]
    pure = {**os.environ, "SPEC_PURE": "1"}
    subprocess.run([*pip, "-e", str(source)], check=True, env=pure, capture_output=True, timeout=300)
    (tmp_path / "mypy.ini").write_text(CONFIG)
    source = "import spec_kernels.model\nimport spec_methods.ngram\nfrom spec_core import Step\nreveal_type(Step)\n"
    (tmp_path / "plugin.py").write_text(source)
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--python-executable", env / "bin" / "python"]
    done = subprocess.run([*command, "plugin.py"], cwd=tmp_path, capture_output=True, text=True, env={})

    assert "-> spec_core.contract.step.Step" in done.stdout, done.stdout + done.stderr
    assert "import" not in done.stdout
