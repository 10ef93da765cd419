"""The metadata of a GGUF file under its architecture's prefix, with types checked."""

from __future__ import annotations

from typing import Any

from spec_kernels.model.shapes import Experts
from torch import float32

from spec_core.errors import Unsupported, UsageError
from spec_targets.architectures.config import MAX_HEAD, Config
from spec_targets.architectures.rope import Scaling, yarn_attention
from spec_targets.formats.damage import AGAIN
from spec_targets.formats.gguf import GgufFile


class Keys:
    """Reads keys, given without the prefix. Every method raises UsageError for a missing or wrongly typed value."""

    def __init__(self, file: GgufFile, arch: str) -> None:
        self.file, self.arch, self.where = file, arch, file.path.name

    def get(self, key: str, default: Any = None, kind: type | tuple[type, ...] = (int, float)) -> Any:
        """A value, or that of all layers if the file has a list of equal ones. default: None if it must be there."""
        value = self.file.metadata.get(f"{self.arch}.{key}", default)
        if isinstance(value, list):
            value = self._one(key, value)
        if value is None:
            raise UsageError(
                f"{self.where}: metadata {self.arch}.{key} is missing",
                hint="the file is incomplete; convert it again",
            )
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise UsageError(f"{self.where}: metadata {self.arch}.{key} is {str(value)[:40]!r}", hint=AGAIN)
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        return self.get(key, default, int)

    def number(self, key: str, default: float | None = None) -> float:
        return float(self.get(key, default))

    def integers(self, key: str, layers: int) -> list[int]:
        """A number for every block of the trunk, 0 or more, from a list or from one number of all."""
        value = self.file.metadata.get(f"{self.arch}.{key}")
        listed = value if isinstance(value, list) else [value] * layers
        if len(listed) != layers or not all(type(count) is int and count >= 0 for count in listed):
            raise UsageError(
                f"{self.where}: {self.arch}.{key} is {str(value)[:60]!r}, "
                f"a number for each of {layers} blocks was needed",
                hint=AGAIN,
            )
        return listed

    def numbers(self, key: str, layers: int) -> tuple[float, ...]:
        """A float for every block of the trunk, from a list or from one number of all; 0 where there is none."""
        value = self.file.metadata.get(f"{self.arch}.{key}", 0.0)
        listed = value[:layers] if isinstance(value, list) else [value] * layers
        if len(listed) != layers or not all(isinstance(one, float) for one in listed):
            raise UsageError(
                f"{self.where}: {self.arch}.{key} is {str(value)[:60]!r}, a float for each of {layers} blocks was "
                "needed",
                hint=AGAIN,
            )
        return tuple(listed)

    def flags(self, key: str, layers: int) -> list[int] | None:
        """A yes or no for every block of the trunk; None if there is no such key."""
        listed = self.file.metadata.get(f"{self.arch}.{key}")
        if listed is None:
            return None
        if not isinstance(listed, list) or len(listed) < layers or any(x not in (0, 1) for x in listed):
            raise UsageError(
                f"{self.where}: {self.arch}.{key} is {str(listed)[:60]!r}, "
                f"a yes or no for each of {layers} blocks was needed",
                hint=AGAIN,
            )
        return listed[:layers]

    def without_converter(self) -> UsageError:
        """The error for a file of an architecture whose directories alone are read."""
        return Unsupported(
            f"{self.where}: GGUF files of {self.arch} are not supported: no published converter writes them",
            hint="use the directory of the model",
        )

    def _one(self, key: str, values: list[Any]) -> Any:
        """One value from a list per layer, if all layers agree."""
        if not values or any(v != values[0] for v in values):
            raise UsageError(
                f"{self.where}: {self.arch}.{key} differs between layers", hint="such models are not supported yet"
            )
        return values[0]

    # sizes

    def decoder(self, **more: Any) -> Config:
        """The sizes that every decoder has, and those given. Without ``experts``, the file must not have them."""
        width = self.integer("embedding_length")
        heads = more.get("heads") or self.integer("attention.head_count")
        head = self.integer("attention.key_length", width // max(1, heads))
        experts = more.get("experts")
        expert_ff = self.integer("expert_feed_forward_length", 0) if experts else 0
        sizes: dict[str, Any] = dict(
            arch=self.arch,
            name=name_of(self.file),
            layers=self.layers(),
            width=width,
            heads=heads,
            kv_heads=more.get("kv_heads") or self.integer("attention.head_count_kv", heads),
            head=head,
            ff=more.get("ff") or self.integer("feed_forward_length", 0 if experts else None),
            vocab=self._vocab(),
            context=self.integer("context_length"),
            eps=self.number("attention.layer_norm_rms_epsilon"),
            rope_base=self.number("rope.freq_base", 10000.0),
            rotary_dim=self.integer("rope.dimension_count", head),
            scaling=self.scaling(),
            expert_ff=expert_ff or more.get("ff") or self.integer("feed_forward_length", 0),
            dense=self.integer("leading_dense_block_count", 0),
            nextn=self.integer("nextn_predict_layers", 0),
        )
        return Config(**(sizes | more))

    def layers(self) -> int:
        """Number of blocks in the trunk, without NextN layers."""
        layers = self.integer("block_count") - self.integer("nextn_predict_layers", 0)
        if not 0 < layers <= len(self.file.tensors):
            raise UsageError(f"{self.where}: {layers} blocks and {len(self.file.tensors)} tensors", hint=AGAIN)
        return layers

    def experts(self, sigmoid: bool = False) -> Experts | None:
        """Choice of experts; None if there are none. sigmoid: by sigmoid scores, else by softmax."""
        count = self.integer("expert_count", 0)
        if not count:
            return None
        return Experts(
            count=count,
            used=self.integer("expert_used_count", 0),
            normalise=self.get("expert_weights_norm", True, bool),
            scale=self.number("expert_weights_scale", 1.0),
            sigmoid=sigmoid,
            groups=self.integer("expert_group_count", 1),
            groups_used=self.integer("expert_group_used_count", 1),
        )

    def shared_ff(self) -> int:
        """Width of the shared expert: as stated, or the widths of all shared experts together."""
        together = self.integer("expert_shared_count", 0) * self.integer("expert_feed_forward_length", 0)
        return self.integer("expert_shared_feed_forward_length", together)

    def scaling(self) -> Scaling:
        """The scaling of positions in the metadata; llama3's is in a tensor instead."""
        if "rope_factors_long.weight" in self.file.tensors:
            return self._longrope()
        kind = self.get("rope.scaling.type", "linear", str)
        factor = self.number("rope.scaling.factor", self.number("rope.scale_linear", 1.0))
        if kind == "none" or factor in (0.0, 1.0):
            return Scaling()
        if kind not in ("linear", "yarn"):
            raise UsageError(
                f"{self.where}: rope scaling {kind[:60]!r} is not supported", hint="supported: none, linear, yarn"
            )
        attention = self.number("rope.scaling.attn_factor", 1.0)
        if kind == "yarn" and (own := self.number("rope.scaling.yarn_attn_factor", 0.0)):
            attention *= own / yarn_attention(factor)  # it replaces yarn's own, as in the model's config.json
        return Scaling(
            kind=kind,
            factor=factor,
            original=self.integer("rope.scaling.original_context_length", self.integer("context_length")),
            fast=self.number("rope.scaling.yarn_beta_fast", 32.0),
            slow=self.number("rope.scaling.yarn_beta_slow", 1.0),
            attention=attention,
        )

    def _longrope(self) -> Scaling:
        return Scaling(
            kind="longrope",
            original=self.integer("rope.scaling.original_context_length", self.integer("context_length")),
            attention=self.number("rope.scaling.attn_factor", 1.0),
            long=self._factors("rope_factors_long.weight"),
            short=self._factors("rope_factors_short.weight"),
        )

    def _factors(self, name: str) -> tuple[float, ...]:
        """A small vector of float32 in the file; its length is checked with the other sizes."""
        tensor = self.file.tensors.get(name)
        if tensor is None or tensor.type != "F32" or len(tensor.shape) != 1 or tensor.shape[0] > MAX_HEAD:
            raise UsageError(f"{self.where}: it has no vector {name!r} of float32", hint=AGAIN)
        return tuple(tensor.bytes().view(float32).tolist())

    def windows(self, window: int, pattern: int) -> tuple[int, ...]:
        """The window of every block: of ``pattern`` blocks one has none, the last of them."""
        return tuple(0 if window == 0 or (i + 1) % pattern == 0 else window for i in range(self.layers()))

    def _vocab(self) -> int:
        embedding = self.file.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise UsageError(
                f"{self.where}: it has no token embedding", hint="give a whole model, not a draft head or vocabulary"
            )
        return embedding.shape[0]


def name_of(file: GgufFile) -> str:
    """The model's name in the file, as one printable line."""
    name = file.metadata.get("general.name")
    shown = "".join(c for c in name[:200] if c.isprintable()) if isinstance(name, str) else ""
    return shown or file.path.stem
