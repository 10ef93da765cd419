"""The text models of Gemma 4: two widths of heads, blocks that read the cache of others, an embedding for each block.

Blocks with a window have heads of their own size. Values are the keys where a block without a window has no projection
of values. The last blocks of small models read keys and values of earlier ones; of large models blocks have experts
in addition to a dense layer. The stream of a block is scaled by one number at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spec_kernels.model.build import Builder
from spec_kernels.model.deferred import number_of
from spec_kernels.model.ops import GLU, Add, Columns, Embed, Norm, Op
from spec_kernels.model.shapes import Experts

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.names import ATTENTION, ENDS, MLP
from spec_targets.formats.damage import AGAIN
from spec_targets.formats.stored_names import Name

NAMES: dict[str, Name] = (
    ENDS
    | ATTENTION
    | MLP
    | {
        "per_layer_token_embd.weight": "embed_tokens_per_layer.weight",
        "per_layer_model_proj.weight": "per_layer_model_projection.weight",
        "per_layer_proj_norm.weight": "per_layer_projection_norm.weight",
        "post_attention_norm.weight": "post_attention_layernorm.weight",
        "ffn_norm.weight": "pre_feedforward_layernorm.weight",
        "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
        "post_ffw_norm_1.weight": "post_feedforward_layernorm_1.weight",
        "pre_ffw_norm_2.weight": "pre_feedforward_layernorm_2.weight",
        "post_ffw_norm_2.weight": "post_feedforward_layernorm_2.weight",
        "ffn_gate_inp.weight": "router.proj.weight",
        "ffn_gate_inp.scale": "router.scale",
        "ffn_gate_up_exps.weight": "experts.gate_up_proj",
        "ffn_down_exps.weight": "experts.down_proj",
        "ffn_down_exps.scale": "router.per_expert_scale",
        "inp_gate.weight": "per_layer_input_gate.weight",
        "proj.weight": "per_layer_projection.weight",
        "post_norm.weight": "post_per_layer_input_norm.weight",
        "layer_output_scale.weight": "layer_scalar",
        "nextn.pre_projection.weight": "/pre_projection.weight",
        "nextn.post_projection.weight": "/post_projection.weight",
        "centroids.weight": "/masked_embedding.centroids.weight",
    }
)
"""Also of an assistant: its projections and clusters."""
ROTATION = "rope_freqs.weight"
"""Tensor of GGUF files that says which pairs of a wide head rotate."""


def from_gguf(keys: Keys) -> Config:
    layers, width, experts = keys.layers(), keys.integer("embedding_length"), keys.experts()
    if ROTATION not in keys.file.tensors:
        raise UsageError(f"{keys.where}: tensor {ROTATION!r} is missing", hint=AGAIN)
    windows = _windows(keys, keys.integer("attention.sliding_window"), layers)
    kv_heads = keys.integers("attention.head_count_kv", layers)
    full, local = ({n for n, w in zip(kv_heads, windows, strict=True) if bool(w) == kind} for kind in (False, True))
    if len(full) > 1 or len(local) > 1:
        raise UsageError(
            f"{keys.where}: {keys.arch}.attention.head_count_kv is {str(kv_heads)[:60]}, one number for blocks with a "
            "window and one for others was needed",
            hint=AGAIN,
        )
    ffs = tuple(keys.integers("feed_forward_length", layers))
    return keys.decoder(
        kv_heads=min(full, default=0) or min(local),
        ff=ffs[0],
        ffs=ffs,
        scale=1.0,
        windows=windows,
        local_base=keys.number("rope.freq_base_swa", 10000.0),
        local_head=keys.integer("attention.key_length_swa"),
        local_kv_heads=min(local, default=0),
        sharing=keys.integer("attention.shared_kv_layers", 0),
        per_layer=keys.integer("embedding_length_per_layer_input", 0),
        logit_cap=keys.number("final_logit_softcapping", 0.0),
        embed_scale=width**0.5 if width > 0 else 0.0,
        experts=experts,
    )


def _windows(keys: Keys, window: int, layers: int) -> tuple[int, ...]:
    """The window of every block, 0: none."""
    flags = keys.flags("attention.sliding_window_pattern", layers)
    if flags is None:
        raise UsageError(
            f"{keys.where}: metadata {keys.arch}.attention.sliding_window_pattern is missing",
            hint="the file is incomplete; convert it again",
        )
    return tuple(window if flag else 0 for flag in flags)


def from_hf(json: ConfigJson) -> Config:
    """Config of the text model: rotary parameters and sizes of heads are stated for both kinds of blocks."""
    json.refuse(
        attention_bias=(None, False),
        hidden_activation=("gelu_pytorch_tanh", None),
        use_bidirectional_attention=(None, "vision"),
    )
    rope = {kind: _rope(json, kind) for kind in ("full_attention", "sliding_attention")}
    plain = ConfigJson({**json.raw, "rope_parameters": rope["full_attention"]}, json.arch, json.kind, json.where)
    local = ConfigJson(rope["sliding_attention"], json.arch, json.kind, json.where)
    windows = json.windows(1)
    (wide, kv_heads), (local_head, local_kv_heads) = heads_by_kind(json, windows)
    sharing, experts = json.integer("num_kv_shared_layers", 0), _experts(json)
    return plain.decoder(
        ("layer_types", "hidden_act"),
        head=wide,
        rotary_dim=wide,
        kv_heads=kv_heads,
        ffs=_ffs(json, sharing),
        scale=1.0,
        windows=windows,
        local_base=local.number("rope_theta", 10000.0),
        local_head=local_head,
        local_kv_heads=local_kv_heads,
        sharing=sharing,
        per_layer=json.integer("hidden_size_per_layer_input", 0),
        logit_cap=json.number("final_logit_softcapping") if json.raw.get("final_logit_softcapping") else 0.0,
        embed_scale=json.integer("hidden_size") ** 0.5,
        experts=experts,
        expert_ff=json.integer("moe_intermediate_size") if experts else 0,
    )


def _rope(json: ConfigJson, kind: str) -> Mapping[str, Any]:
    """Rotary parameters of blocks of one kind."""
    both = json.raw.get("rope_parameters")
    rope = both.get(kind) if isinstance(both, Mapping) else None
    if not isinstance(rope, Mapping):
        raise UsageError(
            f"{json.where}: config.json has rope_parameters = {repr(both)[:60]}",
            hint="rotary parameters of full_attention and sliding_attention are needed",
        )
    return rope


def heads_by_kind(json: ConfigJson, windows: tuple[int, ...]) -> list[tuple[int, int]]:
    """Width of a head and number of key heads, of blocks without a window and of blocks with one.

    Published configs state them once; transformers 5 saves them by block, where they differ from the others, under
    numbers of blocks with zeros before them so that all have equally many digits.
    """
    names = ("head_dim", "num_key_value_heads")
    local = json.integer(names[0]), json.integer(names[1])
    own = json.raw.get("per_layer_config")
    if own is None:
        alike = json.raw.get("attention_k_eq_v")
        kv_heads = json.integer("num_global_key_value_heads", local[1]) if alike else local[1]
        return [(json.integer("global_head_dim", local[0]), kv_heads), local]
    own = {key.lstrip("0") or "0": sizes for key, sizes in own.items()} if isinstance(own, Mapping) else own
    good = isinstance(own, Mapping) and set(own) <= {str(i) for i in range(len(windows))}
    good = good and all(isinstance(sizes, Mapping) and set(sizes) <= set(names) for sizes in own.values())
    kinds: list[set[tuple[int, int]]] = [set(), set()]
    for i, window in enumerate(windows if good else ()):
        block = ConfigJson(own.get(str(i), {}), json.arch, json.kind, json.where)
        kinds[bool(window)].add((block.integer(names[0], local[0]), block.integer(names[1], local[1])))
    if not good or max(map(len, kinds)) > 1:
        raise UsageError(
            f"{json.where}: config.json has per_layer_config = {repr(own)[:60]}",
            hint="sizes of heads by block are needed, one for blocks with a window and one for others",
        )
    return [next(iter(kind), local) for kind in kinds]


def _ffs(json: ConfigJson, sharing: int) -> tuple[int, ...]:
    """Widths of feed-forward layers: twice as wide in blocks that share a cache, if the config says so."""
    layers, ff = json.layers(), json.integer("intermediate_size")
    double = sharing if json.raw.get("use_double_wide_mlp") else 0
    return (ff,) * (layers - double) + (2 * ff,) * double


def _experts(json: ConfigJson) -> Experts | None:
    """Choice of experts by softmax; weights of the chosen ones add up to 1."""
    if not json.raw.get("enable_moe_block"):
        return None
    return Experts(json.integer("num_experts"), json.integer("top_k_experts"))


def ops_before_blocks(b: Builder, c: Config) -> Iterator[Op]:
    """The embeddings of all blocks, ``p``: (e + norm(projection of the stream)) / sqrt(2), e of the token alone.

    The projection is scaled by 1 / sqrt(width), here in the norm's eps.
    """
    if not c.per_layer:
        return
    width, norm = c.per_layer * c.layers, b.vector("per_layer_proj_norm.weight", c.per_layer)
    table = b.matrix("per_layer_token_embd.weight", (c.vocab, width))
    yield Embed("e", table, c.per_layer**0.5, given=False)
    yield b.linear("x", "p", "per_layer_model_proj", (width, c.width))
    yield Norm("p", "p", norm, c.eps * c.width)
    yield Add("p", "e", "p", 0.5**0.5)


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    own = c.heads_of(i).window > 0 or b.has("attn_v.weight")
    parts = () if i >= c.owners else ("k", "v") if own else ("k",)
    yield from b.attention(norms=True, biases=False, residual=False, parts=parts, value_norm=True)
    yield b.norm("h", "h", "post_attention_norm.weight")
    yield Add("x", "h", "x")
    yield b.norm("x", "h", "ffn_norm.weight")
    yield from b.mlp(c.ff_of(i), act="gelu", residual=False)
    if c.experts is not None:
        yield from _beside_experts(b, c, c.experts)
    yield b.norm("h", "h", "post_ffw_norm.weight")
    scale = number_of(b.vector("layer_output_scale.weight", 1)) if b.has("layer_output_scale.weight") else 1.0
    yield Add("x", "h", "x", 1.0 if c.per_layer else scale)
    if c.per_layer:
        yield from _per_layer(b, c, i, scale)


def _beside_experts(b: Builder, c: Config, experts: Experts) -> Iterator[Op]:
    """norm(dense) + norm(experts of norm(x)), as ``h``. The router reads the stream, normalised and scaled."""
    yield b.norm("h", "dense", "post_ffw_norm_1.weight")
    scale = b.vector("ffn_gate_inp.scale", c.width) * c.width**-0.5
    yield Norm("x", "routed", scale, c.eps)
    yield b.norm("x", "h", "pre_ffw_norm_2.weight")
    yield from b.mixture(experts, c.expert_ff, act="gelu", router="routed", residual=False)
    yield b.norm("h", "h", "post_ffw_norm_2.weight")
    yield Add("dense", "h", "h")


def _per_layer(b: Builder, c: Config, i: int, scale: float) -> Iterator[Op]:
    """x + norm(projection(gelu(gate x) · the block's embedding)), scaled."""
    yield b.linear("x", "g", "inp_gate", (c.per_layer, c.width))
    yield Columns("p", "own", i * c.per_layer, c.per_layer)
    yield GLU("g", "own", "g", "gelu")
    yield b.linear("g", "h", "proj", (c.width, c.per_layer))
    yield b.norm("h", "h", "post_norm.weight")
    yield Add("x", "h", "x", scale)


GEMMA4 = Family(
    name="gemma4",
    classes=("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"),
    model_types=("gemma4_text", "gemma4", "gemma4_unified_text", "gemma4_unified"),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=NAMES,
    before=ops_before_blocks,
)
