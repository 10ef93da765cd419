"""Hyperparameters of a GGUF file as a Config."""

from __future__ import annotations

from typing import Any

from spec_kernels.model.shapes import DeltaShape, Experts

from spec_core.errors import UsageError
from spec_targets.files.gguf import GgufFile
from spec_targets.runtime.config import Arch, Config, arch_of
from spec_targets.runtime.rope import Scaling


class Keys:
    """Metadata under the architecture's prefix, with types checked."""

    def __init__(self, file: GgufFile, arch: str) -> None:
        self.file, self.arch = file, arch

    def get(self, key: str, default: Any = None, kind: type | tuple[type, ...] = (int, float)) -> Any:
        value = self.file.metadata.get(f"{self.arch}.{key}", default)
        if isinstance(value, list):
            value = self._one(key, value)
        if value is None:
            raise UsageError(
                f"{self.file.path.name}: metadata {self.arch}.{key} is missing",
                hint="the file is incomplete; convert it again",
            )
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise UsageError(
                f"{self.file.path.name}: metadata {self.arch}.{key} is {str(value)[:40]!r}", hint="the file is damaged"
            )
        return value

    def _one(self, key: str, values: list[Any]) -> Any:
        """One value from a list per layer, if all layers agree."""
        if not values or any(v != values[0] for v in values):
            raise UsageError(
                f"{self.file.path.name}: {self.arch}.{key} differs between layers",
                hint="such models are not supported yet",
            )
        return values[0]


def config_of(file: GgufFile) -> Config:
    """The Config of a file. Raises UsageError for missing, wrongly typed or unknown metadata."""
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str):
        raise UsageError(
            f"{file.path.name}: it does not name its architecture", hint="give a model, not a vocabulary or adapter"
        )
    arch = arch_of(name, file.path.name)
    keys = Keys(file, name)
    width, heads = keys.get("embedding_length", kind=int), keys.get("attention.head_count", kind=int)
    head = keys.get("attention.key_length", width // max(1, heads), int)
    experts = _experts(keys, arch)
    expert_ff = keys.get("expert_feed_forward_length", 0, int) if experts else 0
    layers = _layers(file, keys)
    return Config(
        arch=name,
        name=name_of(file),
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=keys.get("attention.head_count_kv", heads, int),
        head=head,
        ff=keys.get("feed_forward_length", 0 if experts else None, kind=int),
        vocab=_vocab(file),
        context=keys.get("context_length", kind=int),
        eps=float(keys.get("attention.layer_norm_rms_epsilon")),
        rope_base=float(keys.get("rope.freq_base", 10000.0)),
        rotary_dim=keys.get("rope.dimension_count", head, int),
        scaling=scaling_of(keys),
        experts=experts,
        expert_ff=expert_ff or keys.get("feed_forward_length", 0, int),
        shared_ff=_shared_ff(keys, expert_ff) if arch.shared else 0,
        dense=keys.get("leading_dense_block_count", 0, int),
        delta=_delta(keys, arch) if arch.recurrent else None,
        recurrent=_recurrent(keys, layers) if arch.recurrent else frozenset(),
        nextn=keys.get("nextn_predict_layers", 0, int),
    )


def name_of(file: GgufFile) -> str:
    """The model's name in the file, as one printable line."""
    given = file.metadata.get("general.name")
    shown = "".join(c for c in given[:200] if c.isprintable()) if isinstance(given, str) else ""
    return shown or file.path.stem


def _experts(keys: Keys, arch: Arch) -> Experts | None:
    count = keys.get("expert_count", 0, int)
    if not count:
        return None
    return Experts(
        count=count,
        used=keys.get("expert_used_count", 0, int),
        normalise=keys.get("expert_weights_norm", True, bool),
        scale=float(keys.get("expert_weights_scale", 1.0)),
        sigmoid=arch.sigmoid,
        groups=keys.get("expert_group_count", 1, int),
        groups_used=keys.get("expert_group_used_count", 1, int),
    )


def _shared_ff(keys: Keys, expert_ff: int) -> int:
    """The stated width, or the widths of all shared experts together."""
    return keys.get("expert_shared_feed_forward_length", keys.get("expert_shared_count", 0, int) * expert_ff, int)


def _delta(keys: Keys, arch: Arch) -> DeltaShape:
    heads, inner = keys.get("ssm.time_step_rank", kind=int), keys.get("ssm.inner_size", kind=int)
    if heads < 1 or inner % heads:
        raise UsageError(
            f"{keys.file.path.name}: {keys.arch}.ssm.inner_size is {inner}, a multiple of {heads} was needed",
            hint="the file is damaged; get it again",
        )
    return DeltaShape(
        key_heads=keys.get("ssm.group_count", kind=int),
        value_heads=heads,
        key_dim=keys.get("ssm.state_size", kind=int),
        value_dim=inner // heads,
        kernel=keys.get("ssm.conv_kernel", kind=int),
        tiled=arch.tiled,
    )


def _recurrent(keys: Keys, layers: int) -> frozenset[int]:
    """The listed blocks, or all but every ``full_attention_interval``-th."""
    listed = keys.file.metadata.get(f"{keys.arch}.attention.recurrent_layers")
    if listed is not None:
        return frozenset(i for i, given in enumerate(_flags(keys, listed, layers)[:layers]) if given)
    interval = keys.get("full_attention_interval", 4, int)
    if interval < 1:
        raise UsageError(
            f"{keys.file.path.name}: {keys.arch}.full_attention_interval is {interval}, 1 or more was needed",
            hint="the file is damaged; get it again",
        )
    return frozenset(i for i in range(layers) if (i + 1) % interval)


def _flags(keys: Keys, listed: Any, layers: int) -> list[int]:
    """A flag for every block of the trunk, and for some after it."""
    if not isinstance(listed, list) or len(listed) < layers or any(x not in (0, 1) for x in listed):
        raise UsageError(
            f"{keys.file.path.name}: {keys.arch}.attention.recurrent_layers is {str(listed)[:60]!r}, "
            f"a yes or no for each of {layers} blocks was needed",
            hint="the file is damaged; get it again",
        )
    return listed


def _layers(file: GgufFile, keys: Keys) -> int:
    """Number of blocks in the trunk, without NextN layers."""
    layers = keys.get("block_count", kind=int) - keys.get("nextn_predict_layers", 0, int)
    if not 0 < layers <= len(file.tensors):
        raise UsageError(
            f"{file.path.name}: {layers} blocks and {len(file.tensors)} tensors", hint="the file is damaged"
        )
    return layers


def _vocab(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise UsageError(
            f"{file.path.name}: it has no token embedding", hint="give a whole model, not a draft head or vocabulary"
        )
    return embedding.shape[0]


def scaling_of(keys: Keys) -> Scaling:
    """The scaling of positions in the metadata; llama3's is in a tensor instead."""
    kind = keys.get("rope.scaling.type", "linear", str)
    factor = float(keys.get("rope.scaling.factor", keys.get("rope.scale_linear", 1.0)))
    if kind == "none" or factor in (0.0, 1.0):
        return Scaling()
    if kind not in ("linear", "yarn"):
        raise UsageError(
            f"{keys.file.path.name}: rope scaling {kind!r} is not supported", hint="supported: none, linear, yarn"
        )
    return Scaling(
        kind=kind,
        factor=factor,
        original=keys.get("rope.scaling.original_context_length", keys.get("context_length", kind=int), int),
        fast=float(keys.get("rope.scaling.yarn_beta_fast", 32.0)),
        slow=float(keys.get("rope.scaling.yarn_beta_slow", 1.0)),
        attention=float(keys.get("rope.scaling.attn_factor", 1.0)),
    )
