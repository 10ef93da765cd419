"""``spec draft``: what a method would draft after given tokens, to hold a head against another implementation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spec_core.commands import common
from spec_core.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from spec_core.run import Run


@click.command()
@common.add(common.MODEL)
@click.option("--method", required=True, metavar="NAME[=FILE]", help="The method that drafts.")
@click.option("--tokens", required=True, help="The context; its last token is the one not yet evaluated.")
@click.option("-n", "count", type=click.IntRange(1), required=True, help="Tokens to draft.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="A safetensors file.")
def draft(method: str, tokens: str, count: int, out: Path, **flags: Any) -> None:
    """Write ``tokens`` [K] of a greedy draft, and ``logits`` [K, V] where the method has any.

    A method has logits if its plugin has ``draft_logits(tokens, n) -> (tokens, logits)``; others are asked in a run.
    """
    import torch
    from safetensors.torch import save_file

    settings = common.settings_of(flags)
    run = common.run_of(common.target_of(settings), settings, methods=[method], draft_max=count)
    ids, logits = drafted(run, common.token_ids(tokens), count)
    tensors = {"tokens": torch.tensor(ids, dtype=torch.int64)}
    if logits is None:
        common.note(f"{method} has no logits")
    else:
        tensors["logits"] = logits.float().cpu().contiguous()
    save_file(tensors, out)
    common.note(f"{out}: {', '.join(f'{k} {list(v.shape)}' for k, v in tensors.items())}")


def drafted(run: Run, tokens: list[int], count: int) -> tuple[list[int], Tensor | None]:
    """A greedy draft after ``tokens``, from the plugin itself or from the first step of a run that may draft."""
    if len(tokens) < 2:
        raise UsageError(f"{len(tokens)} tokens of context", mend="give at least two")
    plugin = next(c.plugin for c in run.plugins if c.name in run.drafters)
    if hasattr(plugin, "draft_logits"):
        return plugin.draft_logits(tokens, count)
    return _first_draft(run, tokens, count), None


def _first_draft(run: Run, tokens: list[int], count: int) -> list[int]:
    """Feed all but the last token as the prompt, force the last as output, and look at the next step's draft."""
    from spec_core.sampling import Sampling

    found: list[int] = []
    force = Sampling(logit_bias={tokens[-1]: 1e9})
    seq = run.submit(tokens[:-1], n=count + 2, sampling=force, ignore_eos=True)
    run.observe(lambda step: found.extend(step.part(seq).draft.ids) if not found and step.part(seq).draft else None)
    run.step()
    run.step()
    run.cancel(seq)
    return found
