"""Logits and hidden states of tokens, as tensors with names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from spec_core import Target


def evaluate_tokens(target: Target, tokens: list[int], hidden: bool) -> dict[str, Tensor]:
    """One forward over the tokens, from position 0."""
    from spec_core import Needs
    from spec_core.toolkit import evaluate

    layers = frozenset(range(target.info.layers + 1) if hidden else ())
    output = evaluate(target, tokens, Needs(hidden=layers, final=hidden, all_logits=True))
    named = {"logits": output.logits} | {f"hidden.{i}": h for i, h in output.hidden.items()}
    if output.final is not None:
        named["hidden.final"] = output.final
    return {name: tensor.float().cpu().clone() for name, tensor in named.items()}
