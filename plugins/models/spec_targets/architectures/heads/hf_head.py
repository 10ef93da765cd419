"""A head in a Hugging Face directory: SafeAILab, SpecForge and speculators (eagle3), z-lab and speculators (dflash)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from spec_core.errors import UsageError
from spec_targets.architectures.by_class import config_of, divisors_of
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.gemma4 import heads_by_kind
from spec_targets.architectures.heads import tensors
from spec_targets.architectures.heads.block_facts import (
    block_facts,
    layer_ids,
    selector_facts,
    sequential_facts,
    sizes_of,
)
from spec_targets.architectures.heads.check import check_tensors
from spec_targets.architectures.heads.checkpoint import HeadCheckpoint
from spec_targets.architectures.heads.head import Head, HeadKind, Reading
from spec_targets.architectures.heads.names import DSPARK, GEMMA4, TARGETS_OWN, layer_names, our_name
from spec_targets.architectures.heads.tensors import HeadTensors, StoredTensor
from spec_targets.formats import pickled

MASK_VECTOR = "mask_embedding.pt"
AUX = "eagle_aux_hidden_state_layer_ids"
NEUTRAL: dict[str, Any] = {
    "attention_value_scale": 1.0, "output_multiplier": 1.0, "final_logit_softcapping": 0.0,
    "input_embedding_scale": 1.0, "use_swa": False, "markov_head_type": "vanilla",
}  # fmt: skip
NEUTRAL_DFLASH: dict[str, Any] = {"sample_from_anchor": False, "rope_is_neox_style": True}
"""Options of block drafters, with their neutral value; other values are not supported."""
SLIDING = ("use_sliding_window", "sliding_window", "layer_types", "max_window_layers")
"""Keys of sliding attention, which the config reader for models does not support."""


def open_tensors(directory: Path) -> HeadTensors:
    """Tensors of a directory. Raises UsageError for a tensor that is there twice, and for a vector of the mask."""
    where = directory.name
    if (directory / MASK_VECTOR).exists():
        raise UsageError(
            f"{where}: a vector of its own for the mask token ({MASK_VECTOR}) is not supported",
            hint="use another head",
        )
    tensors: dict[str, StoredTensor] = {}
    stored = pickled.open_tensors(directory)
    layer = layer_names(stored)
    for name, tensor in stored.items():
        if (ours := our_name(name, layer)) in tensors:
            raise UsageError(f"{where}: two of its tensors are {ours!r}, one was needed", hint="use another head")
        if not TARGETS_OWN.fullmatch(name):
            tensors[ours] = tensor
    return HeadTensors(where, tensors)


def from_directory(directory: Path, raw: Mapping[str, Any]) -> HeadCheckpoint:
    """Description and tensors. Raises UsageError for anything missing, damaged or unsupported."""
    name = directory.name
    source = open_tensors(directory)
    kind = kind_of(raw, source)
    sizes = raw.get("transformer_layer_config", raw)
    if not isinstance(sizes, dict):
        raise UsageError(f"{name}: config.json has transformer_layer_config = {str(sizes)[:40]!r}", hint="get it again")
    arch = "LlamaForCausalLM" if kind == "eagle3" else "Qwen3ForCausalLM"
    _check_names(raw, kind, name)
    if _is_gemma4(raw):
        sizes = _gemma4_sizes(sizes, name)
    plain = {key: value for key, value in sizes.items() if key not in SLIDING}
    config = config_of({**plain, "architectures": [arch]}, name)
    config.check(name)
    _check_rotary(config)
    head = (_eagle3 if kind == "eagle3" else _dflash)(_common(raw, sizes, config, source, kind), raw, sizes, source)
    check_tensors(head, source)
    return HeadCheckpoint(head, source, path=directory)


GEMMA4_NEUTRAL: dict[str, Any] = {
    "hidden_activation": "gelu_pytorch_tanh", "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0,
    "enable_moe_block": False, "final_logit_softcapping": 0.0,
}  # fmt: skip
"""Options of Gemma 4's layers, with the value that is supported in a draft head."""


def _is_gemma4(raw: Mapping[str, Any]) -> bool:
    return GEMMA4 in str(raw.get("architectures"))


def _gemma4_sizes(sizes: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Sizes of layers of Gemma 4, all with full attention, by the keys of other families."""
    _check_neutral(sizes, name, GEMMA4_NEUTRAL)
    _check_full_attention(sizes, name)
    rope = sizes.get("rope_parameters")
    full = rope.get("full_attention") if isinstance(rope, dict) else None
    json = ConfigJson(sizes, "gemma4", GEMMA4, name)
    (head, kv_heads), _ = heads_by_kind(json, (0,) * json.layers())
    return {**sizes, "head_dim": head, "num_key_value_heads": kv_heads, "rope_parameters": full or rope}


def _check_rotary(config: Config) -> None:
    """Raise UsageError for a head that rotates a part of the dimensions of q and k."""
    if config.rotary_dim != config.head:
        raise UsageError(
            f"{config.name}: partial_rotary_factor rotates {config.rotary_dim} of {config.head} dimensions of an "
            "attention head, which is not supported in a draft head",
            hint="use a head that rotates all of them",
        )


def _check_names(raw: Mapping[str, Any], kind: HeadKind, where: str) -> None:
    """Raise UsageError for a DSpark head of a family whose layers differ."""
    names = raw.get("architectures")
    first = str(names[0]) if isinstance(names, list) and names else DSPARK[0]
    if kind == "dspark" and (first not in DSPARK or "deepseek" in str(raw.get("model_type"))):
        raise UsageError(
            f"{where}: {first[:60]} of {str(raw.get('model_type'))[:40]} is not read; known are {', '.join(DSPARK)}",
            hint="use another head of the same model",
        )


def kind_of(raw: Mapping[str, Any], source: HeadTensors) -> HeadKind:
    """The kind, from the config or else from the tensors. Raises UsageError for a head that is none of them."""
    names = f"{raw.get('speculators_model_type')} {raw.get('architectures')}"
    if "DFlash2" in names or "dflash2" in names or source.shape("selector_hidden.weight") is not None:
        return "dflash2"
    if "DSpark" in names or "dspark" in names or source.shape("markov_w1.weight") is not None:
        return "dspark"
    if "dflash_config" in raw or "DFlash" in names or "dflash" in names:
        return "dflash"
    if "agle3" in names or source.shape("blk.0.attn_norm_2.weight") is not None:
        return "eagle3"
    raise UsageError(
        f"{source.where}: this is no eagle3, dflash, dspark or dflash2 head ({names[:60]})",
        hint="give one of them; EAGLE-1 and EAGLE-2 are not supported",
    )


def _common(raw: Mapping[str, Any], sizes: Mapping[str, Any], c: Config, source: HeadTensors, kind: HeadKind) -> Head:
    """Fields that all kinds have."""
    target_width = raw.get("target_hidden_size") or c.width
    fc, output = source.shape("fc.weight") or (0, 0), source.shape("output.weight")
    rows = output[0] if output else c.vocab
    if rows < 1:
        raise UsageError(f"{source.where}: 'lm_head.weight' has no rows", hint=tensors.DAMAGED)
    if type(target_width) is not int or target_width < 1 or fc[-1] < target_width or fc[-1] % target_width:
        raise UsageError(
            f"{source.where}: 'fc.weight' reads {fc[-1]} numbers, a multiple of the target's width "
            f"{repr(target_width)[:20]} was needed",
            hint=tensors.DAMAGED,
        )
    stated = raw.get("draft_vocab_size")
    if stated not in (None, rows):
        raise UsageError(
            f"{source.where}: config.json has draft_vocab_size = {repr(stated)[:40]}, its logits have {rows} rows",
            hint=tensors.DAMAGED,
        )
    return Head(
        kind=kind,
        name=source.where,
        producer=producer(raw),
        target_width=target_width,
        inputs=fc[-1] // target_width,
        draft_vocab=rows,
        divisors=divisors_of({**sizes, "architectures": None}, c),
        d2t=tensors.mapping(source.d2t(), rows, c.vocab, offsets=True, where=source.where),
        **sizes_of(c, source),
    )


def producer(raw: Mapping[str, Any]) -> str:
    """The program that wrote it, if that changes the meaning of its numbers."""
    if "speculators_model_type" in raw:
        return "speculators"
    if "dflash_config" in raw:
        return "z-lab"
    return "SpecForge" if "eagle_config" in raw else "SafeAILab"


def _eagle3(head: Head, raw: Mapping[str, Any], sizes: Mapping[str, Any], source: HeadTensors) -> Head:
    _check_neutral({**sizes, **raw}, head.name, NEUTRAL | NEUTRAL_DFLASH)
    _check_full_attention(sizes, head.name)
    ids, reading = _aux(raw, head)
    return attrs.evolve(
        head,
        ids=ids,
        reading=reading,
        norm_before_residual=_residual(raw, head),
        norm_before_fc=source.shape("input_norm.weight") is not None,
        fc_norm=source.shape("input_norm.0.weight") is not None,
        norm_output=_flag(raw, "norm_output", head.name),
    )


def _check_full_attention(sizes: Mapping[str, Any], name: str) -> None:
    """Raise UsageError for a head with sliding windows, where it may have none."""
    full = {"use_sliding_window": (None, False), "layer_types": (None, ["full_attention"] * len(_layer_types(sizes)))}
    for key, accepted in full.items():
        if sizes.get(key) not in accepted:
            raise UsageError(
                f"{name}: {key} = {repr(sizes[key])[:60]} is not supported in such a head",
                hint="use a head whose layers all have full attention",
            )


def _layer_types(sizes: Mapping[str, Any]) -> list[Any]:
    kinds = sizes.get("layer_types")
    return kinds if isinstance(kinds, list) else []


def _aux(raw: Mapping[str, Any], head: Head) -> tuple[tuple[int, ...] | None, Reading]:
    """Ids of the layers that the head reads: at the top level their inputs (vLLM, nvidia, speculators), in
    ``eagle_config`` their outputs (SpecForge)."""
    nested = raw.get("eagle_config")
    listed, reading = raw.get(AUX), "inputs"
    if listed is None and isinstance(nested, dict):
        listed, reading = nested.get(AUX), "outputs"
    ids = None if listed is None else layer_ids(listed, AUX, head.name)
    return ids, "outputs" if reading == "outputs" else "inputs"


def _residual(raw: Mapping[str, Any], head: Head) -> bool:
    """``norm_before_residual`` of a head; required in speculators files: their loaders disagree on the default."""
    if head.producer == "speculators" and "norm_before_residual" not in raw:
        raise UsageError(
            f"{head.name}: config.json has no norm_before_residual, which a speculators file needs",
            hint="add it, as the head was trained: true or false",
        )
    return _flag(raw, "norm_before_residual", head.name)


def _flag(raw: Mapping[str, Any], key: str, name: str) -> bool:
    value = raw.get(key)
    if value not in (None, True, False):
        raise UsageError(f"{name}: config.json has {key} = {str(value)[:40]!r}", hint="true or false is needed")
    return bool(value)


def _dflash(head: Head, raw: Mapping[str, Any], sizes: Mapping[str, Any], source: HeadTensors) -> Head:
    options = {**raw, **raw["dflash_config"]} if isinstance(raw.get("dflash_config"), dict) else dict(raw)
    _check_neutral({**sizes, **options}, head.name, NEUTRAL if head.kind == "dspark" else NEUTRAL | NEUTRAL_DFLASH)
    if options.get("rope_is_neox_style") is not None and not _flag(options, "rope_is_neox_style", head.name):
        source.pairs = {"attn_q.": head.heads, "attn_k.": head.kv_heads, "attn_q_norm.": 1, "attn_k_norm.": 1}
    ids, reading = _block_ids(options, head)
    windows = _windows(sizes, head)
    block, mask = options.get("block_size"), options.get("mask_token_id")
    facts = block_facts(block, mask, windows, (), (head.context, head.vocab), head.name)
    return attrs.evolve(
        head,
        ids=ids,
        reading=reading,
        certain=True,
        **_gemma4_layers(head, source) if _is_gemma4(raw) else {},
        anchor=head.kind == "dspark" and _samples_from_anchor(options, head.name),
        **{**facts, "causal": _causal(options, windows, head.name)},
        **sequential_facts(source, head.name, options.get("markov_rank")),
        **selector_facts(source, head.width, options, head.name),
    )


def _gemma4_layers(head: Head, source: HeadTensors) -> dict[str, Any]:
    """Fields of a head with layers of Gemma 4."""
    return {
        "embed_scale": head.width**0.5,
        "scale": 1.0,
        "act": "gelu",
        "post_norms": True,
        "own_values": source.shape("blk.0.attn_v.weight") is not None,
    }


def _samples_from_anchor(options: Mapping[str, Any], name: str) -> bool:
    """Whether the last committed token's row predicts: if the file says nothing, unless speculators wrote it."""
    if options.get("sample_from_anchor") is not None:
        return _flag(options, "sample_from_anchor", name)
    return not {"transformer_layer_config", "aux_hidden_state_layer_ids"} & options.keys()


def _check_neutral(options: Mapping[str, Any], name: str, neutral_values: Mapping[str, Any] = NEUTRAL) -> None:
    for key, neutral in neutral_values.items():
        if options.get(key) not in (None, neutral):
            raise UsageError(f"{name}: {key} = {repr(options[key])[:40]} is not supported", hint="use another head")


def _block_ids(options: Mapping[str, Any], head: Head) -> tuple[tuple[int, ...] | None, Reading]:
    """Ids of layers: speculators counts layers whose input is read, z-lab layers whose output is read."""
    for key, reading in (("aux_hidden_state_layer_ids", "inputs"), ("target_layer_ids", "outputs")):
        if options.get(key) is not None:
            return layer_ids(options[key], key, head.name), "inputs" if reading == "inputs" else "outputs"
    return None, "outputs"


def _windows(sizes: Mapping[str, Any], head: Head) -> tuple[int, ...]:
    """Sliding window of each layer, 0 for full attention."""
    kinds = sizes.get("layer_types") or ["full_attention"] * head.layers
    known = {"full_attention", "sliding_attention"}
    if not isinstance(kinds, list) or len(kinds) != head.layers or not set(map(str, kinds)) <= known:
        raise UsageError(
            f"{head.name}: config.json has layer_types = {str(kinds)[:60]!r}",
            hint=f"{' or '.join(sorted(known))} for each of {head.layers} layers is needed",
        )
    window = sizes.get("sliding_window")
    if "sliding_attention" in kinds and (type(window) is not int or window < 1):
        raise UsageError(
            f"{head.name}: config.json has sliding_window = {str(window)[:40]!r}", hint="a positive number is needed"
        )
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def _causal(options: Mapping[str, Any], windows: tuple[int, ...], name: str) -> tuple[bool, ...]:
    """Whether layers are causal inside the block; sliding ones are (vLLM, SGLang, SpecForge) by default."""
    if _flag(options, "sliding_window_non_causal", name):
        return (False,) * len(windows)
    given = next((_flag(options, key, name) for key in ("causal", "is_causal") if options.get(key) is not None), None)
    return tuple(bool(w) if given is None else given for w in windows)
