"""Seed-coupled verification for an engine that chooses its tokens itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from torch import Tensor

from spec_core.sampling.choose import draw_token, finite_choice
from spec_core.sampling.noise import DOMAIN_TOKEN
from spec_core.sampling.parameters import Sampling


def sample_then_match(
    logits: Tensor, draft: Sequence[int], tokens: Sequence[int], prompt: int, sampling: Sampling, seed: int
) -> list[int]:
    """The tokens that a step commits: drafted tokens that the target itself chooses, then the one after them.

    Each is chosen with the noise of the seed and its position, so the text of a seed does not depend on drafts. It is
    that of a run with the default rule; a Host in such an engine is made with ``coupled=True``. Shared noise: Daliri,
    Musco, Suresh, 2408.07978.

    :param logits: [1 + K, V], the row after the last committed token, and those after each of the K draft tokens.
    :param draft: the K tokens of a chain.
    :param tokens: prompt and committed tokens. prompt: how many of them are the prompt.

    Raises TargetError for a row that has no finite logit.
    """
    committed: list[int] = []
    for row, drafted in zip_longest(logits, draft):
        source, t = (seed, 0, DOMAIN_TOKEN), len(tokens) - prompt + len(committed)
        token, logit, _ = draw_token(row, sampling, source, t, (tokens, prompt, committed))
        committed.append(finite_choice([token], [logit]))
        if committed[-1] != drafted:
            break
    return committed
