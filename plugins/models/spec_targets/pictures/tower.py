"""The part of a model that sees: transformers' own tower and projector, with the weights of a directory."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
import transformers
from torch import Tensor
from transformers.utils import logging

from spec_core.errors import LoadError, UsageError, message
from spec_targets.formats.safetensors import StoredTensor, open_directory

TEXT = ("language_model.", "text_model.", "lm_head.")
"""Parts of names that only tensors of the language model have; it runs elsewhere."""
UNUSED_SIZES = {"num_hidden_layers": 0, "vocab_size": 8, "pad_token_id": None, "layer_types": []}
"""Values of the text's config with which no language model is made."""


@attrs.frozen
class PictureRows:
    """rows: [n, D] float32, of all pictures in the order of the prompt. added: [n, D] for each layer that adds some."""

    rows: Tensor
    added: tuple[Tensor, ...] = ()


@attrs.frozen
class Tower:
    """Reads what a processor makes of pictures. row_token: id that stands for a row of a picture in a prompt."""

    model: Any
    row_token: int

    def read(self, inputs: Mapping[str, Any], check_time: Callable[[], None] | None = None) -> PictureRows:
        """Rows of pictures. inputs: of the processor. check_time: called before every layer; it may raise."""
        read = self.model.model.get_image_features
        known = inspect.signature(read).parameters
        modules = () if check_time is None else self.model.modules()
        hooks = [module.register_forward_pre_hook(lambda *_: check_time()) for module in modules]
        try:
            with torch.inference_mode():
                output = read(**{name: value for name, value in inputs.items() if name in known})
        finally:
            for hook in hooks:
                hook.remove()
        added = map(in_one, getattr(output, "deepstack_features", None) or ())
        return PictureRows(in_one(getattr(output, "pooler_output", output)), tuple(added))


def in_one(features: Any) -> Tensor:
    """[n, D] float32 from a tensor, or from one for each picture."""
    pieces = features if isinstance(features, (list, tuple)) else [features]
    return torch.cat([piece.reshape(-1, piece.shape[-1]) for piece in pieces]).float().clone()


def tower_tensors(directory: Path) -> dict[str, StoredTensor]:
    """Tensors of the vision part of a directory, by name."""
    return {name: stored for name, stored in open_directory(directory).items() if not any(p in name for p in TEXT)}


def read_tower(directory: Path, config: Any) -> Tower:
    """The tower of a directory, in float32 on the CPU. Raises UsageError for what it lacks."""
    tensors = {name: stored.load().float() for name, stored in tower_tensors(directory).items()}
    config = copy.deepcopy(config)
    for name, value in UNUSED_SIZES.items():
        if getattr(config.text_config, name, None) is not None:
            setattr(config.text_config, name, value)
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        model, report = getattr(transformers, config.architectures[0]).from_pretrained(
            None, config=config, state_dict=tensors, dtype=torch.float32, output_loading_info=True
        )
    except Exception as error:  # transformers raise many kinds for a config that does not fit
        raise LoadError(
            f"{directory / 'config.json'}: transformers cannot make its vision part: {type(error).__name__}: "
            f"{message(error)[:200]}",
            hint="its config and its tensors do not belong together; get the model again",
        ) from error
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
    missing = [name for name in report["missing_keys"] if not any(part in name for part in TEXT)]
    if missing:
        raise UsageError(f"{directory.name}: tensor {min(missing)!r} is missing", hint="get the missing file again")
    return Tower(model.eval(), config.image_token_id)
