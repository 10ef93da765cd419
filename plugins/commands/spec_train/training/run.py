"""A training run: from a target and options to a head in its file."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from spec_commands.common import print_note
from spec_commands.printing import print_line
from torch import Tensor

from spec_core import Target, TargetInfo
from spec_core.errors import UsageError
from spec_train import output
from spec_train.data import reduced_vocabulary
from spec_train.data.answers import Answerer, AnswerOptions, make_prompts, read_answers
from spec_train.data.cache import SampleCache
from spec_train.data.dataset import Dataset
from spec_train.data.samples import Teacher, TextSample
from spec_train.data.training_data import TrainingData, read_data
from spec_train.heads.dflash_student import DFlashStudent
from spec_train.heads.eagle3_student import Eagle3Student
from spec_train.heads.export.trained import Trained
from spec_train.heads.export.write import write_head
from spec_train.heads.shape import Shape, default_shape
from spec_train.heads.sources import choose_sources
from spec_train.heads.student import Student, count_parameters
from spec_train.init import dflash_copy, eagle3_copy, from_head, least_squares
from spec_train.init.from_dflash import BaseHead, read_base
from spec_train.init.random import new_student
from spec_train.options import DFlashOptions, Eagle3Options, NewHeadOptions, ScheduleOptions, TrainOptions
from spec_train.training import fingerprint
from spec_train.training.evaluation import Evaluation, Result
from spec_train.training.log import Log
from spec_train.training.loss_log import LossLog
from spec_train.training.schedule import Schedule
from spec_train.training.trainer import Trainer
from spec_train.training.training_progress import AnswerProgress, StepProgress, clock, curve

MINUTES = 20.0
"""Default duration."""
MEMORY_BYTES = 1 << 30
"""Max bytes of samples in memory."""
DISK_BYTES = 16 << 30
"""Max bytes of samples on disk; further ones are computed again."""
INIT_SAMPLES = 96
"""Number of samples that the initialisation is fitted to."""
LR = 2.5e-3
"""Learning rate at LR_WIDTH and below; it falls with the square root of the width."""
LR_WIDTH = 192
"""Width up to which the learning rate is LR."""


@attrs.frozen(eq=False)
class TrainingRun:
    """The steps of one call of ``spec train``. base: a head that is extended, if one is."""

    target: Target
    options: TrainOptions
    teacher: Teacher
    answerer: Answerer
    base: BaseHead | None = None

    @classmethod
    def of(cls, target: Target, options: TrainOptions) -> TrainingRun:
        """Make a run. Raises UsageError for options that the target does not allow."""
        if target.tokenizer is None:
            raise UsageError(f"{target.info.name} has no tokenizer", hint="train on a model that has one")
        schedule = options.schedule
        schedule = attrs.evolve(schedule, length=min(schedule.length, target.info.context - 1))
        if isinstance(options.head, NewHeadOptions):
            base, sources = None, choose_sources(options.head, target.info.layers)
        else:
            base = read_base(options.head, target)
            sources = base.sources
        teacher = Teacher(target, sources)
        folder = output.intermediate_path(options.output.out, f"states-{fingerprint.of_states(teacher)}")
        answerer = Answerer(teacher, SampleCache(folder, DISK_BYTES, target.info.device))
        return cls(target, attrs.evolve(options, schedule=schedule), teacher, answerer, base)

    def run(self) -> None:
        began = time.monotonic()
        data = self.with_answers(read_data(self.target, self.options.data, self.options.schedule, MINUTES))
        student = self.make_student(data)
        shape, trained = student.head.shape, count_parameters(student.head)
        print_note(f"{shape.kind} head of {trained:,} parameters reads hidden states {shape.sources}")
        log = self.trainer(student, data).run()
        self.finish(student)
        whole = time.monotonic() - began
        print_note(
            f"{clock(log.spent)} of training, {clock(whole)} since this call began, with answers and preparations"
        )
        self.report(log)

    def make_student(self, data: TrainingData) -> Student:
        """A head before its first step."""
        options, seed = self.options.head, self.options.schedule.seed
        if self.base is not None:
            return self.base.new_student(self.target, seed)
        assert isinstance(options, NewHeadOptions)
        shape, d2t = choose_shape(options, self.target.info, self.teacher.sources, data)
        return new_student(shape, d2t, self.target, seed, depth_of(options))

    def with_answers(self, data: TrainingData) -> TrainingData:
        """Add the target's answers to the requested number of prompts."""
        if not data.generate:
            return data
        if math.isfinite(data.seconds):
            print_note(
                f"the target answers prompts first, for at most {clock(data.seconds)}, which --minutes does not count"
            )
        options, seed = self.options.data, self.options.schedule.seed
        length = max(2, min(self.options.schedule.length, self.target.info.context - options.answer - 2))
        prompts = make_prompts(data.prompts or data.texts, data.generate, length, seed)
        how = AnswerOptions(options.answer, options.temperature, seed)
        path = self.beside(f"answers-{fingerprint.of_answers(self.target, how)}.jsonl")
        if self.checkpoint.exists():  # the answers it was trained on, however many there are
            return attrs.evolve(data, answers=read_answers(path))
        answers = self.answerer.answers(path, prompts, how, data.seconds, AnswerProgress(len(prompts)))
        tokens = sum(len(text.tokens) - text.start for text in answers)
        print_note(f"{len(answers)} answers of {tokens:,} tokens to train on")
        return attrs.evolve(data, answers=answers)

    def trainer(self, student: Student, data: TrainingData) -> Trainer:
        """Make the trainer; the student is initialised unless there is a checkpoint."""
        options, shape = self.options.schedule, student.head.shape
        texts = data.training_texts(student.min_tokens, options.length)
        dataset = Dataset(self.teacher, texts, MEMORY_BYTES, self.answerer.cache)
        if not self.checkpoint.exists():
            self.initialise(student, dataset)
        schedule = make_schedule(options, shape.width)
        evaluation = self.evaluation(data.held_out)
        run = fingerprint.of_run(self.target, shape, data, self.options)
        observers: list[Callable[[Log, float, Result | None], None]] = [StepProgress(schedule)]
        if self.options.output.log is not None:
            observers.append(LossLog(self.options.output.log))

        def on_step(log: Log, progress: float, result: Result | None) -> None:
            for observe in observers:
                observe(log, progress, result)

        return Trainer(student, dataset, evaluation, schedule, self.checkpoint, run, on_step)

    def initialise(self, student: Student, dataset: Dataset) -> None:
        """Copy the weights of another head, or compute the weights that need no training."""
        if self.options.head.first is not None:
            from_head.copy_weights(student, self.options.head.first, self.target.info.layers)
            return
        samples = dataset.batch(self.options.schedule.seed, 0, INIT_SAMPLES)
        if isinstance(student, Eagle3Student):
            least_squares.fit_student(student, samples, self.teacher.final_states(samples))
            eagle3_copy.add_copy_head(student, samples)
            least_squares.calibrate_norm(student, samples)
        elif isinstance(student, DFlashStudent):
            dflash_copy.add_copy_layers(student, samples)

    def evaluation(self, prompts: list[tuple[int, ...]]) -> Evaluation:
        """The target's greedy answers to held-out prompts."""
        how = AnswerOptions(self.options.data.answer, (0.0,), self.options.schedule.seed)
        path = self.beside(f"held-out-{fingerprint.of_answers(self.target, how)}.jsonl")
        texts = [text for text in self.answerer.answers(path, prompts, how) if len(text.tokens) > text.start + 1]
        return Evaluation(list(Dataset(self.teacher, texts, 0, self.answerer.cache)))

    def finish(self, student: Student) -> None:
        """Write the head, and remove the intermediate files."""
        shape, options, d2t = student.head.shape, self.options.output, student.vocab.d2t
        name = f"{self.target.info.name}-{shape.kind}"
        trained = Trained(shape, student.head.tensors_by_name(), None if d2t is None else d2t.cpu(), name)
        write_head(trained, self.target, options.out, options.layout, options.stored)
        output.remove_path(self.checkpoint)
        prefixes = tuple(self.beside(f"{what}-").name for what in ("answers", "held-out", "states"))
        for path in options.out.parent.iterdir():
            if path.name.startswith(prefixes):
                output.remove_path(path)

    def report(self, log: Log) -> None:
        print_note(f"loss {curve(log.losses)}")
        print_line(f"{log.step} steps, loss {log.loss:.8f}, {log.results[-1][1]}")
        print_line(f"written: {self.options.output.out}")

    @property
    def checkpoint(self) -> Path:
        return self.beside("checkpoint")

    def beside(self, what: str) -> Path:
        return output.intermediate_path(self.options.output.out, what)


def depth_of(options: NewHeadOptions) -> int:
    """Unrolled steps of eagle3; 0 for other heads."""
    return options.depth if isinstance(options, Eagle3Options) else 0


def make_schedule(options: ScheduleOptions, width: int) -> Schedule:
    """Make a schedule; duration and learning rate have defaults. width: of the head."""
    minutes = None if options.steps else options.minutes or MINUTES
    lr = options.lr or LR * min(1.0, (LR_WIDTH / width) ** 0.5)
    return Schedule(options.seed, lr, options.batch, options.steps, minutes)


def choose_shape(
    options: NewHeadOptions, target: TargetInfo, sources: Sequence[int], data: TrainingData
) -> tuple[Shape, Tensor | None]:
    """Sizes of the head, and the ids of the tokens that it can draft (None: all)."""
    counts = reduced_vocabulary.count_tokens(data.all, target.vocab)
    d2t = choose_draft_vocab(options.draft_vocab, target.vocab, data, counts)
    draft_vocab = target.vocab if d2t is None else len(d2t)
    if isinstance(options, DFlashOptions):
        layers = options.layers
        mask = choose_mask(options.mask, target.vocab, counts)
        more: dict[str, Any] = {"qk_norm": True, "block": options.block, "mask": mask}
        more |= {"own_output": d2t is not None, "windows": (0,) * layers, "causal": (False,) * layers}
    elif isinstance(options, Eagle3Options):
        layers, more = 1, {"norm_before_residual": options.norm_before_residual, "own_output": True}
    more |= {"draft_vocab": draft_vocab, "inputs": len(sources), "sources": tuple(sources)}
    return default_shape(options.kind, target, layers, options.heads, options.ff, **more), d2t


def choose_draft_vocab(count: int | None, vocab: int, data: TrainingData, counts: np.ndarray) -> Tensor | None:
    """[Vd] int64 ids of the most frequent tokens; None: all tokens."""
    count = min(count or reduced_vocabulary.default_draft_vocab(vocab), vocab)
    if count == vocab:
        return None
    answers = reduced_vocabulary.count_tokens([TextSample(text.tokens[text.start :]) for text in data.answers], vocab)
    chosen, covered = reduced_vocabulary.most_frequent(answers, counts, count)
    print_note(f"{count} of {vocab} tokens can be drafted: {covered:.1%} of the texts")
    return torch.from_numpy(chosen)


def choose_mask(mask: int | None, vocab: int, counts: np.ndarray) -> int:
    """The id of the mask token. Raises UsageError for an id outside the vocabulary."""
    if mask is not None and mask >= vocab:
        raise UsageError(f"--mask {mask}: the vocabulary has {vocab} tokens", hint=f"pass one of 0 to {vocab - 1}")
    return reduced_vocabulary.unused_token(counts) if mask is None else mask
