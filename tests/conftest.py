"""One thread per test process: several processes run in parallel, and small models gain nothing from more threads."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spec_core.lazy import call_before_torch

# Also where the environment forbids it, as images do: every worker would rewrite the assertions of all files anew, and
# every process that a test starts compile what it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("PYTEST_ADDOPTS", None)  # they are for this run; tests start others
# Both are read when torch is imported: how many threads there are, and how they wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
call_before_torch()

import torch  # noqa: E402
from spec_kernels import native  # noqa: E402

from spec_core import UsageError  # noqa: E402
from tests.support.installed import Environment, build_wheel, environment  # noqa: E402
from tests.support.ours import without_strangers  # noqa: E402

# Read when triton is imported, by whomever: kernels run in its interpreter where there is no device for them.
os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")


VARIANTS = 3
QUICK_LEAVES = {"slow", "compiles"}
RELEASE = "release"
STRANGERS = Path(__file__).parent / "out_of_tree"


def pytest_addoption(parser):
    parser.addoption("--misbehave", action="store_true", help="run everything on a product that sums badly on purpose")
    parser.addoption("--quick", action="store_true", help=f"{VARIANTS} variants of a test, and no slow one")
    parser.addoption("--variants", type=int, help="max variants of a test, two or more")
    parser.addoption("--release", action="store_true", help="everything: also tests that only releases need")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """What only releases need is left out without ``--release``, or ``-m`` with that word.

    ``--quick`` keeps the first, the last and one other case of each parametrised test, also of the kit's tests.
    Without both, a test marked ``repeats(n)`` runs n of its cases. Cases that ``-k`` and ``-m`` deselect do not count.
    """
    if not config.getoption("--release") and RELEASE not in config.getoption("markexpr"):
        keep(config, items, [item for item in items if RELEASE not in marks(item)])
    items[:] = deal(items)
    if config.getoption("--quick"):
        keep(config, items, [item for item in items if not QUICK_LEAVES & marks(item)])
    if count := config.getoption("--variants") or (VARIANTS if config.getoption("--quick") else None):
        keep(config, items, limit_variants(items, lambda item: count))
    elif not config.getoption("--release"):
        keep(config, items, limit_variants(items, marked_count))


def limit_variants(items: list[pytest.Item], count: Callable[[pytest.Item], int | None]) -> list[pytest.Item]:
    """The items, of every test function only so many as ``count`` says; None means all."""
    variants: dict[object, list[pytest.Item]] = {}
    for item in items:
        variants.setdefault(getattr(item, "function", item), []).append(item)
    kept = {item for each in variants.values() for item in spread(each, count(each[0]))}
    return [item for item in items if item in kept]


def marked_count(item: pytest.Item) -> int | None:
    """The number of its marker ``repeats``; packages of strangers share the tests of a kit."""
    if STRANGERS in item.path.parents and item.function.__module__.startswith("spec_core.testing"):
        return VARIANTS
    mark = item.get_closest_marker("repeats")
    return None if mark is None else mark.args[0]


def keep(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    """Deselect all others."""
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept


def deal(items: list[pytest.Item]) -> list[pytest.Item]:
    """Each worker runs its slow tests first, so that all workers end at about the same time."""
    shares = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if "slow" in marks(item)]
    short = [item for item in items if "slow" not in marks(item)]
    part = lambda of, i: of[len(of) * i // shares : len(of) * (i + 1) // shares]
    return [item for i in range(shares) for kind in (slow, short) for item in part(kind, i)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    return (yield from native_or_skipped())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from native_or_skipped())


def native_or_skipped() -> Iterator[Any]:
    """Skip a test or fixture that needs native kernels if the extension was not built."""
    try:
        return (yield)
    except UsageError as error:
        if (reason := native.problem()) is None or reason not in error.reason:
            raise
        pytest.skip(reason)


def marks(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}


def spread(variants: list[pytest.Item], count: int | None) -> list[pytest.Item]:
    """So many of them, among them the first and the last."""
    if count is None or len(variants) <= count:
        return variants
    if count == 1:
        return variants[:1]
    last = len(variants) - 1
    return [variants[i] for i in sorted({round(k * last / (count - 1)) for k in range(count)})]


@pytest.fixture(scope="session", autouse=True)
def product(request):
    """With ``--misbehave`` all tests use a matrix product that sums small and odd sizes in another order."""
    if not request.config.getoption("--misbehave"):
        yield
        return
    from tests.support.misbehaving import misbehaving

    with misbehaving():
        yield


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The built wheel; all processes of a test run share one."""
    base = tmp_path_factory.getbasetemp()
    return build_wheel((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "wheel")


@pytest.fixture(scope="session")
def stranger(wheel, tmp_path_factory) -> Environment:
    """An environment with the installed wheel and nothing else of this project."""
    return environment(tmp_path_factory.mktemp("stranger") / "env", wheel)


@pytest.fixture(scope="session", autouse=True)
def only_ours() -> Iterator[None]:
    """Plugins of other packages in the environment are not found."""
    with without_strangers():
        yield


@pytest.fixture(params=["native", "python"])
def form_of_choice(request, monkeypatch):
    """Runs a test with both forms of the choice of a token."""
    from spec_core.sampling import native

    if request.param == "python":
        monkeypatch.setattr(native, "module", None)
    elif native.module is None:
        pytest.skip("needs the extension")
