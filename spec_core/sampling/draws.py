"""Choices of tokens as arrays, as a device takes them: the rows, their noise, and changes of single logits."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from torch import Tensor

from spec_core.sampling.choose import NOTHING, History, draw_token
from spec_core.sampling.noise import MASK
from spec_core.sampling.parameters import Sampling
from spec_core.sampling.reference import NoiseKey

WORD_BITS = 32
"""Tokens of a word of a mask."""


@attrs.frozen(eq=False)
class Draw:
    """The choice of one token. row: of the logits. The rest as for ``spec_core.sampling.choose.draw_token``."""

    row: int
    sampling: Sampling
    source: NoiseKey
    t: int
    history: History = NOTHING
    mask: np.ndarray | None = None

    def choose(self, logits: Tensor) -> tuple[int, float]:
        """The token that the core chooses from logits [R, V], and the largest logit after mask, bias and penalties."""
        return draw_token(logits[self.row], self.sampling, self.source, self.t, self.history, self.mask)[:2]


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


@attrs.frozen(eq=False)
class Changes:
    """The logits that bias and penalties change after a text: distinct ids [n].

    bias: [n] float64. times: [n] how often each token occurs in the output. occurs: [n] whether it does in the text.
    """

    ids: np.ndarray
    bias: np.ndarray
    times: np.ndarray
    occurs: np.ndarray

    @classmethod
    def of_text(cls, sampling: Sampling, tokens: Sequence[int], prompt: int, vocab: int) -> Changes:
        """Changes after a text without drafted tokens. Rows given as embeddings (-1) are skipped."""
        text = np.array(tokens if _penalises(sampling) else (), np.int64)
        occurs, times = _count(text, vocab) > 0, _count(text[prompt:], vocab)
        bias, changes = np.zeros(vocab), occurs.copy()
        biased = list(sampling.logit_bias)
        bias[biased], changes[biased] = list(sampling.logit_bias.values()), True
        ids = changes.nonzero()[0]
        return cls(ids, bias[ids], times[ids], occurs[ids])

    def after(self, drafted: Sequence[int]) -> Changes:
        """Changes after the text and drafted tokens. ``ids`` must be ascending; in the result, new ones come last."""
        path, counts = np.unique(np.array([token for token in drafted if token >= 0], np.int64), return_counts=True)
        places = np.searchsorted(self.ids, path)
        known = np.isin(path, self.ids[places[places < len(self.ids)]])
        times, occurs = self.times.copy(), self.occurs.copy()
        times[places[known]] += counts[known]
        occurs[places[known]] = True
        new = path[~known]
        return Changes(
            np.append(self.ids, new),
            np.append(self.bias, np.zeros(len(new))),
            np.append(times, counts[~known]),
            np.append(occurs, np.ones(len(new), np.bool_)),
        )

    def terms(self, sampling: Sampling) -> np.ndarray:
        """[n, 3], as in ``Draws``."""
        terms = np.empty((len(self.ids), 3))
        terms[:, 0] = self.bias
        terms[:, 1] = np.where(self.occurs, sampling.repetition_penalty, 1.0)
        penalty = sampling.presence_penalty + sampling.frequency_penalty * self.times
        terms[:, 2] = np.where(self.times > 0, penalty, 0.0)
        return terms


def _count(tokens: np.ndarray, vocab: int) -> np.ndarray:
    """[V] how often each token occurs."""
    return np.bincount(tokens[tokens >= 0], minlength=vocab)


def _penalises(sampling: Sampling) -> bool:
    return bool(sampling.repetition_penalty != 1 or sampling.presence_penalty or sampling.frequency_penalty)


NONE, NO_TERMS = np.empty(0, np.int64), np.empty((0, 3))


def pack_plain(draws: Sequence[Draw]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``rows``, ``temperatures``, ``seeds`` and ``counters`` of some choices."""
    counters = [(draw.t & MASK, draw.source[1] & MASK, draw.source[2] & MASK) for draw in draws]
    return (
        np.array([draw.row for draw in draws], np.int64),
        np.array([draw.sampling.temperature for draw in draws], np.float64),
        np.array([draw.source[0] & (1 << 64) - 1 for draw in draws], np.uint64),
        np.array(counters, np.uint32).reshape(-1, 3),
    )


@attrs.frozen(eq=False)
class PlainRows:
    """Choices from neighbouring rows of logits by one text's sampling and noise, without masks, bias and penalties.

    row: the first. depths: of each row, beyond the output position ``t`` of the first.
    """

    row: int
    sampling: Sampling
    source: NoiseKey
    t: int
    depths: Sequence[int]


def pack_columns(spans: Sequence[PlainRows], vocab: int) -> Draws:
    """The arrays of the choices of several texts, column by column. vocab: V of the logits."""
    counts = [len(span.depths) for span in spans]
    total, first = sum(counts), 0
    rows, temperatures = np.empty(total, np.int64), np.empty(total, np.float64)
    seeds, counters = np.empty(total, np.uint64), np.empty((total, 3), np.int64)
    for span, count in zip(spans, counts, strict=True):
        seed, stream, domain = span.source
        own = slice(first, first + count)
        rows[own], temperatures[own] = range(span.row, span.row + count), span.sampling.temperature
        seeds[own], counters[own, 0] = seed & (1 << 64) - 1, span.depths
        counters[own, 0] += span.t
        counters[own, 1:] = stream & MASK, domain & MASK
        first += count
    no_masks = np.empty((0, -(-vocab // WORD_BITS)), np.uint32)
    return Draws(rows, temperatures, seeds, counters.astype(np.uint32), NONE, no_masks, NONE, NONE, NO_TERMS)


def pack_draws(draws: Sequence[Draw], vocab: int) -> Draws:
    """The arrays of some choices. vocab: V of the logits."""
    columns = pack_plain(draws)
    masked = {i: draw.mask for i, draw in enumerate(draws) if draw.mask is not None}
    if not masked and not any(draw.sampling.adjusts for draw in draws):
        no_masks = np.empty((0, -(-vocab // WORD_BITS)), np.uint32)
        return Draws(*columns, masked=NONE, masks=no_masks, changed=NONE, ids=NONE, terms=NO_TERMS)
    masks = np.zeros((len(masked), -(-vocab // WORD_BITS)), np.uint32)
    for mask, own_mask in zip(masks, masked.values(), strict=True):
        words = own_mask[: len(mask)]
        mask[: len(words)] = words
    changed, ids, terms = _changes(draws, vocab)
    return Draws(
        *columns,
        masked=np.array([*masked], np.int64),
        masks=masks,
        changed=changed,
        ids=ids,
        terms=terms,
    )


def _changes(draws: Sequence[Draw], vocab: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``changed``, ``ids`` and ``terms`` of all choices. A text is counted once for all choices after it."""
    texts: dict[tuple[int, int, int], Changes] = {}
    changed, ids, terms = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros((0, 3))]
    for i, draw in enumerate(draws):
        sampling, (tokens, prompt, drafted) = draw.sampling, draw.history
        if sampling.adjusts:
            key = id(sampling), id(tokens), prompt
            if key not in texts:
                texts[key] = Changes.of_text(sampling, tokens, prompt, vocab)
            changes = texts[key].after(drafted) if drafted and _penalises(sampling) else texts[key]
            changed.append(np.full(len(changes.ids), i))
            ids.append(changes.ids)
            terms.append(changes.terms(sampling))
    return np.concatenate(changed), np.concatenate(ids), np.concatenate(terms)
