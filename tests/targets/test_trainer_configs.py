"""Configs of public trainers, with small sizes and random tensors, and every key that a dialect says it reads."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from spec_targets.architectures.heads.dialects import BLOCKS, PAIRS, value_at

from spec_core import UsageError, load
from tests.support.small_heads import edit_config, edit_tensors, target_with
from tests.targets.head_tensors import tensors_of, write_head

CONFIGS = json.loads(Path(__file__).with_name("trainer_configs.json").read_text("utf-8"))
"""{trainer and name: what is recognised and repaired, and the facts of the published config}."""
LAYERS = 94


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_config_is_read_or_refused_by_name(name, tmp_path):
    """Ids that are listed are read; without a list the paper's are."""
    reads, config = CONFIGS[name]["reads"], CONFIGS[name]["config"]
    folder = write_head(tmp_path / "head", config)
    if reads.startswith("refused: "):
        with pytest.raises(UsageError, match=re.escape(reads.removeprefix("refused: "))):
            load(folder, weights=False)
        return
    file = load(folder, weights=False)
    target = target_with(layers=LAYERS, vocab=96, context=2048)
    keys = ("dflash_config.target_layer_ids", "target_layer_ids", "eagle_config.eagle_aux_hidden_state_layer_ids")
    outputs = next((ids for key in keys if (ids := value_at(config, key))), None)
    inputs = next((ids for key in (AUX, "aux_hidden_state_layer_ids") if (ids := config.get(key))), None)
    listed = inputs or (outputs and [i + 1 for i in outputs])

    assert file.head.description == reads
    assert file.misfit(target) is None
    assert file.head.sources(LAYERS) == tuple(listed or (2, LAYERS // 2, LAYERS - 3))


SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "vocab_size": 96, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "hidden_act": "silu", "num_hidden_layers": 2,
}  # fmt: skip
AUX = "eagle_aux_hidden_state_layer_ids"
PAIR = {**SIZES, "num_hidden_layers": 1, "draft_vocab_size": 40, "tie_word_embeddings": False}
NESTED = {"mask_token_id": 95, "target_layer_ids": [0, 2]}
FLAT = {"block_size": 5, **NESTED}
MARKOV = {"markov_rank": 4, "markov_head_type": "vanilla"}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
SAMPLES: dict[str, dict[str, Any]] = {
    "pairs speculators": {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": 40,
        "norm_before_residual": False, "norm_output": False, AUX: [1, 3, 4],
        "transformer_layer_config": {**SIZES, "num_hidden_layers": 1},
    },
    "pairs NeMo AutoModel": {"architectures": ["LlamaEagle3DraftModel"], **PAIR, "norm_output": False, AUX: [1, 3, 4]},
    "pairs AngelSlim": {"architectures": ["Eagle3LlamaForCausalLM"], **PAIR, AUX: [1, 3, 4]},
    "pairs Model-Optimizer": {
        "architectures": ["LlamaForCausalLMEagle3"], **PAIR,
        "eagle_config": {AUX: [0, 2, 3], "use_last_layernorm": True},
    },
    "pairs SpecForge": {
        "architectures": ["LlamaForCausalLMEagle3"], **PAIR, "norm_output": True, "eagle_config": {AUX: [0, 2, 3]},
    },
    "pairs SafeAILab": {
        "architectures": ["LlamaForCausalLMEagle3"], **PAIR, AUX: [1, 3, 4], "norm_before_residual": False,
    },
    "blocks speculators": {
        "architectures": ["DSparkSpeculator"], "speculators_model_type": "dspark", "block_size": 5, "mask_token_id": 95,
        "aux_hidden_state_layer_ids": [1, 3], "sample_from_anchor": False, "draft_vocab_size": 96,
        "transformer_layer_config": {**SIZES}, **MARKOV,
    },
    "blocks NVIDIA Model-Optimizer": {
        "architectures": ["DFlashDraftModel"], **SIZES, "block_size": 5, "sample_from_anchor": False,
        "has_embed_tokens": True,
        "dflash_config": {**NESTED, "use_swa": True, "swa_window_size": 16, "causal": True},
    },
    "blocks Meta's Muse assistant": {
        "architectures": ["MuseGlimmerAssistantModel"], **SIZES, **ROPE, **FLAT, "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "blocks Laguna": {
        "architectures": ["DFlashLagunaForCausalLM"], **SIZES, "gating": "per-head",
        "num_attention_heads_per_layer": [4, 6], "sliding_windows": [16, None],
        "dflash_config": {**NESTED, "block_size": 5, "causal": True},
    },
    "blocks SpecForge": {
        "architectures": ["DSpineDraftModel"], **SIZES, "block_size": 5, "is_causal": True, "dflash_config": NESTED,
        "dspine_config": {"transfer_rank": 6, "message_size": 5, "top_k": 4},
    },
    "blocks NVIDIA": {
        "architectures": ["LiLiCorrDraftModel"], **SIZES, "block_size": 5,
        "dflash_config": {
            **NESTED, "causal": False, "lilicorr_candidate_topk": 4, "lilicorr_num_heads": 2,
            "lilicorr_hidden_size": 8, "lilicorr_num_layers": 1, "lilicorr_factor_dim": 5,
            "lilicorr_vector_eps": 1e-6, "lilicorr_logit_scale": 10.0,
        },
    },
    "blocks SpecForge DSpark": {
        "architectures": ["DSparkDraftModel"], **SIZES, "block_size": 5, **MARKOV,
        "dflash_config": {**NESTED, "projector_type": "dspark"},
    },
    "blocks Liquid AI": {
        "architectures": ["Lfm2DSparkDraftModel"], **SIZES, **FLAT, **MARKOV, "rope_is_neox_style": False,
    },
    "blocks DeepSpec": {
        "architectures": ["Qwen3DSparkModel"], **SIZES, **ROPE, **FLAT, **MARKOV, "tie_word_embeddings": False,
    },
    "blocks NeMo AutoModel": {
        "architectures": ["Qwen3DFlashDraftModel"], **SIZES, "block_size": 5, "dflash_config": NESTED,
        "is_causal": False, "output_multiplier": 1.0, "final_logit_softcapping": 30.0, "input_embedding_scale": 1.0,
    },
    "blocks z-lab": {
        "architectures": ["DFlashDraftModel"], **SIZES, "block_size": 5, "dflash_config": NESTED,
        "layer_types": ["full_attention", "full_attention"],
    },
}  # fmt: skip
"""A config of each dialect. Layers of Gemma 4 are tested with a golden head."""
KEYS = [
    (f"{kind} {dialect.name}", key)
    for kind, dialects in (("pairs", PAIRS), ("blocks", BLOCKS))
    for dialect in dialects
    for key in dialect.reads
    if "Gemma 4" not in dialect.name
]


def change_value(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 2 if value < 90 else value - 1
    if isinstance(value, list):
        return [*value[1:], value[0]] if value[0] != value[-1] else ["sliding_attention", *value[1:]]
    return "another"


def write(folder: Path, name: str, config: dict[str, Any]) -> Path:
    """The config with tensors of the sample; tied heads have an embedding and no output matrix."""
    sample = SAMPLES[name]
    sizes = {**sample.get("transformer_layer_config", {}), **sample}
    torch.manual_seed(0)
    path = write_head(folder, sizes)
    (path / "config.json").write_text(json.dumps(config))
    assert tensors_of(sizes)
    return path


def state_of(path: Path) -> Any:
    """What a head drafts with: fields, angles, and the order of rows; or that it is refused."""
    try:
        file = load(path, weights=False)
    except UsageError as error:
        return error.reason
    head = file.head
    fields = {f.name: getattr(head, f.name) for f in attrs.fields(type(head)) if f.name not in ("name", "d2t")}
    return repr(fields), head.rotation()[0].tolist(), dict(file.tensors.pairs)


@pytest.mark.parametrize(("name", "key"), KEYS)
def test_a_key_that_a_dialect_reads_changes_the_draft_or_is_refused(name, key, tmp_path):
    config = SAMPLES[name]
    assert value_at(config, key) is not None, "the sample lacks a key that the dialect says it reads"
    other = copy.deepcopy(config)
    *outer, last = key.split(".")
    holder = other
    for part in outer:
        holder = holder[part]
    holder[last] = change_value(holder[last])
    paths = [write(tmp_path / "a", name, config), write(tmp_path / "b", name, other)]
    if key == "tie_word_embeddings":
        for path in paths:
            drop_output(path)
    one, two = map(state_of, paths)

    assert not isinstance(one, str), one
    assert one != two


def drop_output(path: Path) -> None:
    """Leave an embedding alone, where a flag decides."""

    def change(named):
        for name in ("lm_head.weight", "d2t", "t2d"):
            named.pop(name, None)
        named["embed_tokens.weight"] = torch.ones(96, 32)

    edit_tensors(path, change)
    edit_config(path, lambda raw: raw.pop("draft_vocab_size", None))
