"""Methods of this project as drafters inside SGLang: SGLang owns the loop, a Host runs the plugins.

``spec sglang serve DIRECTORY --method ngram`` checks the methods against the model, then starts SGLang's own server.
In Python ``sglang.Engine(model_path=DIRECTORY, **options(["ngram"]))``. SGLang finds ``entry.register`` by its entry
point in every process. ``interface`` is the only module that knows its insides, and versions that are not known are
refused by name.

Importing this module imports neither torch nor SGLang.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from spec_core.errors import UsageError
from spec_engines.declared import Engine

ENGINE = Engine(
    scheme="SGLang",
    extra="sglang",
    models="directories that SGLang loads, of architectures that transformers knows too",
    devices="none tried: written from the sources of SGLang",
    logits="yes",
    hidden="no",
    trees="no",
    recurrent="SGLang's own",
    weights="none",
    rules="SGLang's own: drafts are judged as point masses",
    exact="no: libraries sum each shape of a product in their own order",
    serves={"logits": True},
    target=False,
)
KNOWN = ("0.5.23",)
"""Versions whose workers ``interface`` was written for, from their sources: SGLang has not been run with it."""
ALGORITHM = "SPEC_CORE"
"""Value of ``--speculative-algorithm``."""
VARIABLE = "SPEC_SGLANG"
"""The environment variable with the methods, as JSON: SGLang's processes inherit it."""
DRAFT_MAX = 8
"""Longest draft if none is set; SGLang evaluates one row more for every request in every step."""


def check_installed() -> str:
    """The installed version. Raises UsageError if SGLang is missing or of another version."""
    try:
        installed = version("sglang")
    except PackageNotFoundError:
        raise UsageError(
            "SGLang is not installed", hint=f"pip install 'sglang=={KNOWN[-1]}', in an environment of its own"
        ) from None
    if installed.partition("+")[0] not in KNOWN:
        raise UsageError(
            f"SGLang is {installed}; its workers are known of {', '.join(KNOWN)}",
            hint=f"install one of these: pip install 'sglang=={KNOWN[-1]}'",
        )
    return installed


def options(
    methods: Iterable[str],
    draft_max: int = DRAFT_MAX,
    plugins: Mapping[str, Mapping[str, Any]] | None = None,
    control: str | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Arguments of ``sglang.Engine`` with which these methods draft; writes their settings to the environment.

    methods: as ``--method`` of ``spec``: NAME, NAME=FILE or NAME:key=value, in the order in which they are asked.
    draft_max: longest draft. plugins: {plugin: {setting: value}}. control: a controller's name. settings: of a run,
    such as ``on_error``.
    """
    spec = {"methods": list(methods), "plugins": dict(plugins or {}), "control": control, "settings": settings}
    os.environ[VARIABLE] = json.dumps(spec)
    return {
        "speculative_algorithm": ALGORITHM,
        "speculative_num_draft_tokens": draft_max + 1,
        "disable_overlap_schedule": True,
    }


def config() -> dict[str, Any]:
    """The methods and their settings in the environment. Raises UsageError for none."""
    text = os.environ.get(VARIABLE)
    if not text:
        raise UsageError(
            f"the algorithm {ALGORITHM} was chosen, and {VARIABLE} names no methods",
            hint='set it to JSON such as {"methods": ["ngram"]}, or start with `spec sglang serve`',
        )
    try:
        spec = json.loads(text)
    except ValueError:
        spec = None
    if not isinstance(spec, dict):
        raise UsageError(f"{VARIABLE} is {text[:80]!r}, JSON was needed", hint='such as {"methods": ["ngram"]}')
    return spec
