"""Which rows a step learns from: all of them in random order, then all again; known by the number of the step alone."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from spec_train.lessons import Lesson, Lessons


def pick(lessons: Lessons, seed: int, step: int, batch: int) -> list[Lesson]:
    """Of a step with ``batch`` rows."""
    numbers = (divmod(i, len(lessons)) for i in range(step * batch, (step + 1) * batch))
    return [lessons[int(order(seed, again, len(lessons))[at])] for again, at in numbers]


@lru_cache(maxsize=4)
def order(seed: int, again: int, of: int) -> np.ndarray:
    """[of] of a reading, the same for the same seed."""
    return np.random.default_rng([seed, 4, again]).permutation(of)
