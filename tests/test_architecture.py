"""The structure of the project: allowed imports, allowed names, and the max length of a file.

Longer than our files are: the rules are read beside each other.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
from step_files import METHODS, files_entered, of_the_core

from spec_core.sampling import native
from tools.import_graph import SOURCES, imports, modules

ROOT = Path(__file__).parent.parent
PLUGINS = ROOT / "plugins"
OURS = frozenset(SOURCES)

MAY_IMPORT = {
    "decoding": {"spec_core", "spec_kernels"},
    "models": {"spec_core", "spec_kernels"},
    "commands": {"spec_core", "spec_kernels", "spec_commands", "spec_costs"},
}
"""Packages of this project that a package on this shelf may import, beside itself; the core and the kernels, which lie
on none, import none."""

CROSSINGS = {
    ("spec_control", "spec_costs"): "the controller reads files of measured costs",
    ("spec_engines", "spec_commands"): "`spec vllm` and `spec sglang` are commands",
    ("spec_best", "spec_costs"): "costs of steps and drafts, by which it chooses",
    ("spec_best", "spec_hub"): "drafters of the table of pairs that are in the hub's cache",
    ("spec_hub", "spec_commands"): "`spec get` is a command",
    ("spec_cli", "spec_grammar"): "`spec generate` has options for constraints",
    ("spec_serve", "spec_grammar"): "requests have constraints",
    ("spec_compare", "spec_ray"): "`--executor ray`",
    ("spec_ray", "spec_compare"): "a worker measures a part of a comparison",
    ("spec_ray", "spec_serve"): "a replica is a server",
    ("spec_serve", "spec_ray"): "`spec_serve.ray:app` is the name of the application",
}
"""(package, what it imports from another shelf): the reason."""

ROOMS = (
    "installed",
    "errors",
    "lazy",
    "sampling",
    "settings",
    "contract",
    "hookspecs",
    "toolkit",
    "assembly",
    "loop",
    "host",
    "commands",
    "testing",
)
"""Rooms of the core, from the ground up: each imports only those before it."""
KERNEL_ROOMS = ("ops", "model", "native", "gpu", "executors", "layer_executor", "drafting", "facts")
"""The same for the kernels; ``machine`` imports none of them."""
TARGET_ROOMS = ("formats", "tokenizer", "architectures", "pictures", "runtime")
"""The same for targets: files, texts, descriptions, pictures, and what runs."""
COMPARE_ROOMS = ("inputs", "records", "figures", "measuring", "servers", "report", "exports", "replay")
"""The same for comparisons: prompts, files, figures, what measures, servers, and what is made of the results."""
ROOMS_OF = {
    "spec_core": ROOMS,
    "spec_kernels": KERNEL_ROOMS,
    "spec_targets": TARGET_ROOMS,
    "spec_compare": COMPARE_ROOMS,
}
OUTSIDE_ROOMS = {
    "spec_core": {"__main__"},
    "spec_kernels": {"machine"},
    "spec_targets": {"recognise"},
    "spec_compare": {"command", "python", "stored", "rerun"},
}
"""Modules that lie in no room: they import none of them, or are imported by none."""

PUBLIC = ("errors", "toolkit", "host", "testing", "commands")
"""Modules of the core that plugins import from, beside ``spec_core`` itself: by these names and none below them."""

ENGINES = {
    "transformers": ("spec_targets.pictures", "spec_engines.transformers"),
    "llama_cpp": ("spec_engines.llamacpp",),
    "vllm": ("spec_engines.vllm",),
    "sglang": ("spec_engines.sglang",),
}
"""Packages of other engines, and the modules that may import them."""

PICTURES = "spec_targets.pictures"
"""Where pillow may be imported."""

SERVER = ("fastapi", "prometheus_client", "pydantic", "starlette", "uvicorn")
"""Packages that only the server needs."""
METRICS = "spec_engines.vllm.metrics"
"""Counts in the metrics of another server, where prometheus_client is installed."""
CLUSTER = ("spec_ray",)
"""Modules that may import Ray."""
DRAFTING = ("spec_kernels.drafting", "spec_kernels.machine")
"""What packages with methods may import of the kernels."""
MODELS = ("spec_kernels.model", "spec_kernels.native")
TRITON = re.compile(r"spec_kernels\.(ops\.device_function|gpu(\.\w+)+)")
"""Modules that may import triton, which is an optional package."""
METHOD_NAMES = re.compile(
    r"\b(ngram|assistant|eagle3?|mtp|dflash2?|dspark|dspine|lilicorr|draft[-_]model|gdn)\b", re.IGNORECASE
)
LONGEST = 400


def may_import(package: str) -> set[str]:
    """Packages of this project that a package may import, beside itself."""
    shelves = [names for shelf, names in MAY_IMPORT.items() if SOURCES[package].parent == PLUGINS / shelf]
    return {other for importer, other in CROSSINGS if importer == package}.union(*shelves)


def method_of(name: str) -> str | None:
    """``spec_methods.x.y`` belongs to the method x."""
    parts = name.split(".")
    return parts[1] if parts[0] == "spec_methods" and len(parts) > 1 else None


def broken_rules(module: str, source: str) -> list[str]:
    """The rules of import that a module breaks, in words."""
    package, method = module.split(".")[0], method_of(module)
    rules = []
    for name in sorted(imports(source, module)):
        other = name.split(".")[0]
        if other in OURS - {package} - may_import(package):
            rules.append(f"{module} imports {name}")
        if method and method_of(name) not in (None, method):
            rules.append(f"{module} imports another method: {name}")
        if module.startswith("spec_kernels.ops") and name.startswith(MODELS):
            rules.append(f"{module} imports {name}: operators know no models")
        if other == "triton" and not TRITON.fullmatch(module):
            rules.append(f"{module} imports triton: only ops/*/triton.py, ops/device_function.py and gpu may")
        if other == "gguf" and not module.startswith("spec_train.heads.export.gguf"):
            rules.append(f"{module} imports gguf: only what reads or writes such files may")
        is_decoding = SOURCES[package].parent == PLUGINS / "decoding"
        if is_decoding and other == "spec_kernels" and not name.startswith(DRAFTING):
            rules.append(f"{module} imports {name}: methods take from the kernels what is public")
        if other in SERVER and package not in ("spec_serve", "spec_ray") and module != METRICS:
            rules.append(f"{module} imports {name}: only the server may")
        if other == "PIL" and not module.startswith(PICTURES):
            rules.append(f"{module} imports {name}: only {PICTURES} may")
        if other == "llguidance" and package != "spec_grammar":
            rules.append(f"{module} imports {name}: only spec_grammar may")
        if other == "ray" and not module.startswith(CLUSTER):
            rules.append(f"{module} imports {name}: only {' and '.join(CLUSTER)} may")
        if other in ENGINES and not module.startswith(ENGINES[other]):
            rules.append(f"{module} imports {other}: only {' and '.join(ENGINES[other])} may")
    return rules


def public(name: str) -> bool:
    """``spec_core``, a name that it exports, and what the public modules export."""
    parts = name.split(".")
    if parts[0] != "spec_core" or len(parts) == 1:
        return True
    if parts[1] in PUBLIC:
        return len(parts) == 2 or (len(parts) == 3 and not exists(*parts[:3]))
    return len(parts) == 2 and not exists(*parts)


def exists(*parts: str) -> bool:
    """Is this a module or a folder of the project?"""
    path = ROOT.joinpath(*parts)
    return path.is_dir() or path.with_suffix(".py").exists()


def private(module: str, source: str) -> list[str]:
    """Imports of a plugin from the core that are not public."""
    names = sorted(name for name in imports(source, module) if not public(name))
    return [f"{module} imports {name}, which is not public" for name in names]


@pytest.mark.parametrize("package", sorted(OURS - {"spec_core", "spec_kernels"}))
def test_plugins_import_public_names_only(package):
    """Plugins of other packages have the same possibilities as this project's."""
    lines = [line for module, file in modules(package) for line in private(module, file.read_text())]

    assert not lines, "\n".join(lines)


STRANGERS = ROOT / "tests" / "out_of_tree"


@pytest.mark.parametrize("package", sorted(path.parent.name for path in STRANGERS.glob("*/pyproject.toml")))
def test_strangers_plugins_import_public_names_only(package):
    """What was written from the pages needs nothing else, its tests included."""
    files = [STRANGERS / "conftest.py", *sorted((STRANGERS / package).glob("*.py"))]

    assert len(files) > 1
    assert not [line for file in files for line in private(f"{package}/{file.name}", file.read_text())]


@pytest.mark.parametrize(
    "source",
    [
        "from spec_core.contract.step import Step",
        "from spec_core.toolkit.drive import forward",
        "from spec_core.loop import run",
        "def f():\n    import spec_core.loop.run",
        "import spec_core.sampling",
    ],
)
def test_a_private_import_is_found(source):
    assert private("spec_methods.ngram", source)


def test_a_public_import_is_none():
    source = (
        "from spec_core import Step\nfrom spec_core.errors import nearest_names\nfrom spec_core.toolkit import uniform"
    )

    assert not private("spec_methods.ngram", source + "\nfrom spec_core.testing import Oracle")


def room(name: str) -> str | None:
    """``spec_core.loop.run`` lies in the room loop; what the package itself exports lies in none."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS_OF.get(parts[0], ()) else None


def upward(module: str, source: str) -> list[str]:
    """Imports of a module from a room of its package above its own, for types too."""
    package, own_room = module.split(".")[0], room(module)
    if own_room is None:
        return []
    rooms = ROOMS_OF[package]
    others = {name: room(name) for name in sorted(imports(source, module)) if name.split(".")[0] == package}
    above = [name for name, other in others.items() if other and rooms.index(other) > rooms.index(own_room)]
    return [f"{module} imports {name}, which lies above it" for name in above]


@pytest.mark.parametrize("package", ROOMS_OF)
def test_imports_between_rooms_point_down(package):
    """No circles between rooms, not even for types."""
    lines = [line for module, file in modules(package) for line in upward(module, file.read_text())]

    assert not lines, "\n".join(lines)


def test_a_planted_upward_import_is_found():
    assert upward("spec_core.contract.step", "from spec_core.loop.run import Run")
    assert upward("spec_core.errors", "from spec_core import lazy")
    assert upward("spec_kernels.ops.norm", "from spec_kernels.gpu.launch import start_next")
    assert upward("spec_kernels.model.build", "def f():\n    from spec_kernels import native")
    assert not upward("spec_core.loop.run", "from spec_core.contract.step import Step\nfrom spec_core import Draft")


@pytest.mark.parametrize("package", ROOMS_OF)
def test_every_module_lies_in_a_room(package):
    """A room that no longer exists, or a module in none, would escape the check."""
    names = {module.split(".")[1] for module, _ in modules(package) if "." in module}

    assert names == {*ROOMS_OF[package]} | OUTSIDE_ROOMS[package]


@pytest.mark.parametrize("package", SOURCES)
def test_imports_go_one_way(package):
    """The core and the kernels import no package, plugins what their shelf may, methods no other method."""
    rules = [rule for module, file in modules(package) for rule in broken_rules(module, file.read_text())]

    assert not rules, "\n".join(rules)


@pytest.mark.parametrize(("importer", "other"), CROSSINGS)
def test_a_crossing_is_in_use(importer, other):
    names = {name.split(".")[0] for module, file in modules(importer) for name in imports(file.read_text(), module)}

    assert other in names


def circle(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Modules that import each other in turn, the first one again at the end; empty where there are none."""
    done: set[str] = set()

    def visit(path: list[str]) -> list[str]:
        for name in sorted(graph[path[-1]]):
            if name in path:
                return [*path[path.index(name) :], name]
            if name not in done and (cycle := visit([*path, name])):
                return cycle
        done.add(path[-1])
        return []

    return next((cycle for name in sorted(graph) if name not in done and (cycle := visit([name]))), [])


@pytest.mark.parametrize("package", SOURCES)
def test_modules_do_not_import_each_other_in_a_circle(package):
    """Imports inside functions and for types included."""
    files = dict(modules(package))
    graph = {name: (imports(file.read_text(), name) - {name}) & files.keys() for name, file in files.items()}

    assert not circle(graph), " -> ".join(circle(graph))


def test_a_planted_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert not circle({"a": {"b", "c"}, "b": {"c"}, "c": set()})


TRAIN = ("options", "output", "data", "heads", "init", "training", "command")
"""Files and folders of spec_train, from the ground up: each imports only those before it."""


def test_imports_of_spec_train_point_down():
    above = [
        f"{module} imports {name}"
        for module, file in modules("spec_train")
        for name in sorted(imports(file.read_text(), module))
        if module.count(".") and name.startswith("spec_train.")
        and TRAIN.index(name.split(".")[1]) > TRAIN.index(module.split(".")[1])
    ]  # fmt: skip

    assert not above, "\n".join(above)


PLANTED = {
    "core-imports-a-method": ("spec_core.loop.run", "import spec_methods.ngram"),
    "core-imports-kernels-inside-a-function": ("spec_core.loop.run", "def f():\n    from spec_kernels import model"),
    "core-imports-gguf": ("spec_core.assembly.loading", "import gguf"),
    "kernels-import-the-core": ("spec_kernels.model.build", "from spec_core import Step"),
    "operators-import-modules": ("spec_kernels.ops.norm.reference", "from spec_kernels.model import build"),
    "operators-import-modules-relatively": ("spec_kernels.ops.norm.reference", "from ...model import build"),
    "triton-in-a-reference": ("spec_kernels.ops.norm.reference", "import triton.language as tl"),
    "triton-in-the-model": ("spec_kernels.model.build", "import triton"),
    "triton-beside-the-gpu": ("spec_kernels.gpus.choice", "import triton"),
    "core-imports-a-chooser": ("spec_core.sampling.device", "from spec_kernels.gpu.choice import DeviceChoice"),
    "method-imports-what-is-not-public": ("spec_methods.ngram", "from spec_kernels.model.head import PREFIX"),
    "method-imports-a-target": ("spec_methods.ngram", "from spec_targets.runtime import load"),
    "method-imports-a-method": ("spec_methods.ngram", "from spec_methods.draft_model import state"),
    "method-imports-a-method-relatively": ("spec_methods.ngram", "from .draft_model import state"),
    "target-imports-a-method": ("spec_targets.runtime.hf_target", "import spec_methods"),
    "target-imports-transformers": ("spec_targets.runtime.plan", "if True:\n    import transformers"),
    "core-imports-the-server": ("spec_core.loop.run", "import spec_serve.engine"),
    "core-imports-what-servers-need": ("spec_core.commands", "def f():\n    from pydantic import BaseModel"),
    "rollback-imports-a-method": ("spec_rollback.gdn_rollback", "from spec_methods import ngram"),
    "model-imports-a-command": ("spec_targets.recognise", "from spec_commands import common"),
    "command-imports-a-command": ("spec_compare.figures.table", "from spec_cli import show"),
    "command-imports-the-server": ("spec_cli.generate", "from spec_serve import settings"),
    "server-imports-ray": ("spec_serve.engine", "import ray"),
    "compare-imports-a-method": ("spec_compare.figures.table", "from spec_methods import ngram"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_import_is_found(name):
    """The test above can fail: each rule is broken once."""
    module, source = PLANTED[name]

    assert broken_rules(module, source)


def test_allowed_imports_are_not_found():
    """It does not fail for allowed imports."""
    for module, source in {
        "spec_methods.ngram": "from spec_core import Step\nimport spec_kernels.drafting",
        "spec_methods.draft_model.state": "from spec_methods.draft_model.vocabulary import Same\nfrom . import x",
        "spec_kernels.model.reference": "from spec_kernels.ops import norm",
        "spec_kernels.ops.device_function": "import triton",
        "spec_kernels.gpu.choice.kernels": "import triton\nfrom spec_kernels.gpu.launch import start_next",
        "spec_targets.pictures.tower": "import transformers",
        "spec_ray.serving": "from ray import serve",
        "spec_core.loop.run": "import torch\nfrom spec_core.contract.step import Step",
    }.items():
        assert not broken_rules(module, source)


def test_the_core_names_no_method():
    """The core names no method, model or device; it reads capabilities that plugins declare."""
    named = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for module, file in modules("spec_core")
        if not module.startswith("spec_core.testing")
        for match in METHOD_NAMES.finditer(file.read_text())
    ]

    assert not named, "\n".join(named)


@pytest.mark.parametrize("text", ["ngram", "an EAGLE head", "if name == 'mtp':", "draft_model", "draft-model", "gdn"])
def test_a_planted_name_is_found(text):
    """Whole words, in any case; parts of other words are not names."""
    assert METHOD_NAMES.search(text)
    assert not METHOD_NAMES.search("ngrams_of smtp draft_max models gdnx eagles")


def statements(source: str) -> list[str]:
    """Hookspecs whose body is more than a docstring."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(d, ast.Name) and d.id == "hookspec" for d in node.decorator_list)
        and not (len(node.body) == 1 and ast.get_docstring(node))
    ]


def test_hookspecs_are_docstrings_and_nothing_else():
    """The file is the manual: five hooks, no statement in a body, no default on an argument."""
    source = (ROOT / "spec_core" / "hookspecs.py").read_text()
    hooks = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and any(getattr(d, "id", "") == "hookspec" for d in node.decorator_list)
    ]

    assert [node.name for node in hooks] == ["compat", "draft", "accept", "rollback", "process"]
    assert not statements(source)
    assert not any(node.args.defaults or node.args.kwonlyargs for node in hooks)
    assert statements('@hookspec\ndef draft(step):\n    """Doc."""\n    return None') == ["draft"]
    assert statements("@hookspec\ndef draft(step): ...") == ["draft"]


def too_long(source: str) -> bool:
    """Files that are too long and have no reason in the first ten lines: a line with ``length:``."""
    lines = source.splitlines()
    return len(lines) >= LONGEST and not any("length:" in line.lower() for line in lines[:10])


@pytest.mark.parametrize("package", SOURCES)
def test_files_are_short_or_say_why_not(package):
    """Under 400 lines, or a reason at the top."""
    assert not [str(file.relative_to(ROOT)) for _, file in modules(package) if too_long(file.read_text())]


def test_a_long_file_is_found():
    """With a reason it may stay."""
    assert too_long("x = 1\n" * 400)
    assert not too_long(
        '"""Tables of the format.\n\nLength: one table of the format, not to be torn apart."""\n' + "x\n" * 500
    )
    assert not too_long("x = 1\n" * 399)


def test_no_two_files_of_tests_have_one_name():
    """pytest imports them by their names alone and stops at the second one."""
    names = Counter(file.name for file in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name, count in names.items() if count > 1]


@pytest.mark.parametrize(
    "statement",
    [
        "import spec_core",
        "import spec_core.hookspecs, spec_core.toolkit, spec_core.commands",
        "from spec_core import CONTRACT, hookimpl",
    ],
)
def test_importing_the_core_loads_no_torch(statement):
    """``spec --help`` and a plugin's metadata stay quick."""
    heavy = "torch", "numpy", "gguf", "transformers", "triton"
    code = f"{statement}\nimport sys\nprint([m for m in {heavy} if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)

    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_nothing_points_outside_the_project():
    """No path of the machine it was made on, and nothing of its neighbours but optional vectors for tests."""
    paths = []
    for folder in (*SOURCES.values(), ROOT / "docs", ROOT / "benchmarks", ROOT / "tests"):
        for file in folder.rglob("*"):
            if file.suffix in {".py", ".md", ".toml", ".c", ".h", ".json"} and file != Path(__file__):
                text = file.read_text(errors="replace")
                here = "/work/" in text or ("../shared" in text and "golden" not in text)
                paths += [str(file.relative_to(ROOT))] if here else []

    assert not paths


def test_nothing_but_the_server_knows_of_it():
    """Neither by its name, nor by what it speaks."""
    lines = [
        f"{module}: {match[0]}"
        for package in OURS - {"spec_serve", "spec_ray"}
        for module, file in modules(package)
        for match in re.finditer(r"\bspec_serve\b|\bhttps?\.server\b|\bFastAPI\b|\bOpenAPI\b", file.read_text())
    ]

    assert not lines, "\n".join(lines)


def test_the_core_names_no_format_of_targets():
    """Targets recognise locations: the code that loads them contains no scheme."""
    lines = [
        f"{module}: {match[0]}"
        for module, file in modules("spec_core")
        if module.startswith(("spec_core.assembly", "spec_core.loop"))
        for match in re.finditer(r"\b(gguf|hf|zoo|safetensors)\b", file.read_text(), re.IGNORECASE)
    ]

    assert not lines, "\n".join(lines)


@pytest.mark.skipif(native.module is None, reason="without the C form of the choice a step enters other files")
@pytest.mark.parametrize("method", METHODS)
def test_the_page_says_how_many_files_a_decoding_step_enters(method):
    files = files_entered(method)
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")

    assert f"| `{method}` | {len(files)} | {len(of_the_core(files))} |" in text, "\n".join(files)


def test_text_reaches_a_terminal_through_one_module():
    """What prints a stranger's text shows its control characters: ``spec_commands.printing`` does, for all commands."""
    raw = {
        "spec_commands.printing",
        "spec_cli.watch",
        "spec_cli.show",
        "spec_engines.vllm.command",
        "spec_engines.sglang.command",
    }
    lines = [
        f"{module}: {match[0]}"
        for package in OURS
        for module, file in modules(package)
        for match in re.finditer(r"\bclick\.echo\(|\bfrom rich\.text import|(?<![\w.])print\(", file.read_text("utf-8"))
        if module not in raw
    ]

    assert not lines, "\n".join(lines)
