"""Choices of tokens as arrays, as a device takes them: the rows, their noise, and changes of single logits."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from torch import Tensor

from spec_core.sampling.choose import NOTHING, History, drawn
from spec_core.sampling.noise import MASK
from spec_core.sampling.parameters import Sampling
from spec_core.sampling.reference import NoiseKey

WORD_BITS = 32
"""Tokens of a word of a mask."""


@attrs.frozen(eq=False)
class Draw:
    """The choice of one token. row: of the logits. The rest as for ``spec_core.sampling.choose.drawn``."""

    row: int
    sampling: Sampling
    source: NoiseKey
    t: int
    history: History = NOTHING
    mask: np.ndarray | None = None

    def choose(self, logits: Tensor) -> tuple[int, float]:
        """The token that the core chooses from logits [R, V], and the largest logit after mask, bias and penalties."""
        return drawn(logits[self.row], self.sampling, self.source, self.t, self.history, self.mask)[:2]


@attrs.frozen(eq=False)
class Draws:
    """N choices from rows of logits [R, V], without top-k, top-p and min-p.

    rows: [N] int64, the row that each choice reads. temperatures: [N] float64; 0 takes the first of the largest logits.
    seeds: [N] uint64. counters: [N, 3] uint32, words of the noise: output position, stream, domain.
    masked: [M] int64, ascending, the choices that have a mask. masks: [M, ceil(V / 32)] uint32, the tokens that they
        may choose, token ``id`` as bit ``id % 32`` of word ``id // 32``. The logits of all others become -inf.
    changed: [C] int64, ascending, the choice for which a logit changes after the mask. ids: [C] int64, its token;
        distinct within a choice. terms: [C, 3] float64: a bias that is added; a factor of repetition, which divides
        values above 0 and multiplies others; a penalty that is subtracted.

    A changed logit is float32, whatever the type of the row. Each term is applied in float64, and rounded to float32.
    """

    rows: np.ndarray
    temperatures: np.ndarray
    seeds: np.ndarray
    counters: np.ndarray
    masked: np.ndarray
    masks: np.ndarray
    changed: np.ndarray
    ids: np.ndarray
    terms: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


Counts = tuple[np.ndarray, np.ndarray]
"""Distinct tokens of a text [n] int64, ascending, and how often each occurs in the output [n]."""


def pack(draws: Sequence[Draw], vocab: int) -> Draws:
    """The arrays of some choices. vocab: V of the logits."""
    masked = [i for i, draw in enumerate(draws) if draw.mask is not None]
    masks = np.zeros((len(masked), -(-vocab // WORD_BITS)), np.uint32)
    for mask, i in zip(masks, masked, strict=True):
        words = draws[i].mask[: len(mask)]
        mask[: len(words)] = words
    changed, ids, terms = _changes(draws)
    counters = [[word & MASK for word in (draw.t, *draw.source[1:])] for draw in draws]
    return Draws(
        rows=np.array([draw.row for draw in draws], np.int64),
        temperatures=np.array([draw.sampling.temperature for draw in draws], np.float64),
        seeds=np.array([draw.source[0] & (1 << 64) - 1 for draw in draws], np.uint64),
        counters=np.array(counters, np.uint32).reshape(-1, 3),
        masked=np.array(masked, np.int64),
        masks=masks,
        changed=changed,
        ids=ids,
        terms=terms,
    )


def _changes(draws: Sequence[Draw]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``changed``, ``ids`` and ``terms`` of all choices. Choices of one text share the counts of its tokens."""
    counts: dict[tuple[int, int], Counts] = {}
    changed, ids, terms = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros((0, 3))]
    for i, draw in enumerate(draws):
        if draw.sampling.adjusts:
            tokens, prompt, drafted = draw.history
            key = id(tokens), prompt
            if key not in counts:
                counts[key] = _count(tokens, prompt)
            tokens_changed, their_terms = _terms(draw.sampling, counts[key], drafted)
            changed.append(np.full(len(tokens_changed), i))
            ids.append(tokens_changed)
            terms.append(their_terms)
    return np.concatenate(changed), np.concatenate(ids), np.concatenate(terms)


def _count(tokens: Sequence[int], prompt: int) -> Counts:
    """Count the tokens of a text; rows given as embeddings (-1) are skipped. prompt: tokens before the output."""
    text = np.array(tokens, np.int64)
    ids, places = np.unique(text, return_inverse=True)
    counts = np.bincount(places[prompt:], minlength=len(ids))
    return ids[ids >= 0], counts[ids >= 0]


def _terms(sampling: Sampling, counts: Counts, drafted: Sequence[int]) -> Counts:
    """Tokens [n] whose logits bias and penalties change, ascending, and their terms [n, 3]."""
    biased = np.array(list(sampling.logit_bias), np.int64)
    seen, occurrences = counts
    path = np.array([token for token in drafted if token >= 0], np.int64)
    if sampling.repetition_penalty == 1 and not sampling.presence_penalty and not sampling.frequency_penalty:
        seen, occurrences, path = seen[:0], occurrences[:0], path[:0]
    ids = np.unique(np.concatenate([biased, seen, path]))
    times, repeated, terms = np.zeros(len(ids)), np.zeros(len(ids), np.bool_), np.zeros((len(ids), 3))
    times[np.searchsorted(ids, seen)] = occurrences
    np.add.at(times, np.searchsorted(ids, path), 1)
    repeated[np.searchsorted(ids, np.concatenate([seen, path]))] = True
    terms[np.searchsorted(ids, biased), 0] = list(sampling.logit_bias.values())
    terms[:, 1] = np.where(repeated, sampling.repetition_penalty, 1.0)
    terms[:, 2] = np.where(times > 0, sampling.presence_penalty + sampling.frequency_penalty * times, 0.0)
    return ids, terms
