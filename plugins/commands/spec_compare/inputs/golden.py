"""Golden acceptance lengths of InferenceX: YAML of the form {model: {thinking_on: {draft length: tokens per step}}}."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import attrs

from spec_core.errors import UsageError, error_message, quote_value

MODES = ("on", "off")
"""Thinking modes; a file names them ``thinking_on`` and ``thinking_off``."""
EXTRA = "pip install 'spec-core[yaml]'"
EXAMPLE = "write MODEL:, below it thinking_on:, and below that lines such as 3: 2.52"
LARGEST = 1 << 20
"""Max bytes of a file."""


@attrs.frozen
class GoldenCurve:
    """Mean acceptance lengths of a model. lengths: {draft length: tokens per step with a draft}, rising.

    over_all_steps: the same over all steps, those without a draft too; empty if the file does not have them.
    """

    model: str
    lengths: dict[int, float]
    over_all_steps: dict[int, float] = attrs.field(factory=dict)

    @property
    def rule_settings(self) -> dict[int, dict[str, str]]:
        """{draft length: settings of a rule that makes what was measured}."""
        if self.over_all_steps:
            return {k: {"length": f"{one:g}", "all_steps": "true"} for k, one in self.over_all_steps.items()}
        return {k: {"length": f"{one:g}"} for k, one in self.lengths.items()}


def require_yaml() -> Any:
    """The module of PyYAML. Raises UsageError if it is not installed."""
    try:
        import yaml
    except ImportError as error:
        raise UsageError("golden acceptance lengths need PyYAML, which is not installed", hint=EXTRA) from error
    return yaml


def read_golden(path: Path, thinking: str) -> GoldenCurve:
    """The lengths of a file for one thinking mode. Raises UsageError that says what is wrong."""
    content = _load(path)
    if not isinstance(content, dict) or len(content) != 1:
        raise UsageError(f"{path} does not name one model", hint=EXAMPLE)
    ((model, modes),) = content.items()
    if not isinstance(modes, dict) or not modes:
        raise UsageError(f"{path}: {quote_value(model)} has no thinking modes", hint=EXAMPLE)
    if (name := mode_name(thinking)) not in modes:
        listed = ", ".join(map(str, modes))
        raise UsageError(f"{path} has no {name}", hint=f"it has {listed}; pass --thinking on or off")
    over_all = modes.get(all_steps_name(thinking))
    return GoldenCurve(str(model), _lengths(path, modes[name]), {} if over_all is None else _lengths(path, over_all))


def mode_name(thinking: str) -> str:
    """The key of a thinking mode in a file."""
    return f"thinking_{thinking}"


def all_steps_name(thinking: str) -> str:
    """The key of the lengths over all steps: InferenceX's files have those over steps with a draft alone."""
    return f"{mode_name(thinking)}_over_all_steps"


def _load(path: Path) -> Any:
    yaml = require_yaml()
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise UsageError(f"{path} is larger than {LARGEST >> 20} MB", hint=EXAMPLE)
        return yaml.safe_load(data)
    except OSError as error:
        raise UsageError(f"{path}: {error_message(error)}", hint="pass a YAML file") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())[:120]}", hint=EXAMPLE) from error


def _lengths(path: Path, mode: Any) -> dict[int, float]:
    if not isinstance(mode, dict) or not mode:
        raise UsageError(f"{path}: a thinking mode has no draft lengths", hint=EXAMPLE)
    return dict(sorted(_length_of(path, drafted, length) for drafted, length in mode.items()))


def _length_of(path: Path, drafted: Any, length: Any) -> tuple[int, float]:
    """A draft of k tokens gives 1 to k + 1 tokens per step."""
    if type(drafted) is not int or drafted < 1:
        raise UsageError(f"{path}: {quote_value(drafted)} is not a draft length", hint=EXAMPLE)
    try:
        value = math.nan if isinstance(length, bool) else float(length)
    except (TypeError, ValueError):
        value = math.nan
    if not 1.0 <= value <= drafted + 1:
        raise UsageError(
            f"{path}: {quote_value(length)} is no acceptance length of drafts of {drafted} tokens",
            hint=f"give tokens per step from 1 to {drafted + 1}, the target's own token included",
        )
    return drafted, value
