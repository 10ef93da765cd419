"""The target answers prompts, since a head has to draft the target's own text.

Answers are written to a file next to the head, and their samples to the cache, so that an interrupted run can resume.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import numpy as np

from spec_core import Run, Sampling
from spec_core import Sequence as Running
from spec_core.errors import UsageError, error_message
from spec_train.data.cache import SampleCache
from spec_train.data.capture import Capture
from spec_train.data.samples import Teacher, TextSample

SLOTS = 16
"""Number of prompts that are answered at the same time."""
CUT_MIN, CUT_MAX = 0.3, 0.7
"""Range of places at which a text is cut to make a prompt of it, as shares of its length."""


def make_prompts(texts: Sequence[TextSample], count: int, length: int, seed: int) -> list[tuple[int, ...]]:
    """``count`` prompts of at most ``length`` tokens: the prompts of texts that have one, else the beginnings of
    random pieces."""
    rng = np.random.default_rng([seed, 1])
    prompts = []
    for i in range(count):
        text = texts[i % len(texts)] if count <= len(texts) else texts[int(rng.integers(len(texts)))]
        if text.start:
            prompts.append(text.tokens[: text.start][-length:])
            continue
        at = int(rng.integers(max(1, len(text.tokens) - length + 1)))
        piece = text.tokens[at : at + length]
        prompts.append(piece[: max(1, round(len(piece) * rng.uniform(CUT_MIN, CUT_MAX)))])
    return prompts


@attrs.frozen
class AnswerOptions:
    """Options of answering prompts. max_tokens: of an answer. temperatures: one is drawn for each answer."""

    max_tokens: int
    temperatures: tuple[float, ...]
    seed: int

    def sampling(self, index: int) -> Sampling:
        """Sampling of the answer to prompt ``index``."""
        drawn = np.random.default_rng([self.seed, 5, index]).integers(len(self.temperatures))
        return Sampling(temperature=self.temperatures[int(drawn)])


@attrs.define(eq=False)
class Answerer:
    """Answers prompts, captures the samples of the answers, and saves both."""

    teacher: Teacher
    cache: SampleCache
    _capture: Capture = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._capture = Capture(self.teacher)

    def answers(
        self,
        path: Path,
        prompts: Sequence[tuple[int, ...]],
        options: AnswerOptions,
        seconds: float = math.inf,
        on_answer: Callable[[int], None] = lambda done: None,
    ) -> list[TextSample]:
        """All answers. Answers in the file are not generated again.

        seconds: after which no further prompt is started. on_answer: called with the number of answers so far. Raises
        UsageError if the disk is full, and for a file of answers to other prompts."""
        texts = read_answers(path)[: len(prompts)]
        if any(text.tokens[: text.start] != self._cut(p, options) for text, p in zip(texts, prompts, strict=False)):
            raise UsageError(f"{path} has answers to other prompts", hint="remove it, or pass another --out")
        try:
            with path.open("a", encoding="utf-8") as file:
                for text in self.generate(prompts, len(texts), options, time.monotonic() + seconds):
                    file.write(json.dumps({"start": text.start, "tokens": text.tokens}) + "\n")
                    file.flush()
                    texts.append(text)
                    on_answer(len(texts))
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written: {error_message(error)}", hint="free some disk space, or pass another --out"
            ) from error
        return texts

    def generate(
        self, prompts: Sequence[tuple[int, ...]], first: int, options: AnswerOptions, until: float
    ) -> Iterator[TextSample]:
        """Prompt and answer of ``prompts[first:]``, in order, without the last token, which was not evaluated.

        until: time.monotonic() after which no prompt is started.
        """
        with Run(self.teacher.target, [("capture", self._capture)], max_sequences=SLOTS) as run:
            yield from self._generate(run, prompts, first, options, until)

    def _generate(
        self, run: Run, prompts: Sequence[tuple[int, ...]], first: int, options: AnswerOptions, until: float
    ) -> Iterator[TextSample]:
        running: dict[int, Running] = {}
        finished: dict[int, TextSample] = {}
        started = first
        while True:
            while started < len(prompts) and len(running) < SLOTS and time.monotonic() < until:
                running[started] = self._submit(run, prompts[started], options, started)
                started += 1
            if not running:
                return
            run.step()
            finished |= {i: self._take(run, running.pop(i)) for i in [i for i, seq in running.items() if seq.finish]}
            while first in finished:
                yield finished.pop(first)
                first += 1

    def _submit(self, run: Run, prompt: Sequence[int], options: AnswerOptions, index: int) -> Running:
        tokens, sampling = list(self._cut(prompt, options)), options.sampling(index)
        return run.submit(tokens, max_tokens=options.max_tokens, sampling=sampling, seed=options.seed + index)

    def _cut(self, tokens: Sequence[int], options: AnswerOptions) -> tuple[int, ...]:
        """The end of a prompt, so that the answer fits into the context."""
        return tuple(tokens[-max(1, self.teacher.target.info.context - options.max_tokens - 1) :])

    def _take(self, run: Run, seq: Running) -> TextSample:
        run.take(seq)
        text = TextSample(tuple(seq.tokens[: seq.delivered]), seq.prompt_len)
        self.cache.put(text, self._capture.sample(seq, text.start))
        return text


def read_answers(path: Path) -> list[TextSample]:
    """The complete lines of an earlier run; a truncated last line is removed from the file."""
    if not path.exists():
        return []
    texts, complete = [], []
    for line in path.read_text("utf-8").splitlines(keepends=True):
        try:
            entry = json.loads(line)
            texts.append(TextSample(tuple(entry["tokens"]), int(entry["start"])))
        except (ValueError, KeyError, TypeError):
            break
        complete.append(line)
    path.write_text("".join(complete), "utf-8")
    return texts
