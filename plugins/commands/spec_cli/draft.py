"""``spec draft``: what a method drafts after given tokens, to compare a head with another implementation.

The method drafts in a normal run. All tokens but the last are the prompt, the last is forced to be the first output,
and the method's next proposal is the draft; so a head has read the target's hidden states as in any generation.

All requested tokens are written: a method's thresholds are for speed, and are off here. A setting that makes drafts
shorter declares its disabling value, ``metadata={"off": 0.0}``, and the command sets it to that value
unless the user passed one.

A method shows its logits in one of two ways, both optional:

- ``draft_logits(tokens, n) -> (tokens, logits)``: for a method that needs nothing from the target's forward; it drafts
  all n tokens greedily, whatever its thresholds;
- ``watch``, an attribute that is None by default: set to a function, the method calls ``watch(token, row)`` for every
  token it drafts, with the row [V] of logits it was chosen from.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
from spec_commands import common
from spec_commands.help import Command

from spec_core.commands import DEFAULT, Setting, Settings, find_plugin, import_plugin, name_of
from spec_core.errors import SpecError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from spec_core import Draft, Run

FORCE = 1e9
"""A logit bias that forces a token."""


@click.command(cls=Command)
@common.options(common.MODEL)
@click.option("--method", required=True, metavar="NAME[=FILE]", help="The method that drafts.")
@click.option("--rollback", help="Owner of the recurrent state, if several are installed.")
@click.option("--tokens", required=True, help="The context; its last token is the one not yet evaluated.")
@click.option("-n", "count", type=click.IntRange(1), required=True, help="Tokens to draft.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="A safetensors file.")
def draft(method: str, tokens: str, count: int, out: Path, **flags: Any) -> None:
    """Write a method's greedy draft after the tokens of --tokens, and its logits.

    ``tokens`` [K], int64; ``logits`` [K, V], float32, if the method provides them. Thresholds that cut drafts for speed
    are off unless set by -o; a method may find fewer tokens than requested.
    """
    import torch

    from spec_core import Request
    from spec_core.commands import prompt_tokens

    settings = whole_drafts(common.settings_of(flags), method)
    ids = common.token_ids(tokens)
    if len(ids) < 2:
        raise UsageError(f"the context has {len(ids)} tokens", hint="pass at least two; the last is not yet evaluated")
    run = common.load_run(common.prepare_run(settings, [method]), settings, draft_max=count)
    prompt_tokens(Request(ids), run.target)
    drafted, rows = drafted_by(run, ids, count)
    if not drafted:
        raise SpecError(f"{method} drafts nothing after these tokens", hint="pass more tokens of context")
    tensors = {"tokens": torch.tensor(drafted, dtype=torch.int64)}
    if rows is not None:
        tensors["logits"] = rows.float()
    else:
        common.print_note(f"{method} provides no logits")
    if len(drafted) < count:
        common.print_note(f"{method} drafted {len(drafted)} of {count} tokens")
    common.save_tensors(tensors, out)


def whole_drafts(settings: Settings, method: str) -> Settings:
    """The settings with the method's thresholds off, unless the user passed them."""
    name = name_of(method)
    cls = import_plugin(find_plugin(name))
    own = {f"{name}.{f.name}": f for f in (attrs.fields(cls) if attrs.has(cls) else ())}
    off = {
        name: Setting(name, field.metadata["off"], DEFAULT, field.metadata.get("help", ""))
        for name, field in own.items()
        if "off" in field.metadata
    }
    return Settings({**off, **settings.table})


def drafted_by(run: Run, tokens: list[int], count: int) -> tuple[list[int], Tensor | None]:
    """Tokens and logits [K, V] of a greedy draft after ``tokens``; None without logits."""
    import torch

    plugin = next((c.plugin for c in run.plugins if c.name in run.drafters), None)
    if plugin is None:
        raise UsageError("this plugin drafts nothing", hint="name one that drafts: `spec plugins --hooks`")
    if hasattr(plugin, "draft_logits"):
        return plugin.draft_logits(tokens, count)
    seen: list[Tensor] = []
    if hasattr(plugin, "watch"):
        plugin.watch = lambda token, row: seen.append(row.clone())
    ids = next_draft(run, tokens, count)
    return ids, torch.stack(seen[: len(ids)]) if ids and len(seen) >= len(ids) else None


def ids_of(draft: Draft | None) -> tuple[int, ...]:
    return () if draft is None else draft.ids


def next_draft(run: Run, tokens: list[int], count: int) -> list[int]:
    """The draft of the first step after ``tokens`` were committed."""
    from spec_core import Sampling

    drafts: list[int] = []
    seq = run.submit(
        tokens[:-1], max_tokens=count + 2, sampling=Sampling(logit_bias={tokens[-1]: FORCE}), ignore_eos=True
    )
    while len(seq.tokens) < len(tokens) and seq.finish is None:
        run.step()
    seq.sampling = Sampling()
    run.observe(lambda step: drafts.extend(ids_of(step.part(seq).draft)))
    if seq.finish is None:
        run.step()
    run.cancel(seq)
    return drafts
