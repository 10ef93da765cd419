"""Steps in which one sequence decodes, by torch.compile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import torch

from spec_core import Draft, Part
from spec_core.errors import UsageError
from spec_core.toolkit import forward, open_sequence

if TYPE_CHECKING:
    from spec_engines.transformers.transformers_target import TransformersTarget

PROMPT, DRAFTED = 8, (0, 0, 5, 0, 3, 5, 0, 4, 2)
"""Tokens before the steps that are evaluated when a model is loaded, and the lengths of the drafts in these steps.

Torch compiles one row apart from several, and a cache that was cropped apart from one that was not.
"""


def compile_decoding(target: TransformersTarget) -> None:
    """Compile the model of a target. Raises UsageError if torch cannot compile it here."""
    if not target.kinds.plain:
        raise UsageError(
            f"{target.info.name}: only models whose layers keep all rows are compiled, not those with sliding windows "
            "or recurrent layers",
            hint="load it as transformers:DIRECTORY",
        )
    compiled = torch.compile(target.model.forward, dynamic=True)
    target.caller = attrs.evolve(target.caller, decode=compiled)
    try:
        _evaluate(target)
    except Exception as error:  # torch, its code generator and the C++ compiler may raise anything
        message = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise UsageError(
            f"{target.info.name}: torch.compile failed: {message}",
            hint="install a C++ compiler, or load it as transformers:DIRECTORY",
        ) from error


def _evaluate(target: TransformersTarget) -> None:
    """Steps of every kind, in which each draft is rejected."""
    token = 1 % target.info.vocab
    seq = open_sequence(target)
    try:
        forward(target, [Part(seq, 0, [token] * PROMPT, decides=False)])
        for at, count in enumerate(DRAFTED, PROMPT):
            draft = Draft([token] * count) if count else None
            forward(target, [Part(seq, at, [token], decides=True, draft=draft)])
    finally:
        target.close(seq)
