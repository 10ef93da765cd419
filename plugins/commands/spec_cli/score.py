"""``spec score``: logits and hidden states of given tokens, to compare a model with another implementation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from spec_commands import common
from spec_commands.evaluation import evaluate_tokens
from spec_commands.help import Command


@click.command(cls=Command)
@common.options(common.MODEL)
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
    common.save_tensors(evaluate_tokens(common.load_target(common.describe_model(settings)), ids, hidden), out)
