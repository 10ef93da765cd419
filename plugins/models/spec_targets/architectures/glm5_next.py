"""GLM-5.3-Flash: Kimi Linear's layers over several residual streams (hyper-connections).

Delta nets have bounded decays, attention reads the pools of positions that a sparse index chooses, and gated units have
limits. Text only; layers that predict further ahead are not read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from spec_kernels.model.build import Builder
from spec_kernels.model.channel_delta import channel_delta
from spec_kernels.model.latent import latent_attention
from spec_kernels.model.ops import Concat, Op
from spec_kernels.model.shapes import IndexShape, LatentShape, StreamShape
from spec_kernels.model.sparse_index import sparse_index
from spec_kernels.model.streams import read_streams, write_streams

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.kimi_linear import LINEAR as SIZES
from spec_targets.architectures.kimi_linear import NAMES as KIMI_NAMES
from spec_targets.architectures.kimi_linear import delta_in_keys, delta_shape
from spec_targets.architectures.latents import LATENT_NAMES, feed_forward, latent_in_keys
from spec_targets.architectures.names import ATTENTION, ENDS, EXPERTS, MLP, SHARED
from spec_targets.formats.damage import AGAIN
from spec_targets.formats.stored_names import Name

KINDS = ("linear_attention", "full_attention", "indexed_attention")
"""Types of blocks; the last two are the same."""
LINEAR = SIZES | {"gate_lower_bound": "linear_lower_bound"}
"""Options of transformers 5 on recurrent blocks, by the published names."""
INDEX_EPS = 1e-6
"""Epsilon of the norm of index keys, which configs do not say."""
FLOOR = -5.0
"""The lowest logarithm of a decay, where a config says only that there is one."""
INDEXER = {
    "attn_k.weight": "wk.weight", "attn_q_b.weight": "wq_b.weight", "k_norm.weight": "k_norm.weight",
    "k_norm.bias": "k_norm.bias", "proj.weight": "weights_proj.weight",
}  # fmt: skip
NAMES: dict[str, Name] = (
    {name: where for name, where in KIMI_NAMES.items() if name.startswith("ssm_")}
    | ENDS | ATTENTION | MLP | EXPERTS | SHARED | LATENT_NAMES
    | {f"indexer.{name}": f"self_attn.indexer.{where}" for name, where in INDEXER.items()}
    | {f"indexer_compressor_{x}.weight": f"self_attn.indexer.index_kpool_compress_{x}" for x in ("ape", "gate")}
    | {f"hc_{x}_{part}.weight": f"hc_{x}_{part}" for x in ("attn", "ffn") for part in ("fn", "base", "scale")}
    | {
        "ffn_norm.weight": "post_attention_layernorm.weight",
        "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
    }
)  # fmt: skip


def from_gguf(keys: Keys) -> Config:
    layers = keys.layers()
    own = keys.flags("attention.indexer.types", layers) or [1] * layers
    if not keys.get("attention.indexer.kpool_select_tail", True, bool):
        raise UsageError(
            f"{keys.where}: {keys.arch}.attention.indexer.kpool_select_tail is false, which is not supported",
            hint="use a model whose attention reads the positions after the last whole pool",
        )
    more = delta_in_keys(keys, layers) | latent_in_keys(keys, keys.integer("attention.q_lora_rank"))
    return keys.decoder(
        **more | {"unrotated": True, "nextn": 0},
        floor=keys.number("kda.gate_lower_bound", 0.0),
        index=_index(
            keys.where,
            keys.number("attention.layer_norm_epsilon", INDEX_EPS),
            *(keys.integer(f"attention.indexer.{key}") for key in ("head_count", "key_length", "kpool", "top_k")),
        ),
        indexing=frozenset(i for i in range(layers) if own[i]) - more["recurrent"],
        streams=StreamShape(
            count=keys.integer("hyper_connection.count"),
            eps=keys.number("hyper_connection.epsilon"),
            rounds=keys.integer("hyper_connection.sinkhorn_iterations"),
        ),
        experts=keys.experts(sigmoid=True),
        shared_ff=keys.shared_ff(),
        limits=keys.numbers("swiglu_clamp_exp", layers),
        shared_limits=keys.numbers("swiglu_clamp_shexp", layers),
    )


def _index(where: str, eps: float, heads: int, dim: int, pool: int, positions: int) -> IndexShape:
    """positions: of all pools of a row together."""
    if pool < 1 or positions % pool:
        raise UsageError(f"{where}: an index of {positions} positions in pools of {pool}", hint=AGAIN)
    return IndexShape(heads, dim, pool, positions // pool, eps)


def from_hf(json: ConfigJson) -> Config:
    json.refuse(
        attention_bias=(None, False),
        qk_rope_head_dim=(0, None),
        mla_use_nope=(True, None),
        mhc=(True, None),
        index_kpool_always_select_tail=(True, None),
        index_topk_pattern=(None,),
        index_topk_freq=(1, None),
    )
    rank, queries, plain, value = map(json.integer, ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "v_head_dim"))
    json = ConfigJson({**json.raw, "head_dim": rank}, json.arch, json.kind, json.where)  # saved as that of rotation, 0
    layers, linear = json.layers(), _linear_config(json)
    kinds = json.kinds(layers, KINDS) or [KINDS[i % 4 == 3] for i in range(layers)]
    recurrent = frozenset(i for i, kind in enumerate(kinds) if kind == KINDS[0])
    limit = (json.number("swiglu_limit", 10.0),) * layers
    return json.decoder(
        ("layer_types",),
        unrotated=True,
        latent=LatentShape(rank, 0, plain, value, queries),
        kv_heads=1,
        rotary_dim=0,
        inner_eps=json.number("rms_norm_eps", 1e-5),
        delta=delta_shape(*map(linear.integer, ("num_heads", "head_dim", "short_conv_kernel_size"))),
        floor=_floor(linear),
        recurrent=recurrent,
        index=_index(
            json.where, INDEX_EPS, *map(json.integer, ("index_n_heads", "index_head_dim", "index_kpool", "index_topk"))
        ),
        indexing=_indexing(json, layers) - recurrent,
        streams=StreamShape(json.integer("hc_mult"), json.number("hc_eps"), json.integer("hc_sinkhorn_iters")),
        experts=json.experts(sigmoid=True, normalise=True),
        expert_ff=json.integer("moe_intermediate_size"),
        shared_ff=json.shared_ff(),
        dense=json.dense_blocks(),
        limits=limit,
        shared_limits=limit,
        nextn=0,
    )


def _linear_config(json: ConfigJson) -> ConfigJson:
    """The part of a config on recurrent blocks; transformers 5 saves its values at the top."""
    part = json.raw.get("linear_attn_config", {own: json.raw.get(name) for own, name in LINEAR.items()})
    if not isinstance(part, dict):
        raise UsageError(
            f"{json.where}: config.json has linear_attn_config = {repr(part)[:60]}", hint="a table is needed"
        )
    return ConfigJson(part, json.arch, json.kind, json.where)


def _floor(config: ConfigJson) -> float:
    """The lowest logarithm of a decay; 0: none."""
    floor = config.raw.get("gate_lower_bound")
    if floor is None:
        return FLOOR if config.raw.get("safe_gate") else 0.0
    if not isinstance(floor, float | int) or not -math.inf < floor < 0:
        raise UsageError(
            f"{config.where}: config.json has gate_lower_bound = {repr(floor)[:60]}", hint="a number below 0 is needed"
        )
    return float(floor)


def _indexing(json: ConfigJson, layers: int) -> frozenset[int]:
    """The blocks with an index of their own."""
    types = json.raw.get("indexer_types") or ["full"] * layers
    if not isinstance(types, list) or len(types) != layers or not set(map(str, types)) <= {"full", "shared"}:
        raise UsageError(
            f"{json.where}: config.json has indexer_types = {str(types)[:60]}",
            hint=f"a list of {layers} types, 'full' or 'shared', is needed",
        )
    return frozenset(i for i, kind in enumerate(types) if kind == "full")


def ops_before_blocks(b: Builder, c: Config) -> Iterable[Op]:
    """All streams begin with the embedding."""
    assert c.streams is not None
    yield Concat(("x",) * c.streams.count, "x")


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    assert c.streams is not None and c.delta is not None and c.latent is not None and c.index is not None
    yield from read_streams(b, c.streams, "hc_attn")
    yield b.norm("h", "h", "attn_norm.weight")
    if i in c.recurrent:
        yield from channel_delta(b, c.delta, 1e-6, c.floor, residual=False)
    else:
        index = sparse_index(b, c.index, c.latent, c.index_layer(i)) if i in c.indexing else ()
        yield from latent_attention(b, c.latent, c.inner_eps, index, c.index.pool, residual=False)
    yield write_streams(c.streams)
    yield from read_streams(b, c.streams, "hc_ffn")
    yield from feed_forward(b, c, i, "h")
    yield write_streams(c.streams)


GLM5_NEXT = Family(
    name="glm5-next",
    classes=("Glm5NextForConditionalGeneration",),
    model_types=("glm5_next", "glm5_next_text"),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=NAMES,
    before=ops_before_blocks,
)
