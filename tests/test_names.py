"""The rules on names in CONTRIBUTING.md: functions are verbs or nouns, and a parameter says what its type is."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {
    path.name: path for path in (ROOT / "spec_core", *ROOT.glob("kernels/spec_*"), *ROOT.glob("plugins/*/spec_*"))
}
NAMED = {**PACKAGES, **{name: ROOT / name for name in ("benchmarks", "tests", "tools")}}
IRREGULAR = frozenset(
    """
    awoken beaten begun bent bitten blown bought broken brought built burnt caught chosen dealt done drawn driven eaten
    fallen felt fought flown forbidden forgiven forgotten frozen given gone got gotten grown had heard held hidden kept
    known laid lain left lent lit lost made meant met misspelt overridden overwritten paid proven rebuilt redrawn
    rewritten ridden risen said seen sent shaken shown shrunk sold sought spelt spent spoken spun stolen stood stuck
    struck sunk swept sworn swollen swung taken taught told torn thought thrown understood undone unheard unknown unseen
    withdrawn won worn woven written
    """.split()
)
"""Past participles that do not end in ``ed``, without verbs and nouns such as ``read`` and ``cut``."""
FREE = frozenset({"bed", "embed", "exceed", "feed", "need", "proceed", "seed", "speed", "succeed"})
"""Words in ``ed`` that are verbs or nouns."""
EMPTY_WORDS = frozenset({"found", "given", "made", "mine", "said", "told", "wanted"})
"""Names that do not say what a local is."""
WITHOUT_NOUN = frozenset(
    """
    adapt add adjust advance allows announce attach begin blame calibrate check choose close collect combine commit
    compute conform connect construct count create cut declares decode defer detokenize divide drafting dump
    edit enter exceeds explain exporting extending fail feed fetch filling finding fit fitting flatten follow
    forget generates grow has inspect interleave join keep learn leave listening loading look lookup measure merge need
    nest observe overwrite pack pad probe quote read reading reads recognise recompute recurs refuse release remove
    rename render repeat replays reserve resize resolve restore resume rotates save schedule seal select serves show
    spell split start starts stop storing take tokenize trim unseal unzip validate visit waiting walk warm write
    again against along available before below beside between exact finite first free identical inexact inside
    largest likeliest longest near nearest newest nothing now of once opaque own perfect plain plainly precise principal
    printable real remaining rest same several shorter slow together unreadable unwritable unwritten weakly whole why
    within without wrong
    """.split()
)
"""Verbs, adjectives and adverbs that do not say of what, as the whole name of a public function.

Without ``load``, ``prepare``, ``describe`` and ``evaluate``, which callers import by these names.
"""
ROLES = frozenset(
    "base before event first follows free last lender model new now op other own plain source view whole".split()
)
"""Words that say which one of several it is, or what it serves for."""
SHORT = {"b": "Builder", "c": "Config", "ctx": "Context", "s": "SequenceRows"}
"""Abbreviations of types that stand in formulas and in lists of operations, as the field writes them."""
SYNONYMS = {
    ("draft", "Target"): "the draft model of a pair of models",
    ("head", "Weight"): "the output matrix of a model, as the field calls it",
    ("proposal", "Kind"): "the argument's published name, that of the field it fills",
    ("request", "Prompt"): "a prompt is one form of a request, which is the argument's published name",
    ("reading", "Found"): "what was read of a text, of a parser's own type",
    ("trainer", "Message"): "a part of the file format, by its name in the format",
    ("normaliser", "Message"): "a part of the file format, by its name in the format",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_participle(name: str) -> bool:
    word = name.strip("_")
    return word in IRREGULAR or (word.endswith("ed") and word.isalpha() and word.islower() and word not in FREE)


def is_property(function: Function) -> bool:
    """Whether it is read as an attribute."""
    return bool(decorators(function) & {"property", "cached_property", "setter"})


def decorators(function: Function) -> set[str]:
    bare = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
    return {getattr(d, "attr", getattr(d, "id", "")) for d in bare}


def participles(source: str) -> list[str]:
    """Functions and methods whose whole name is a past participle; lambdas with a name too."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function) and not is_property(node):
            names.append(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [name for name in names if is_participle(name)]


def empty_locals(source: str) -> list[str]:
    """Locals and parameters of functions with one of ``EMPTY_WORDS`` as their name."""
    nodes = [
        node
        for function in ast.walk(ast.parse(source))
        if isinstance(function, Function | ast.Lambda)
        for node in ast.walk(function)
    ]
    names = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    names += [node.arg for node in nodes if isinstance(node, ast.arg)]
    return sorted(EMPTY_WORDS & {*names})


def nounless_functions(source: str) -> list[str]:
    """Public functions of a module whose name is a verb or an adjective alone; commands, hooks and kernels are not."""
    return [
        node.name
        for node in ast.parse(source).body
        if isinstance(node, Function)
        and node.name in WITHOUT_NOUN
        and not decorators(node) & {"command", "group", "hookimpl", "hookspec", "jit", "plugin_command"}
    ]


def bases_of_classes(sources: Iterator[str]) -> dict[str, set[str]]:
    """Every class with its own bases, by name."""
    classes: dict[str, set[str]] = {}
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                names = {getattr(base, "id", getattr(base, "attr", "")) for base in node.bases}
                classes.setdefault(node.name, set()).update(names)
    return classes


def type_name(annotation: ast.expr | None) -> str | None:
    """The class of an annotation, ``None`` left out; None for a type that is no single class."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        sides = [side for side in (annotation.left, annotation.right) if getattr(side, "value", side) is not None]
        return type_name(sides[0]) if len(sides) == 1 else None
    return getattr(annotation, "attr", getattr(annotation, "id", None))


def words_of(name: str) -> set[str]:
    """The words of a name, in lower case and without a plural's s."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return {word.lower().removesuffix("s") for word in words}


def says_type(name: str, kind: str, classes: dict[str, set[str]]) -> bool:
    """Whether a word of the name is one of the type or of its bases, or begins one with at least three letters."""
    kinds, known = [kind], {kind}
    while kinds:
        of_type = words_of(each := kinds.pop())
        if SHORT.get(name) == each:
            return True
        if any(w in of_type or (len(w) > 2 and any(t.startswith(w) for t in of_type)) for w in words_of(name)):
            return True
        new = classes.get(each, set()) - known
        known |= new
        kinds += new
    return False


def typeless_parameters(source: str, classes: dict[str, set[str]]) -> list[str]:
    """Parameters of one of these classes whose name has no word of it; two of one type are named after their roles."""
    lines = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, Function):
            arguments = function.args
            kinds = {
                argument.arg: kind
                for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
                if (kind := type_name(argument.annotation)) in classes
            }
            count = Counter(kinds.values())
            lines += [
                f"{function.name}({name}: {kind})"
                for name, kind in kinds.items()
                if count[kind] == 1
                and name not in ROLES
                and (name, kind) not in SYNONYMS
                and not says_type(name, kind, classes)
            ]
    return lines


def sources(package: str) -> Iterator[tuple[str, str]]:
    """(module, source) of a package's files."""
    for file in sorted(NAMED[package].rglob("*.py")):
        yield ".".join(file.relative_to(NAMED[package].parent).with_suffix("").parts), file.read_text("utf-8")


@pytest.fixture(scope="module")
def classes() -> dict[str, set[str]]:
    return bases_of_classes(source for package in PACKAGES for _, source in sources(package))


@pytest.mark.parametrize("package", NAMED)
def test_functions_are_verbs_or_nouns_and_locals_say_what_they_are(package):
    lines: list[str] = []
    for module, source in sources(package):
        lines += [f"{module}: def {name}" for name in participles(source)]
        lines += [f"{module}: local {name}" for name in empty_locals(source)]

    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_functions_have_a_noun(package):
    lines = [f"{module}: def {name}" for module, source in sources(package) for name in nounless_functions(source)]

    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("package", PACKAGES)
def test_parameters_carry_a_word_of_their_type(package, classes):
    lines = [
        f"{m}: {parameter}" for m, source in sources(package) for parameter in typeless_parameters(source, classes)
    ]

    assert not lines, "\n".join(lines)


@pytest.mark.parametrize(
    "source",
    [
        "def measured(): ...",
        "async def begun(): ...",
        "class A:\n    def _kept(self): ...",
        "class A:\n    @classmethod\n    def made(cls): ...",
        "def f():\n    def joined(): ...",
        "shared = lambda: 1",
    ],
)
def test_a_planted_participle_is_found(source):
    assert participles(source)


@pytest.mark.parametrize(
    "source",
    [
        "def measure(): ...",
        "def read(): ...",
        "def seed(): ...",
        "def cut(): ...",
        "def kept_tokens(): ...",
        "class A:\n    @property\n    def asked(self): ...",
        "class A:\n    kept = 1",
    ],
)
def test_a_verb_a_noun_and_a_property_are_no_participles(source):
    assert not participles(source)


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    found = 1",
        "def f(wanted): ...",
        "def f(*given): ...",
        "def f():\n    return [mine for mine in range(3)]",
        "def f(x):\n    if made := x: ...",
        "f = lambda said: 1",
        "def f(x):\n    with x as told: ...",
    ],
)
def test_a_planted_empty_local_is_found(source):
    assert empty_locals(source)
    assert not empty_locals("class A:\n    found = 1\n\ndef f(x):\n    return x.found")


@pytest.mark.parametrize("source", ["def write(path): ...", "async def read(): ...", "@cache\ndef nearest(): ..."])
def test_a_planted_function_without_a_noun_is_found(source):
    assert nounless_functions(source)


@pytest.mark.parametrize(
    "source",
    ["def write_rows(): ...", "@hookimpl\ndef commit(): ...", "@click.command()\ndef show(): ...", "def _read(): ..."],
)
def test_a_noun_a_hook_a_command_and_a_private_function_are_none_without_a_noun(source):
    assert not nounless_functions(source)


CLASSES = {"ServerConfig": set(), "Body": {"BaseModel"}, "Chat": {"Body"}, "DraftTree": set()}


@pytest.mark.parametrize(
    "parameter",
    ["terms: ServerConfig", "terms: 'ServerConfig'", "what: base.Chat", "given: DraftTree | None", "*, x: Chat"],
)
def test_a_planted_parameter_without_its_type_is_found(parameter):
    assert typeless_parameters(f"def f({parameter}): ...", CLASSES)
    assert typeless_parameters(f"class A:\n    async def f(self, {parameter}): ...", CLASSES)


@pytest.mark.parametrize(
    "parameters",
    [
        "config: ServerConfig",
        "server_configs: ServerConfig",
        "body: Chat",
        "one: Chat, two: Chat",
        "x: int",
        "plain: DraftTree",
    ],
)
def test_a_type_its_base_a_role_and_a_foreign_type_are_fine(parameters):
    assert not typeless_parameters(f"def f({parameters}): ...", CLASSES)
