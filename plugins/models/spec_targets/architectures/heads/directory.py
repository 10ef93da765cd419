"""Tensors of a head's Hugging Face directory by our names: safetensors, or ``pytorch_model.bin``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs
import torch
from spec_kernels.model.source import bytes_of
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.architectures.heads.tensors import halves
from spec_targets.formats.damage import check_name, damage_error
from spec_targets.formats.safetensors import INDEX, open_directory

PICKLED = "pytorch_model.bin"
MASK_VECTOR = "mask_embedding.pt"
NAMES = {
    "embed_tokens.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "norm.weight": "output_norm.weight",
    "input_norm.weight": "input_norm.weight",
    "hidden_norm.weight": "hidden_norm.weight",
    "fc.weight": "fc.weight",
    "fc.bias": "fc.bias",
    "markov_head.markov_w1.weight": "markov_w1.weight",
    "markov_head.markov_w2.weight": "markov_w2.weight",
    "confidence_head.proj.weight": "conf_proj.weight",
    "confidence_head.proj.bias": "conf_proj.bias",
    "candidate_selector.predecessor_codebook": "selector_predecessor.weight",
    "candidate_selector.successor_codebook": "selector_successor.weight",
    "candidate_selector.hidden_projection.weight": "selector_hidden.weight",
    "d2t": "d2t",
    "t2d": "t2d",
}
LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "attention_conv.base_kernel": "attn_conv_base",
    "attention_conv.kernel_projection.weight": "attn_conv_proj.weight",
    "mlp_conv.base_kernel": "ffn_conv_base",
    "mlp_conv.kernel_projection.weight": "ffn_conv_proj.weight",
    "hidden_norm.weight": "attn_norm_2.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.o_proj.bias": "attn_output.bias",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
} | {f"self_attn.{x}_proj.{kind}": f"attn_{x}.{kind}" for x in "qkv" for kind in ("weight", "bias")}
POST_NORMS = LAYER | {
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "layer_scalar": "layer_output_scale.weight",
}
"""Names in heads with norms on both sides of a layer."""
OLD_NORMS = {"aux_norm_low": 0, "aux_norm_mid": 1, "aux_norm_high": 2}
"""Older names of ``fc_norm.I``."""
TARGETS_OWN = re.compile(r"verifier_.*|.*\.rotary_emb\..*")
"""Copies of the target's tensors, which are not read."""
TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
FLOATS = (*TYPES, torch.float64)


class Stored(Protocol):
    """A tensor of either format."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def load(self) -> Tensor: ...


@attrs.frozen(eq=False)
class Loaded:
    """A tensor that is already in memory."""

    value: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    def load(self) -> Tensor:
        return self.value


def our_name(name: str, layer: Mapping[str, str] = LAYER) -> str:
    """Our name of a tensor in a published head; unknown names are returned unchanged. layer: names in a layer."""
    name = name.removeprefix("model.")
    if name in NAMES:
        return NAMES[name]
    if match := re.fullmatch(r"(?:midlayer|layers\.([0-9]{1,9}))\.(.+)", name):
        return f"blk.{int(match[1] or 0)}.{layer.get(match[2], match[2])}"
    if match := re.fullmatch(r"fc_norm\.([0-9]{1,9})\.weight", name):
        return f"input_norm.{match[1]}.weight"
    if (stem := name.removesuffix(".weight")) in OLD_NORMS:
        return f"input_norm.{OLD_NORMS[stem]}.weight"
    return name


class HfHead:
    """Tensors of a directory.

    pairs: {part of a name: number of attention heads} of tensors whose neighbouring rows turn together.
    """

    def __init__(self, directory: Path) -> None:
        self.where = directory.name
        self.pairs: dict[str, int] = {}
        if (directory / MASK_VECTOR).exists():
            raise UsageError(
                f"{self.where}: a vector of its own for the mask token ({MASK_VECTOR}) is not supported",
                hint="use another head",
            )
        self.tensors: dict[str, Stored] = {}
        stored = open_tensors(directory)
        layer = POST_NORMS if any(name.endswith("pre_feedforward_layernorm.weight") for name in stored) else LAYER
        for name, tensor in stored.items():
            if (ours := our_name(name, layer)) in self.tensors:
                raise UsageError(
                    f"{self.where}: two of its tensors are {ours!r}, one was needed", hint="use another head"
                )
            if not TARGETS_OWN.fullmatch(name):
                self.tensors[ours] = tensor

    def names(self) -> Iterable[str]:
        return self.tensors

    def shape(self, name: str) -> tuple[int, ...] | None:
        return self.tensors[name].shape if name in self.tensors else None

    def load(self, name: str) -> Tensor:
        value = self.tensors[name].load()
        if value.dtype not in FLOATS:
            raise UsageError(
                f"{self.where}: tensor {name!r} is {str(value.dtype).removeprefix('torch.')}, which is not supported",
                hint="use a head with weights of float32, bfloat16 or float16",
            )
        heads = next((n for part, n in self.pairs.items() if part in name), 0)
        return halves(value, heads) if heads else value

    def type(self, name: str) -> str:
        return TYPES.get(self.tensors[name].load().dtype, "F32")

    def blocks(self, name: str) -> Tensor:
        value = self.load(name)
        return bytes_of(value if value.dtype in TYPES else value.float())

    def d2t(self) -> Tensor | None:
        return self.tensors["d2t"].load() if "d2t" in self.tensors else None


def open_tensors(directory: Path) -> Mapping[str, Stored]:
    """Tensors by their own names; safetensors is preferred. Raises UsageError."""
    if (directory / INDEX).exists() or (directory / "model.safetensors").exists():
        return open_directory(directory)
    if (directory / PICKLED).exists():
        return load_pickled(directory / PICKLED)
    raise UsageError(
        f"{directory.name}: there is neither model.safetensors nor {PICKLED}", hint="get the directory again, whole"
    )


def load_pickled(path: Path) -> dict[str, Stored]:
    """Tensors of a pickled dictionary, read by a loader that executes no code of the file."""
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # an untrusted pickle can make the loader raise anything
        raise damage_error(path, f"cannot be read as tensors alone: {_reason(error)}") from error
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors):
        raise damage_error(path, "holds something else than tensors by name")
    for name, value in tensors.items():
        check_name(path, name)
        if (problem := _not_plain(value)) is not None:
            raise damage_error(path, f"holds {problem} under {name!r}, a dense tensor of numbers was needed")
    return {name: Loaded(value) for name, value in tensors.items()}


def _reason(error: Exception) -> str:
    """The loader's message; for a file with code, without torch's advice on how to run it."""
    if code := re.search(r"GLOBAL ([\w.]+)", str(error)):
        return f"it needs {code[1][:80]}"
    return str(error).partition("\n")[0].partition(". ")[0][:120] or type(error).__name__


def _not_plain(value: Any) -> str | None:
    """The description of a value that is not a dense tensor with all values in the file, else None."""
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    if value.is_nested:
        return "a nested tensor"
    if value.is_quantized:
        return "a quantised tensor"
    if value.layout is not torch.strided:
        return f"a tensor of layout {str(value.layout).removeprefix('torch.')}"
    if value.device.type != "cpu":
        return f"a tensor on the {value.device.type} device, without numbers"
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        return f"a tensor of shape {list(value.shape)} in {value.untyped_storage().nbytes()} bytes"
    return None
