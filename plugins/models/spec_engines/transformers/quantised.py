"""Quantised checkpoints: whether their library is installed, and their matrices as numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.quantizers.auto import AutoHfQuantizer

from spec_core.errors import UsageError, quote_value

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def quantisation_of(config: Any) -> dict[str, Any] | None:
    """Quantisation of the weights, from config.json; None for plain weights."""
    return getattr(config, "quantization_config", None) or getattr(
        config.get_text_config(), "quantization_config", None
    )


def check_library(config: Any, name: str) -> None:
    """Raise UsageError if transformers cannot read weights that are quantised in this way, on this machine."""
    if (how := quantisation_of(config)) is None:
        return
    try:
        AutoHfQuantizer.from_config(how, pre_quantized=True).validate_environment(device_map=None, weights_only=True)
    except Exception as error:  # the checks of all libraries, on values of a stranger's file
        method = how.get("quant_method") if isinstance(how, dict) else None
        message = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise UsageError(
            f"{name}: its weights are quantised with {quote_value(method)}, "
            f"transformers cannot read them here: {message}",
            hint=f"install the library for {quote_value(method)}, or use a copy that is not quantised",
        ) from error


def matrix(module: nn.Module, name: str, width: int, dtype: torch.dtype) -> Tensor:
    """[V, D] the weight of an embedding or of a linear layer, dequantised. Raises UsageError if it cannot be."""
    weight = getattr(module, "weight", None)
    values = _dequantise(weight.detach()) if isinstance(weight, Tensor) else None
    if values is None or values.dtype not in FLOATS or values.shape[1:] != (width,):
        raise UsageError(
            f"{name} is quantised in a form that draft heads cannot read: "
            f"a {type(module).__name__} with a weight of {_describe(weight)}",
            hint="use a copy of the model whose embedding and output matrix are not quantised, or a method without "
            "a head, such as ngram",
        )
    return values.to(dtype)


def _dequantise(weight: Tensor) -> Tensor | None:
    if type(weight) is Tensor:
        return weight
    try:
        return weight.dequantize()
    except Exception:  # a library's own kind of tensor, which may not know how
        return None


def _describe(weight: Any) -> str:
    return f"{weight.dtype} {list(weight.shape)}" if isinstance(weight, Tensor) else type(weight).__name__
