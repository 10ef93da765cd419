"""Reads a file: first its metadata, by this project's reader and by llama.cpp, then its weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import torch
from torch import Tensor

from spec_core import Target, TargetInfo, load, load_tokenizer
from spec_core.errors import Unsupported, UsageError, nearest_names
from spec_core.toolkit import NextTokenLayer, UnreadableLayer, next_token_layer
from spec_engines.llamacpp.binding import CACHES, Context, Model, Size, offloads_layers
from spec_engines.llamacpp.probe import inexactness
from spec_engines.llamacpp.target import LlamaCppTarget

MAX_POSITIONS = 1 << 14
"""Memory is reserved for the whole context: a larger one is reduced to this, unless it was requested."""
DEVICES = ("auto", "cpu", "gpu")
CHAINS = "llama.cpp is given no trees"
TREES = "drafts may branch: llama.cpp sums rows in the order of its cells, which the kept path of a tree changes"


@attrs.frozen
class LoadOptions:
    """Options of loading a model. weights: False reads metadata only. trees: drafts may branch."""

    device: str = "auto"
    threads: int = 0
    context: int = 0
    cache_dtype: str = "auto"
    weights: bool = True
    trees: bool = False

    @property
    def offload(self) -> bool:
        """Whether layers are computed on another device. Raises UsageError if it is requested and not possible."""
        if self.device not in DEVICES:
            raise UsageError(f"device {self.device!r} is unknown", hint=f"give one of {', '.join(DEVICES)}")
        if self.device == "gpu" and not offloads_layers():
            raise UsageError(
                "device gpu was requested, this llama.cpp computes on the CPU only", hint="use --device cpu"
            )
        return self.device != "cpu" and offloads_layers()

    @property
    def cache(self) -> int:
        if self.cache_dtype not in CACHES:
            raise UsageError(
                f"cache_dtype {self.cache_dtype!r} is unknown",
                hint=f"give one of {nearest_names(self.cache_dtype, CACHES)}",
            )
        return CACHES[self.cache_dtype]


def load_target(path: Path, options: LoadOptions) -> LlamaCppTarget:
    """The target. The file is checked by this project's reader before llama.cpp, which trusts its files, reads it."""
    words = load_tokenizer("gguf", path)
    cache, offload = options.cache, options.offload
    known = _describe(path)
    facts = Model(str(path), allocate=False).facts
    if options.context > facts.context:
        raise UsageError(
            f"{path.name}: context {options.context} was requested, the model declares {facts.context}",
            hint="use a smaller context, or leave it out",
        )
    if options.trees and facts.recurrent:
        raise UsageError(
            f"{path.name}: trees were requested, a model with recurrent layers takes chains only",
            hint=f"load it as llamacpp:{path}",
        )
    info = TargetInfo(
        name=known.info.name if known is not None else path.stem,
        vocab=facts.vocab,
        width=facts.width,
        layers=facts.layers,
        context=options.context or min(facts.context, MAX_POSITIONS),
        states=frozenset({"attention", "recurrent"} if facts.recurrent else {"attention"}),
        trees=options.trees,
        vocab_id=words.identity if words is not None else "",
        dtype="float32",
        family=known.info.family if known is not None else "",
        bos=words.bos if words is not None else None,
        eog=words.eog if words is not None else frozenset(),
        tensors=None if known is not None else frozenset(),
        file=str(path),
    )
    weights, layer = _weights(known), _next_token_layer(known, path.name)
    if not options.weights:
        return LlamaCppTarget(info, words, None, weights, layer)
    model = Model(str(path), offload=offload)
    size = Size(info.context, options.threads or torch.get_num_threads(), cache, options.trees)
    target = LlamaCppTarget(info, words, partial(Context, model, size), weights, layer)
    why = TREES if options.trees else inexactness(target)
    target.info = attrs.evolve(info, exact="no" if why else "chains", exact_why=why or CHAINS)
    return target


def _describe(path: Path) -> Target | None:
    """The file by this project's reader, without weights; None for a model that only llama.cpp may know.

    Raises UsageError for a damaged file: llama.cpp would end the process at some of them.
    """
    try:
        read = load(f"gguf:{path}", weights=False)
    except Unsupported:
        return None
    if hasattr(read, "head"):
        raise UsageError(f"{path.name}: this is a draft head, not a model", hint="give the model that it drafts for")
    return read


def _next_token_layer(target: Target | None, name: str) -> NextTokenLayer | None:
    """The layer for drafting that the file has."""
    if target is None:
        return UnreadableLayer(f"this project does not read the architecture of {name}, nor a NextN layer in it")
    return next_token_layer(target)


def _weights(target: Target | None) -> Callable[[str], Tensor]:
    def refuse_tensor(name: str) -> Tensor:
        raise KeyError(name)

    return refuse_tensor if target is None else target.tensor
