"""``spec score``: logits and hidden states of given tokens, to compare a model with another implementation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spec_cli import common

if TYPE_CHECKING:
    from torch import Tensor

    from spec_core import Target


@click.command()
@common.add(common.MODEL)
@click.option("--tokens", required=True, help="Token ids: 1,2,3.")
@click.option("--hidden", is_flag=True, help="Write hidden states too.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="A safetensors file.")
def score(tokens: str, hidden: bool, out: Path, **flags: Any) -> None:
    """Write the logits of every token, and its hidden states.

    ``logits`` [T, V]; with --hidden also ``hidden.0`` ... ``hidden.L`` and ``hidden.final`` [T, D], float32. hidden.i
    is the residual stream entering block i, i = L after the last; hidden.final is after the final norm.
    """
    settings = common.settings_of(flags)
    ids = common.token_ids(tokens)
    common.save(evaluate_tokens(common.target_of(settings), ids, hidden), out)


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
