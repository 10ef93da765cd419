"""The values of config.json, with types checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from spec_kernels.model.shapes import Experts

from spec_core.errors import UsageError
from spec_targets.architectures.config import MAX_LAYERS, Config
from spec_targets.architectures.positions import check_rope, partial_of, rope_of, scaling_of
from spec_targets.architectures.values import read_float, read_int

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Keys of the number of experts; transformers 5 writes the second."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "use_sliding_window": (None, False),
    "hidden_act": ("silu", None),
    "mlp_bias": (None, False),
    "mlp_only_layers": (None, [], ()),
    "decoder_sparse_step": (1, None),
    "quantization_config": (None,),
}
"""Options that would change the text if they were ignored, with the values that change nothing."""


class ConfigJson:
    """Reads the language model's part of a config. Every method raises UsageError for a missing or wrong value.

    arch: the name of the family. kind: the class or the ``model_type`` by which the config names it.
    """

    def __init__(self, raw: Mapping[str, Any], arch: str, kind: str, where: str) -> None:
        self.raw, self.arch, self.kind, self.where = raw, arch, kind, where

    def integer(self, key: str, default: int | None = None) -> int:
        """A positive number, or 0 where that is the default."""
        return read_int(self.raw, key, self.where, default)

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number."""
        return read_float(self.raw, key, self.where, default)

    def refuse(self, but: Collection[str] = (), **accepted: tuple[Any, ...]) -> None:
        """Refuse values of options other than these. but: options that the caller reads."""
        for key, values in accepted.items():
            if key not in but and self.raw.get(key) not in values:
                raise UsageError(
                    f"{self.where}: {key} = {repr(self.raw[key])[:60]} is not supported",
                    hint="use a model without it, or a GGUF of it",
                )

    def windows(self, pattern: int) -> tuple[int, ...]:
        """``sliding_window`` of every block that has one, else 0.

        They are listed in ``layer_types``. In older configs all but the last of every ``sliding_window_pattern``
        blocks have it, or of every ``pattern`` where that option is missing.
        """
        layers = self.layers()
        window = self.integer("sliding_window", 0)
        kinds = self.kinds(layers, {"full_attention", "sliding_attention"})
        if kinds is None:
            pattern = self.integer("sliding_window_pattern", pattern)
            return tuple(window if (i + 1) % pattern else 0 for i in range(layers))
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)

    def everywhere(self) -> tuple[int, ...]:
        """``sliding_window`` of every block; empty if the config has none."""
        window = self.integer("sliding_window", 0)
        return (window,) * self.layers() if window else ()

    def split_rope(self) -> tuple[ConfigJson, dict[str, Any]]:
        """The config with the rotary parameters of blocks without a window alone, and fields of a Config of the others.

        Newer configs have one object for each of both kinds. All of a head rotates in blocks with a window.
        """
        rope = self.raw.get("rope_parameters")
        if not isinstance(rope, Mapping) or not isinstance(rope.get("full_attention"), Mapping):
            return self, {}
        local, whole = rope.get("sliding_attention"), {**self.raw, "rope_parameters": rope["full_attention"]}
        config = ConfigJson(whole, self.arch, self.kind, self.where)
        if local is None:
            return config, {}
        reader = ConfigJson(local if isinstance(local, Mapping) else {}, self.arch, self.kind, self.where)
        reader.refuse(rope_type=("default", None), partial_rotary_factor=(1, None))
        return config, {"local_base": reader.number("rope_theta"), "local_head": config.integer("head_dim")}

    def kinds(self, layers: int, known: Collection[str]) -> list[str] | None:
        """``layer_types``, one of ``known`` for every block; None if there is no such list."""
        kinds = self.raw.get("layer_types")
        if kinds is None:
            return None
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise UsageError(
                f"{self.where}: config.json has layer_types = {str(kinds)[:60]!r}",
                hint=f"a list of {layers} types, one for each layer, is needed",
            )
        unknown = set(map(str, kinds)) - set(known)
        if unknown:
            raise UsageError(
                f"{self.where}: layer_types has layers of type {min(unknown)[:60]!r}",
                hint=f"supported with its other options: {', '.join(sorted(known))}",
            )
        return kinds

    # sizes

    def decoder(self, reads: Collection[str] = (), *, partial: float = 1.0, **more: Any) -> Config:
        """The sizes that every decoder has, and ``more``.

        reads: options that the caller reads, and that are refused otherwise. partial: the share of a head that
        rotates, where the config does not say.
        """
        width, heads = self.integer("hidden_size"), self.integer("num_attention_heads")
        head = self.integer("head_dim", width // max(1, heads))
        self.refuse(reads, **NEUTRAL)
        self._check_kinds(reads)
        check_rope(self.raw, self.where)
        sizes: dict[str, Any] = dict(
            arch=self.arch,
            name=self.where,
            layers=self.layers(),
            width=width,
            heads=heads,
            kv_heads=self.integer("num_key_value_heads", heads),
            head=head,
            ff=more.get("ff") or self.integer("intermediate_size", 0 if more.get("experts") else None),
            vocab=self.integer("vocab_size"),
            context=self.integer("max_position_embeddings"),
            eps=self.number("rms_norm_eps", 1e-6),
            rope_base=read_float(rope_of(self.raw), "rope_theta", self.where, self.number("rope_theta", 10000.0)),
            rotary_dim=int(head * partial_of(self.raw, self.where, partial)),
            scaling=scaling_of(self.raw, self.where),
            dense=self.integer("first_k_dense_replace", 0),
            nextn=self.integer("num_nextn_predict_layers", self.integer("mtp_num_hidden_layers", 0)),
        )
        return Config(**(sizes | more))

    def layers(self) -> int:
        layers = self.integer("num_hidden_layers")
        if layers > MAX_LAYERS:
            raise UsageError(
                f"{self.where}: config.json has num_hidden_layers = {layers}", hint=f"at most {MAX_LAYERS} are possible"
            )
        return layers

    def experts(self, sigmoid: bool = False, normalise: bool = False) -> Experts:
        """Choice of experts. normalise: whether weights are normalised, where the config does not say."""
        count = next((key for key in EXPERTS if key in self.raw), EXPERTS[0])
        return Experts(
            count=self.integer(count),
            used=self.integer("num_experts_per_tok"),
            normalise=bool(self.raw.get("norm_topk_prob", normalise)),
            scale=self.number("routed_scaling_factor", 1.0),
            sigmoid=sigmoid,
            groups=self.integer("n_group", 1),
            groups_used=self.integer("topk_group", 1),
        )

    def dense_blocks(self) -> int:
        """Number of dense blocks before those with experts, also where every block's kind is listed."""
        layers, kinds = self.layers(), self.raw.get("mlp_layer_types")
        dense = self.integer("first_k_dense_replace", 0) if kinds is None else str(kinds).count("'dense'")
        if kinds not in (None, ["dense"] * dense + ["sparse"] * (layers - dense)):
            raise UsageError(
                f"{self.where}: config.json has mlp_layer_types = {str(kinds)[:60]}",
                hint=f"a list of {layers} types is needed, 'dense' first, then 'sparse'",
            )
        return dense

    def shared_ff(self) -> int:
        """Width of the shared expert: as stated, or the widths of all shared experts together."""
        width = self.integer("shared_expert_intermediate_size", 0)
        return width or self.integer("n_shared_experts", 0) * self.integer("moe_intermediate_size")

    def _check_kinds(self, reads: Collection[str]) -> None:
        """Refuse layers with anything but full attention, unless the caller reads their types."""
        kinds = self.raw.get("layer_types") or []
        layer_types = set(map(str, kinds)) if isinstance(kinds, list) else {str(kinds)}
        if "layer_types" not in reads and layer_types - {"full_attention"}:
            raise UsageError(
                f"{self.where}: layer_types = {repr(kinds)[:60]} is not supported",
                hint="use a model without it, or a GGUF of it",
            )
