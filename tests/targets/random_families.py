"""Random models of every family against transformers, as a directory and as a GGUF file, by every executor.

The unit is the rounding floor: what one float32 rounding step of the embeddings changes in transformers' own logits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import torch
from spec_kernels import native
from spec_kernels.native.executor import Native, Options
from torch import Tensor
from transformers import PreTrainedModel

from spec_core import Target, load
from tests.targets import convolved, gated, kimi, latent, layered, scanned, streamed, unwindowed, windowed
from tests.targets.drive import forward, part, sequence
from tests.targets.tiny import classes, logits, save

MODULES = (windowed, convolved, layered, kimi, latent, gated, scanned, streamed, unwindowed)
FAMILIES = tuple(family for module in MODULES for family in module.FAMILIES)
FLOORS = 4
"""Max difference in units of the rounding floor."""
EXACT = {"dtype": "float32", "cache_dtype": "float32"}
PROMPT, DECODED = 45, 6
"""Tokens of a prompt, more than the longest window, and of the text that transformers adds to it."""


def lacking(family: str) -> bool:
    """Whether the installed transformers is too old for a family."""
    return None in classes(family.removesuffix("-notruncate"))


def draw_model(family: str, seed: int) -> PreTrainedModel:
    return _of(family).draw_model(family, seed)


def _of(family: str):
    return next(module for module in MODULES if family in module.FAMILIES)


def places(model: PreTrainedModel, family: str, folder: Path) -> dict[str, Path]:
    """The formats in which a model can be stored. GGUF files have no window of Mistral, no ``truncate`` of YaRN, and
    no weights of experts that are not normalised, except those of GLM."""
    places = {"hf": getattr(_of(family), "save", save)(model, folder / "hf")}
    plain = family not in ("glm4moe", *latent.FAMILIES) and getattr(model.config, "norm_topk_prob", True) is False
    if family not in ("mistral", "gpt-oss-notruncate", *gated.WITHOUT_GGUF) and not plain:
        places["gguf"] = _of(family).write_gguf(model, family, folder / "model.gguf")
    if family in latent.FAMILIES:
        places["older gguf"] = latent.write_gguf(model, family, folder / "older.gguf", whole=True)
    return places


def rounding_floor(model: PreTrainedModel, tokens: list[int], expected: Tensor) -> float:
    """Largest change of logits by embeddings that are changed by one float32 rounding step, of 3 trials."""
    weight, floor = model.get_input_embeddings().weight.data, 0.0
    kept = weight.clone()
    for seed in range(3):
        steps = torch.randint(-1, 2, weight.shape, generator=torch.Generator().manual_seed(seed))
        weight.copy_(kept * (1 + steps * 2.0**-23))
        floor = max(floor, _largest(expected, logits(model, tokens)))
    weight.copy_(kept)
    return floor


def differences(family: str, seed: int, folder: Path) -> dict[str, float]:
    """Largest difference of logits to transformers in units of the rounding floor, by format and executor.

    Of a prompt in one forward, and of the greedy text behind it, one token at a time over the cache.
    Native programs of other instruction sets must give the bits of the best one: a difference is infinite.
    """
    model = draw_model(family, seed)
    tokens = _text(model)
    expected = logits(model, tokens)
    floor = rounding_floor(model, tokens, expected)
    return {
        f"{form} {executor}": _largest(expected, got) / floor
        for form, place in places(model, family, folder).items()
        for executor, got in _logits(place, tokens)
    }


def _text(model: PreTrainedModel) -> list[int]:
    """A prompt, and what transformers continues it with, without its cache."""
    tokens = [7 * i * i % model.config.get_text_config().vocab_size for i in range(PROMPT)]
    for _ in range(DECODED):
        tokens.append(int(logits(model, tokens)[-1].argmax()))
    return tokens


def _decode(target: Target, tokens: list[int]) -> Tensor:
    """Logits of all tokens: the prompt at once, then each of the others."""
    seq = sequence(target, tokens)
    first = forward(target, part(seq, 0, tokens[:PROMPT])).logits
    rest = [forward(target, part(seq, i, tokens[i : i + 1])).logits for i in range(PROMPT, len(tokens))]
    return torch.cat([first, *rest])


def _logits(place: Path, tokens: list[int]) -> Iterator[tuple[str, Tensor]]:
    """Logits of every executor; those of an instruction set with other bits than the best one are not numbers."""
    yield "reference", _decode(load(place, kernels="reference", **EXACT), tokens)
    if native.problem() is not None:
        return
    target = load(place, kernels="native", **EXACT)
    best = _decode(target, tokens)
    for isa in native.instruction_sets():
        got = _decode(_on(target, isa), tokens)
        yield isa, got if torch.equal(got, best) else torch.full_like(got, math.nan)


def _on(target: Target, isa: str) -> Target:
    was = target.executor
    target.executor = Native(was.model, was.source, Options(cache=was.options.cache, isa=isa))
    return target


def _largest(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().nan_to_num(math.inf).item()
