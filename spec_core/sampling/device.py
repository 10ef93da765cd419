"""Choosers: installed functions that choose tokens on the device of a target's logits.

Without one, rows are chosen by the core on the host. An entry point of the group ``spec_core.choosers`` has the name of
a device type of torch, such as ``cuda``, and is a function ``device -> Chooser``. It is imported when logits of that
type are first seen.
Before its first use, and again for another type or width of rows, a chooser is compared with the core's own choice. One
that gives another token is not used, so that a plugin cannot change a text.
"""

from __future__ import annotations

import logging
import math
from functools import cache
from importlib import metadata
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from spec_core.errors import FOREIGN, message
from spec_core.installed import read_entry_points
from spec_core.sampling.draws import WORD_BITS, Draw, Draws, pack_draws
from spec_core.sampling.noise import DOMAIN_CHOICE, DOMAIN_TOKEN
from spec_core.sampling.parameters import LOWEST, Sampling

log = logging.getLogger("spec_core")

CHOOSERS = "spec_core.choosers"
"""Entry points of functions ``torch.device -> Chooser``, by the type of the device."""
DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
"""Types of logits that choosers take."""


class Chooser(Protocol):
    """Chooses tokens on one device. Called from several threads at once."""

    def __call__(self, logits: Tensor, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
        """Choose a token for each of N draws.

        logits: [R, V] float32, bfloat16 or float16 on the device; rows may have any stride, the tokens of a row are
            adjacent.
        draws: the N choices.
        returns tokens [N] integers and largest logits [N] floats, on the host. Both must equal what
            ``spec_core.sampling.choose.draw_token`` gives: a largest logit is that after mask, bias and penalties, and
            NaN if any logit of the row is. Its token has no meaning where it is NaN or -inf, and the core raises its
            usual error.
        """


def device_chooser(logits: Tensor) -> Chooser | None:
    """The chooser for logits [R, V]; None if none is installed for their device or type, or if it was refused.

    A refusal is logged once for each type and width of rows.
    """
    if logits.dtype not in DTYPES or logits.stride(-1) != 1:
        return None
    return _load(logits.device, logits.dtype, logits.shape[-1])


def fact() -> str:
    """The choosers on this machine, for ``spec env``."""
    names = sorted({point.name for point in entry_points()})
    return "; ".join([*(f"{name}: {_state(name)}" for name in names), "otherwise on the host"])


def entry_points() -> list[metadata.EntryPoint]:
    """The entry points of all installed choosers."""
    return list(read_entry_points(group=CHOOSERS))


def points_of(device: torch.device) -> list[metadata.EntryPoint]:
    """The entry points of choosers for the device's type."""
    return [point for point in entry_points() if point.name == device.type]


def _state(name: str) -> str:
    try:
        device = torch.empty(1, device=name).device
    except Exception:  # a build of torch without such devices raises anything
        return "no such device here"
    reason = refusal(device, torch.float32, 4000)
    return f"refused, {reason}" if reason else "on the device, tokens equal the core's"


@cache
def _load(device: torch.device, dtype: torch.dtype, vocab: int) -> Chooser | None:
    if not points_of(device):
        return None
    if reason := refusal(device, dtype, vocab):
        log.warning("tokens of logits on %s are chosen row by row on the host: %s", device, reason)
        return None
    return _create(device)


def refusal(device: torch.device, dtype: torch.dtype, vocab: int) -> str | None:
    """Why the device's chooser cannot be used for rows of this type and width; None if it can."""
    try:
        chooser = _create(device)
        first = difference(chooser, device, dtype, vocab)
    except FOREIGN as error:  # importing and calling a plugin may raise anything
        return f"the chooser for {device.type} failed: {type(error).__name__}: {message(error)}"
    return f"the chooser for {device.type} is refused: {first}" if first else None


@cache
def _create(device: torch.device) -> Chooser:
    """The device's chooser. Raises ValueError if several packages have one."""
    points = points_of(device)
    if len({point.value for point in points}) > 1:
        several = ", ".join(sorted(point.value for point in points))
        raise ValueError(f"there are several, {several}: remove all packages but one")
    return points[0].load()(device)


def difference(chooser: Chooser, device: torch.device, dtype: torch.dtype, vocab: int) -> str | None:
    """The first difference between a chooser and the core; None if tokens and largest logits are equal."""
    logits, draws = examples(dtype, vocab)
    tokens, largest = chooser(logits.to(device), pack_draws(draws, vocab))
    if not len(tokens) == len(largest) == len(draws):
        return f"it returned {len(tokens)} tokens and {len(largest)} largest logits for {len(draws)} draws"
    for draw, token, value in zip(draws, tokens.tolist(), largest.tolist(), strict=True):
        expected, expected_value = draw.choose(logits)
        if not (value == expected_value or (math.isnan(value) and math.isnan(expected_value))):
            return f"largest logit {value} instead of {expected_value} ({_describe(draw)})"
        if expected_value > LOWEST and token != expected:
            return f"token {token} instead of {expected} ({_describe(draw)})"
    return None


def _describe(draw: Draw) -> str:
    seed, stream, domain = draw.source
    text = f"{draw.sampling}, seed {seed}, position {draw.t}, stream {stream}, domain {domain}"
    return text + (", with a mask" if draw.mask is not None else "")


def examples(dtype: torch.dtype, vocab: int) -> tuple[Tensor, list[Draw]]:
    """Logits [8, V] on the host, and 16 choices from them that a chooser must make as the core does.

    Masks, biases and penalties change the largest logit of their row, so that one which is not applied is noticed.
    """
    generator = torch.Generator().manual_seed(vocab)
    logits = (torch.randn((8, vocab), generator=generator) * 1.5).to(dtype)
    first, second, third = logits[:3].argmax(-1).tolist()
    logits[3] = 1.5  # ties
    logits[4, 1:] = LOWEST
    logits[5, vocab // 2] = math.inf
    logits[6, vocab // 3] = math.nan
    logits[7] = LOWEST
    text = [first, -1, second, third, third, *torch.randint(vocab, (20,), generator=generator).tolist()]
    mask = _mask(vocab, excluded=(first, second, third))
    warm = Sampling(temperature=0.8)
    samplings = [
        *(Sampling(temperature=temperature) for temperature in (0.0, 1e-3, 2.0)),
        Sampling(temperature=0.8, repetition_penalty=1.3, presence_penalty=0.7, frequency_penalty=0.4),
        Sampling(temperature=1.0, logit_bias={second: LOWEST, vocab // 2: 9.5}),
        Sampling(repetition_penalty=1.7, frequency_penalty=-3.0, logit_bias={0: 1.1}),
    ]
    choices: list[tuple[int, Sampling, np.ndarray | None]]
    choices = [(i % 3, sampling, None) for i, sampling in enumerate(samplings)]
    choices += [(row, warm, None) for row in range(3, len(logits))]
    choices += [(i % 3, sampling, mask) for i, sampling in enumerate((warm, *samplings[-4:]))]
    draws = []
    for i, (row, sampling, words) in enumerate(choices):
        source = (i << 40) + 12345, (i << 29) + i, (DOMAIN_TOKEN, DOMAIN_CHOICE)[i % 2]
        draws.append(Draw(row, sampling, source, 1000 * i, (text, 2, text[: i % 4]), words))
    return logits, draws


def _mask(vocab: int, excluded: tuple[int, ...]) -> np.ndarray:
    """[ceil(V / 32)] uint32: every token but the excluded ones; the last token in any case."""
    allowed = np.zeros(-(-vocab // WORD_BITS) * WORD_BITS, np.bool_)
    allowed[:vocab] = True
    allowed[list(excluded)] = False
    allowed[vocab - 1] = True
    return np.packbits(allowed, bitorder="little").view(np.uint32)
