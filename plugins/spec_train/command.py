"""The command ``spec train``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import click
from spec_cli import common

from spec_core.errors import UsageError


def temperatures(context: click.Context, option: click.Parameter, text: str) -> tuple[float, ...]:
    """Numbers of at least 0, with commas between them."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 <= t < math.inf for t in found):
        raise click.BadParameter(f"{text!r} is no list of numbers of at least 0, such as 0,0.8")
    return found


DATA = [
    click.option("--data", type=click.Path(path_type=Path), help="JSONL of texts or prompts; zoo models bring texts."),
    click.option(
        "--generate",
        type=click.IntRange(0),
        help="Prompts that the target answers first, to learn from; 4000 where it brings prompts, else 0.",
    ),
    click.option("--answer", type=click.IntRange(8), default=96, show_default=True, help="Most tokens of an answer."),
    click.option(
        "--temperature",
        default="0",
        show_default=True,
        callback=temperatures,
        help="Of these answers; of several, 0,0.8, each answer has one.",
    ),
    click.option(
        "--held-out",
        "held_out",
        type=click.IntRange(1),
        default=40,
        show_default=True,
        help="Most prompts it is tried on.",
    ),
]
COURSE = [
    click.option("--minutes", type=click.FloatRange(0, min_open=True), help="How long; the default is 20."),
    click.option("--steps", type=click.IntRange(1), help="How many steps instead; the same steps give the same head."),
    click.option("--batch", type=click.IntRange(1), default=8, show_default=True, help="Rows of a step."),
    click.option("--length", type=click.IntRange(8), default=512, show_default=True, help="Most tokens of a row."),
    click.option(
        "--lr", type=click.FloatRange(0, 1000, min_open=True), help="Learning rate; the default goes by the width."
    ),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True),
]
HEAD = [
    click.option("--out", type=click.Path(path_type=Path), required=True, help="The file or directory of the head."),
    click.option(
        "--type",
        "stored",
        type=click.Choice(["f32", "f16", "bf16", "q8_0"]),
        default="f32",
        show_default=True,
        help="Of its matrices.",
    ),
    click.option(
        "--from", "first", type=click.Path(path_type=Path), help="A head to begin with, of the same sizes and sources."
    ),
    click.option("--sources", help="Hidden states it reads, 2,5,7: the input of block 2 and so on."),
    click.option("--heads", type=click.IntRange(1), help="Attention heads."),
    click.option("--ff", type=click.IntRange(1), help="Width of the feed-forward layer."),
    click.option(
        "--draft-vocab",
        "draft_vocab",
        type=click.IntRange(1),
        help="Only the N most frequent tokens can be drafted; of more than 16384 the default is a quarter.",
    ),
]


OWN = (
    "data", "generate", "answer", "temperature", "held_out", "minutes", "steps", "batch", "length", "lr", "seed",
    "out", "stored", "first", "sources", "heads", "ff", "draft_vocab", "layout",
)  # fmt: skip
"""What is no setting of the core."""


@click.group()
def train() -> None:
    """Train a draft head for a model, from its own hidden states."""


@train.command()
@common.add(common.MODEL, DATA, COURSE, HEAD)
@click.option(
    "--format", "layout", type=click.Choice(["gguf", "speculators", "safeailab"]), default="gguf", show_default=True
)
@click.option(
    "--depth", type=click.IntRange(1, 16), default=4, show_default=True, help="Steps it is unrolled: drafts in a row."
)
@click.option(
    "--norm-before-residual/--no-norm-before-residual",
    "norm_before_residual",
    default=True,
    show_default=True,
    help="The stream begins with the normed feature.",
)
def eagle3(**flags: Any) -> None:
    """A head that drafts token by token from three hidden states (EAGLE-3).

    It is tried on held-out prompts ten times; what it would bring, tokens per step, is printed with the curve of its
    loss. Interrupted, it goes on where it was when the command is given again.
    """
    _trained("eagle3", flags)


@train.command()
@common.add(common.MODEL, DATA, COURSE, HEAD)
@click.option(
    "--format", "layout", type=click.Choice(["gguf", "speculators", "z-lab"]), default="gguf", show_default=True
)
@click.option("--layers", type=click.IntRange(1, 64), default=2, show_default=True)
@click.option(
    "--block", type=click.IntRange(2, 64), default=8, show_default=True, help="Tokens of a block; it drafts one less."
)
@click.option(
    "--mask", type=click.IntRange(0), help="Token that stands for an unknown one; the default is one that no text has."
)
def dflash(**flags: Any) -> None:
    """A head that drafts a block in one forward (DFlash).

    It is tried on held-out prompts ten times; what it would bring, tokens per step, is printed with the curve of its
    loss. Interrupted, it goes on where it was when the command is given again.
    """
    _trained("dflash", flags)


def _trained(kind: Literal["eagle3", "dflash"], flags: dict[str, Any]) -> None:
    """Check what can be checked before a model is loaded, then train."""
    own = (*OWN, *(("depth", "norm_before_residual") if kind == "eagle3" else ("layers", "block", "mask")))
    given = common.take(flags, *own)
    if given["minutes"] and given["steps"]:
        raise UsageError("--minutes and --steps were both given", hint="give one of them")
    if given["stored"] == "q8_0" and given["layout"] != "gguf":
        raise UsageError(f"--type q8_0 with --format {given['layout']}", hint="q8_0 is a type of GGUF files")
    if given["sources"] is not None:
        given["sources"] = common.numbers(given["sources"], "--sources", "hidden states")

    from spec_train import place
    from spec_train.training import train_head

    with place.taken(given["out"]):
        try:
            train_head(kind, common.target_of(common.settings_of(flags)), **given)
        except KeyboardInterrupt:
            common.note(f"stopped: the same command goes on from what lies beside {given['out']}")
            raise
