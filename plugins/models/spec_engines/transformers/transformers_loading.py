"""Reads a directory: first its config, on which everything is checked, then its weights."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from spec_core import TargetInfo, Tokenizer, load, load_tokenizer
from spec_core.errors import SpecError, UsageError, nearest_names, quote_value
from spec_core.toolkit import CacheReader, NextTokenLayer, UnreadableLayer, cache_reader, next_token_layer, use_threads
from spec_engines.declared import MATRICES
from spec_engines.transformers.cache_rows import Kinds
from spec_engines.transformers.compiled import compile_decoding
from spec_engines.transformers.layout import Layout
from spec_engines.transformers.quantised import check_library
from spec_engines.transformers.row_probe import takes_batches, takes_masks
from spec_engines.transformers.transformers_target import TransformersTarget

MAX_POSITIONS = 1 << 17
"""A larger context is reduced to this, unless it was requested."""
MAX_LAYERS = 1024
DTYPES = ("float32", "bfloat16", "float16", "float64")
NEXTN = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_layers")
"""Keys of configs that count layers for drafting."""
SHOWN = ("gemma4",)
"""Beginnings of families with drafters that read the target's cache."""
ROUNDED = "transformers multiplies rows in the shapes of a step, and libraries sum each shape in its own order"


@attrs.frozen
class LoadOptions:
    """Options of loading a model. weights: False reads metadata only. compiled: by torch.compile."""

    device: str = "auto"
    dtype: str = "auto"
    threads: int = 0
    context: int = 0
    weights: bool = True
    compiled: bool = False

    @property
    def place(self) -> torch.device:
        """Choose the device. Raises UsageError for a device that torch does not have."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            place = torch.device(self.device)
        except RuntimeError as error:
            raise UsageError(f"device {self.device!r} is unknown", hint="give cpu, cuda or auto") from error
        if place.type == "cuda" and not torch.cuda.is_available():
            raise UsageError("device cuda was requested, torch sees none", hint="use --device cpu")
        return place

    @property
    def kind(self) -> torch.dtype:
        if self.dtype == "auto":
            return torch.float32 if self.place.type == "cpu" else torch.bfloat16
        if self.dtype not in DTYPES:
            raise UsageError(
                f"dtype {self.dtype!r} is unknown", hint=f"give one of {nearest_names(self.dtype, DTYPES)}"
            )
        return getattr(torch, self.dtype)


def load_target(directory: Path, options: LoadOptions) -> TransformersTarget:
    """The target. Raises UsageError before a weight is read where the model cannot be a target."""
    if not (directory / "config.json").is_file():
        raise UsageError(f"{directory}: there is no config.json", hint="give a Hugging Face model directory")
    place, kind = options.place, options.kind
    config = _config(directory)
    check_library(config, directory.name)
    shell = _shell(config, directory)
    kinds = Kinds.of(shell.config)
    words = load_tokenizer("hf", directory)
    info = describe_target(shell, kinds, words, options, directory.name)
    _check_vocabulary(words, info)
    parts = _next_token_layer(directory), _described_cache(directory, info)
    if not options.weights:
        return TransformersTarget(info, words, None, Layout.of(shell), kinds, *parts)
    if options.threads:
        use_threads(options.threads)
    model = _model(directory, kind, place)
    target = TransformersTarget(info, words, model, Layout.of(model), kinds, *parts)
    if info.trees and not takes_masks(target):
        target.info = attrs.evolve(info, trees=False)
    target.batches = target.info.trees and takes_batches(target)
    if options.compiled:
        compile_decoding(target)
    return target


def _config(directory: Path) -> Any:
    try:
        return AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # configs of all architectures, with their own checks
        raise _unreadable(directory, error) from error


def _shell(config: Any, directory: Path) -> Any:
    """The model without numbers: its structure is checked before a weight is read."""
    count = getattr(config.get_text_config(), "num_hidden_layers", None)
    if type(count) is not int or not 0 < count <= MAX_LAYERS:
        raise UsageError(
            f"{directory.name}: config.json has {quote_value(count)} layers, 1 to {MAX_LAYERS} were needed",
            hint="get the directory again",
        )
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as error:  # constructors of all architectures, on sizes of a stranger's file
        raise _unreadable(directory, error) from error


def _model(directory: Path, kind: torch.dtype, place: torch.device) -> Any:
    where = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
    auto: Any = AutoModelForCausalLM
    try:
        with _no_progress_bar():
            model_here, report = auto.from_pretrained(directory, dtype=kind, output_loading_info=True, **where)
        model_here = model_here.to(place).eval()
    except Exception as error:  # as above
        raise _unreadable(directory, error) from error
    _check_complete(report["missing_keys"], directory)
    if kind == torch.float64:  # torch's grouped products take no float64
        model_here.config._experts_implementation = "eager"
    return model_here


def _check_complete(missing: Collection[str], directory: Path) -> None:
    """Refuse missing tensors, which transformers itself fills with random numbers."""
    if missing:
        raise UsageError(
            f"{directory.name}: its files lack {len(missing)} tensors of the model, the first is {min(missing)}",
            hint="get the directory again",
        )


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _unreadable(directory: Path, error: Exception) -> UsageError:
    message = str(error).strip().partition("\n")[0][:200] or type(error).__name__
    return UsageError(
        f"{directory.name}: transformers cannot load it: {message}",
        hint="give a directory of a causal language model, with config.json and safetensors",
    )


def _check_vocabulary(tokenizer: Tokenizer | None, info: TargetInfo) -> None:
    if tokenizer is not None and tokenizer.vocab_size > info.vocab:
        raise UsageError(
            f"{info.name}: the tokenizer has {tokenizer.vocab_size} tokens, the output matrix {info.vocab} rows",
            hint="tokenizer and weights do not belong together; get the directory again",
        )


def describe_target(
    shell: Any, kinds: Kinds, tokenizer: Tokenizer | None, options: LoadOptions, name: str
) -> TargetInfo:
    config, layout = shell.config.get_text_config(), Layout.of(shell)
    context_max = int(getattr(config, "max_position_embeddings", None) or MAX_POSITIONS)
    if options.context > context_max:
        raise UsageError(
            f"{name}: context {options.context} was requested, the model declares {context_max}",
            hint="use a smaller context, or leave it out",
        )
    return TargetInfo(
        name=name,
        vocab=shell.get_output_embeddings().weight.shape[0],
        width=config.hidden_size,
        layers=config.num_hidden_layers,
        context=options.context or min(context_max, MAX_POSITIONS),
        states=frozenset({"attention", "recurrent"} if kinds.recurrent else {"attention"}),
        trees=kinds.plain and layout.positions,
        vocab_id=tokenizer.identity if tokenizer is not None else "",
        dtype=str(options.kind).removeprefix("torch."),
        device=str(options.place),
        family=str(config.model_type),
        bos=tokenizer.bos if tokenizer is not None else None,
        eog=tokenizer.eog if tokenizer is not None else frozenset(),
        exact="no",
        exact_why=ROUNDED,
        tensors=frozenset(MATRICES),
        rotation_base=_rotation_base(config),
        norm_epsilon=_epsilon(config),
    )


def _rotation_base(config: Any) -> float | None:
    """The base of the positions in attention; None where the layers of a model have several, or none is named."""
    named = getattr(config, "rope_parameters", None) or {}
    base = named.get("rope_theta", getattr(config, "rope_theta", None))
    return float(base) if isinstance(base, (int, float)) else None


def _epsilon(config: Any) -> float | None:
    names = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps")
    return next((float(value) for name in names if (value := getattr(config, name, None)) is not None), None)


def _next_token_layer(directory: Path) -> NextTokenLayer | None:
    """The layer for drafting that the checkpoint has, if this project can read it."""
    raw = json.loads((directory / "config.json").read_text("utf-8"))
    text = raw.get("text_config", raw)
    if not any(text.get(key) for key in NEXTN):
        return None
    try:
        return next_token_layer(load(f"hf:{directory}", weights=False))
    except SpecError as error:  # an architecture that only transformers knows
        return UnreadableLayer(f"this project cannot read the NextN layer of {directory.name}: {error.reason}")


def _described_cache(directory: Path, info: TargetInfo) -> CacheReader | None:
    """The description of the cache of a model for which drafters exist that read it."""
    if not info.family.startswith(SHOWN):
        return None
    try:
        return cache_reader(load(f"hf:{directory}", weights=False))
    except SpecError:  # a form of it that only transformers knows
        return None
