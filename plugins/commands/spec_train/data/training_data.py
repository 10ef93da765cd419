"""Data on which a head is trained and evaluated: texts, prompts, and the target's answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
from spec_commands.common import print_note

from spec_core import Target
from spec_core.errors import UsageError
from spec_train.data import texts
from spec_train.data.samples import TextSample
from spec_train.data.texts import TextEntry
from spec_train.options import DataOptions, ScheduleOptions

ANSWERS_MAX = 4000
"""Max number of answers of a zoo model, unless --generate is passed."""
ANSWER_SHARE = 0.5
"""Max time of generating them, as a share of the duration of the training."""
HELD_OUT_PROMPT_MAX = 256
"""Max tokens of a held-out prompt that is the first half of a text."""


@attrs.frozen
class TrainingData:
    """texts: to train on. prompts: that the target may answer. held_out: prompts of the evaluation. generate: number of
    prompts to answer. seconds: max time of answering. answers: of the target."""

    texts: list[TextSample]
    prompts: list[TextSample]
    held_out: list[tuple[int, ...]]
    generate: int
    seconds: float
    answers: list[TextSample] = attrs.field(factory=list)

    @property
    def all(self) -> list[TextSample]:
        return [*self.texts, *self.prompts, *self.answers]

    def training_texts(self, min_tokens: int, length: int) -> list[TextSample]:
        """The target's own answers if there are any, else the texts in pieces of ``length`` tokens."""
        if self.answers:
            return texts.long_enough(self.answers, min_tokens, "answer")
        return texts.long_enough(texts.pieces(self.texts, length), min_tokens, "text")


def read_data(target: Target, options: DataOptions, schedule: ScheduleOptions, minutes: float) -> TrainingData:
    """Read the file of the options, or what the target provides. minutes: default duration of the training.

    Some entries of a file are held out; a zoo model has other prompts for that. The texts of a zoo model are not read
    if it has prompts to answer."""
    entries, prompts = _entries(target, options)
    shipped = None if options.data is not None else target.info.prompts
    if shipped is None:
        entries, held_out = texts.split_entries(entries, schedule.seed)
    else:
        held_out = texts.read_entries(Path(shipped))
    print_note(
        f"{len(entries) or len(prompts)} {'texts' if entries else 'prompts'} to train on, {len(held_out)} held out"
    )
    tokenized = texts.tokenize_entries(entries, target)
    unanswered = [entry.prompt_tokens(target) for entry in [*entries, *prompts] if entry.text is None]
    generate = options.generate or len(prompts)
    if not tokenized and not generate:
        raise UsageError("all lines are prompts without an answer", hint="let the target answer them: --generate N")
    by_time = options.generate is None and schedule.steps is None
    seconds = 60 * ANSWER_SHARE * (schedule.minutes or minutes) if by_time else math.inf
    prompt_texts = [TextSample(tuple(tokens), len(tokens)) for tokens in unanswered]
    return TrainingData(tokenized, prompt_texts, _held_out_prompts(held_out, target, options), generate, seconds)


def _entries(target: Target, options: DataOptions) -> tuple[list[TextEntry], list[TextEntry]]:
    """Entries with or without texts, and prompts that the target provides."""
    if options.data is not None:
        return texts.read_entries(options.data), []
    count = ANSWERS_MAX if options.generate is None else options.generate
    prompts = texts.prompts_of_target(target, count)
    return ([] if prompts else texts.of_target(target)), prompts


def _held_out_prompts(held_out: Sequence[TextEntry], target: Target, options: DataOptions) -> list[tuple[int, ...]]:
    """Tokens of evenly chosen prompts; of an entry without a prompt the first half. The answer must fit after them."""
    length = max(2, target.info.context - options.answer - 2)
    chosen = np.linspace(0, len(held_out) - 1, min(len(held_out), options.held_out)).astype(int)
    prompts = []
    for entry in (held_out[i] for i in chosen):
        tokens = entry.prompt_tokens(target) if entry.prompt else target.tokenizer.encode(entry.text)
        half = max(2, min(len(tokens) // 2, HELD_OUT_PROMPT_MAX))
        prompts.append(tuple(tokens if entry.prompt else tokens[:half])[-length:])
    return prompts
