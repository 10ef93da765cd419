"""Hashes that tell which intermediate files belong to a training run."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from spec_core import Target
from spec_train.data.answers import AnswerOptions
from spec_train.data.samples import Teacher
from spec_train.data.training_data import TrainingData
from spec_train.heads.shape import Shape
from spec_train.options import TrainOptions


def of_answers(target: Target, options: AnswerOptions) -> str:
    """Fingerprint of a file of answers: of the model and the options."""
    fields = {"n": options.max_tokens, "temperatures": options.temperatures, "seed": options.seed}
    return _short([target.info.name, target.info.dtype, fields])


def of_states(teacher: Teacher) -> str:
    """Fingerprint of cached hidden states: of the model and the hidden states that the head reads."""
    return _short([teacher.target.info.name, teacher.target.info.dtype, list(teacher.sources)])


def of_run(target: Target, shape: Shape, data: TrainingData, options: TrainOptions) -> str:
    """Fingerprint of a checkpoint: of everything but the duration."""
    digest = hashlib.sha256(repr(shape).encode())
    for text in data.all:
        digest.update(np.array(text.tokens, dtype=np.int32).tobytes())
    schedule, head = options.schedule, options.head
    fields = {
        "generate": data.generate,
        "answer": options.data.answer,
        "temperature": options.data.temperature,
        "held_out": options.data.held_out,
        "batch": schedule.batch,
        "length": schedule.length,
        "lr": schedule.lr,
        "seed": schedule.seed,
        "depth": getattr(head, "depth", None),
        "first": str(head.first),
        "base": getattr(head, "base", None),
    }
    digest.update(json.dumps([head.kind, target.info.name, target.info.dtype, fields], sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _short(facts: Any) -> str:
    """Eight hexadecimal digits."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
