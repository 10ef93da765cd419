"""The command ``spec train``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
from spec_commands import common
from spec_commands.help import Group

from spec_core.errors import UsageError
from spec_train.options import (
    DataOptions,
    DFlashOptions,
    DSparkOptions,
    Eagle3Options,
    NewHeadOptions,
    OutputOptions,
    ScheduleOptions,
    TrainOptions,
    check_layout,
    names,
)


def temperatures(context: click.Context, option: click.Parameter, text: str) -> tuple[float, ...]:
    """Numbers of at least 0, separated by commas."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or not all(0 <= t < math.inf for t in values):
        raise click.BadParameter(f"{text!r} is not a list of numbers of at least 0, such as 0,0.8")
    return values


DATA = [
    click.option("--data", type=click.Path(path_type=Path), help="JSONL of texts or prompts; zoo models provide some."),
    click.option(
        "--generate",
        type=click.IntRange(0),
        help="Prompts that the target answers first, to train on the answers; 4000 if it provides prompts, else 0.",
    ),
    click.option("--answer", type=click.IntRange(8), default=96, show_default=True, help="Max tokens of an answer."),
    click.option(
        "--temperature",
        default="0",
        show_default=True,
        callback=temperatures,
        help="Temperature of the answers; of several, 0,0.8, one is drawn for each answer.",
    ),
    click.option(
        "--held-out",
        "held_out",
        type=click.IntRange(1),
        default=40,
        show_default=True,
        help="Max prompts of the evaluation.",
    ),
]
SCHEDULE = [
    click.option(
        "--minutes",
        type=click.FloatRange(0, min_open=True),
        help="Duration of the training itself, default 20; the answers before it take up to half of it in addition.",
    ),
    click.option(
        "--steps",
        type=click.IntRange(1),
        help="Steps, in place of a duration; the same steps give the same head.",
    ),
    click.option("--batch", type=click.IntRange(1), default=8, show_default=True, help="Texts per step."),
    click.option("--length", type=click.IntRange(8), default=512, show_default=True, help="Max tokens of a text."),
    click.option(
        "--lr", type=click.FloatRange(0, 1000, min_open=True), help="Learning rate; the default depends on the width."
    ),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True),
]
OUTPUT = [
    click.option("--out", type=click.Path(path_type=Path), required=True, help="File or directory of the head."),
    click.option(
        "--type",
        "stored",
        type=click.Choice(["f32", "f16", "bf16", "q8_0"]),
        default="f32",
        show_default=True,
        help="Type of its matrices.",
    ),
    click.option("--log", type=click.Path(path_type=Path), help="File of the losses and evaluations, as JSON lines."),
    click.option(
        "--from", "first", type=click.Path(path_type=Path), help="A head to start from, of the same sizes and sources."
    ),
]
SIZES = [
    click.option("--sources", help="Hidden states that the head reads: 2,5,7 are the inputs of blocks 2, 5 and 7."),
    click.option("--heads", type=click.IntRange(1), help="Attention heads."),
    click.option("--ff", type=click.IntRange(1), help="Width of the feed-forward layer."),
    click.option(
        "--draft-vocab",
        "draft_vocab",
        type=click.IntRange(1),
        help="Draft only the N most frequent tokens; the default for 16384 tokens and more is a quarter of them.",
    ),
]


@click.group(cls=Group)
def train() -> None:
    """Train a draft head for a model, from its own hidden states."""


@train.command()
@common.options(common.MODEL, DATA, SCHEDULE, OUTPUT, SIZES)
@click.option(
    "--format", "layout", type=click.Choice(["gguf", "speculators", "safeailab"]), default="gguf", show_default=True
)
@click.option(
    "--depth",
    type=click.IntRange(1, 16),
    default=4,
    show_default=True,
    help="Drafted tokens that training unrolls.",
)
@click.option(
    "--norm-before-residual/--no-norm-before-residual",
    "norm_before_residual",
    default=True,
    show_default=True,
    help="The residual stream starts with the normed feature.",
)
def eagle3(**flags: Any) -> None:
    """A head that drafts token by token from three hidden states (EAGLE-3).

    It is evaluated ten times on held-out prompts; the tokens per step it would reach are printed, with the curve of its
    loss. Run the command again to continue an interrupted training.
    """
    _train(Eagle3Options, flags)


@train.command()
@common.options(common.MODEL, DATA, SCHEDULE, OUTPUT, SIZES)
@click.option(
    "--format", "layout", type=click.Choice(["gguf", "speculators", "z-lab"]), default="gguf", show_default=True
)
@click.option("--layers", type=click.IntRange(1, 64), default=2, show_default=True)
@click.option(
    "--block", type=click.IntRange(2, 64), default=8, show_default=True, help="Tokens of a block; it drafts one fewer."
)
@click.option("--mask", type=click.IntRange(0), help="Id of the mask token; the default is one that occurs in no text.")
def dflash(**flags: Any) -> None:
    """A head that drafts a block in one forward (DFlash).

    It is evaluated ten times on held-out prompts; the tokens per step it would reach are printed, with the curve of its
    loss. Run the command again to continue an interrupted training.
    """
    _train(DFlashOptions, flags)


@train.command()
@common.options(common.MODEL, DATA, SCHEDULE, OUTPUT)
@click.option("--head", "base", help="The DFlash head that is extended; the default is the target's own.")
@click.option(
    "--rank", type=click.IntRange(1, 4096), default=64, show_default=True, help="Rank of the Markov matrices."
)
@click.option("--format", "layout", type=click.Choice(["gguf", "speculators"]), default="gguf", show_default=True)
def dspark(**flags: Any) -> None:
    """What a trained DFlash head lacks to be a DSpark head: matrices that correct each row by the token before, and a
    confidence head. The layers of the block stay as they are.

    It is evaluated ten times on held-out prompts; the tokens per step it would reach are printed, with the curve of its
    loss. Run the command again to continue an interrupted training.
    """
    _train(DSparkOptions, flags)


def _train(head: type[NewHeadOptions] | type[DSparkOptions], flags: dict[str, Any]) -> None:
    """Check what can be checked before a model is loaded, then train."""
    options = _options(head, flags)
    settings = common.settings_of(flags)

    from spec_train import output
    from spec_train.training.run import TrainingRun

    out = options.output.out
    with output.lock(out):
        try:
            TrainingRun.of(common.load_target(common.describe_model(settings)), options).run()
        except KeyboardInterrupt:
            common.print_note(f"stopped: run the same command again to continue from the files next to {out}")
            raise


def _options(head: type[NewHeadOptions] | type[DSparkOptions], flags: dict[str, Any]) -> TrainOptions:
    """The options of training, taken from the flags; what is left are settings of the core. Raises UsageError."""
    taken = common.pop_flags(flags, *names(DataOptions, ScheduleOptions, OutputOptions, head))
    if taken["minutes"] and taken["steps"]:
        raise UsageError("--minutes and --steps were both passed", hint="pass one of them")
    if taken["stored"] == "q8_0" and taken["layout"] != "gguf":
        raise UsageError(f"--type q8_0 with --format {taken['layout']}", hint="q8_0 is a type of GGUF files")
    check_layout(taken["layout"])
    if taken.get("sources") is not None:
        taken["sources"] = tuple(common.numbers(taken["sources"], "--sources", "hidden states"))
    data, schedule = DataOptions.of(taken), ScheduleOptions.of(taken)
    return TrainOptions(data, schedule, OutputOptions.of(taken), head.of(taken))
