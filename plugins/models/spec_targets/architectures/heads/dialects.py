"""Dialects of draft heads: how each trainer writes one, and what its files say that its training did not read.

A tensor that is there counts before the dialect, the dialect before a flag of the file. A reader names what it
recognised and repaired; what a file leaves open and no dialect answers is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

import attrs

Reading = Literal["inputs", "outputs"]
Output = Literal["own", "target", "flag"]
AUX = "eagle_aux_hidden_state_layer_ids"
SIZES = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "rms_norm_eps", "rope_theta", "max_position_embeddings", "hidden_act",
)  # fmt: skip
"""Keys that all dialects read."""
BLOCK = ("block_size", "mask_token_id")
MARKOV = ("markov_rank", "markov_head_type")


@attrs.frozen
class Dialect:
    """How one trainer writes heads of pairs, or of blocks."""

    name: str
    """Name of the trainer."""
    classes: tuple[str, ...] = ()
    """``architectures`` that it alone writes."""
    marks: tuple[str, ...] = ()
    """Keys of config.json that it alone writes, with dots between levels."""
    tensors: str | None = None
    """A pattern of tensor names, by our own, that it alone writes."""
    ids: tuple[tuple[str, Reading], ...] = ()
    """Keys that list the layers that are read, the first that is there counts; a number means a layer's input or its
    output."""
    paper: bool = False
    """Whether, without a list, the layers of the method's paper are read."""
    normed: bool = True
    """Whether the state after the last layer is the one after the final norm."""
    output: Output = "flag"
    """Where the head has an embedding and no output matrix, logits are made by its own embedding or by the target's
    output matrix; ``flag``: by its own if ``tie_word_embeddings`` says so."""
    offsets: bool = True
    """Whether ``d2t`` holds distances from the row's number, not tokens."""
    nested: tuple[str, ...] = ()
    """Objects whose keys count before those at the top."""
    reads: tuple[str, ...] = ()
    """Keys that it reads, with dots between levels."""
    wide: bool = False
    """Whether windows include the key at the distance of the window."""
    context_norm: bool = False
    """Whether rows of committed positions pass each layer's norm."""
    anchored: bool = False
    """Whether the row of the last committed token predicts, where the file does not say."""
    two_way: bool = False
    """Whether rows of a block attend in both directions in layers with windows too."""
    norm_output_is_last_norm: bool = False
    """Whether ``norm_output`` is the norm before the output matrix, not a normed state that is fed back."""
    gate: Literal["", "softplus"] = ""
    """Function of the gates of its attention."""
    causal: bool = False
    """Whether rows of a block attend to earlier ones alone, where the file does not say."""
    unread: tuple[str, ...] = ()
    """Keys of the target's config that are copied and that its training of pairs does not read."""

    def matches(self, raw: Mapping[str, Any], names: Collection[str]) -> bool:
        """Whether a config and names of tensors are of this dialect."""
        listed = raw.get("architectures")
        first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], str) else None
        by_name = first in self.classes or any(value_at(raw, mark) is not None for mark in self.marks)
        return by_name or (self.tensors is not None and any(re.fullmatch(self.tensors, name) for name in names))


PAIRS = (
    Dialect(
        "speculators",
        marks=("speculators_model_type",),
        ids=((AUX, "inputs"),),
        paper=True,
        normed=False,
        output="target",
        reads=(AUX, "norm_before_residual", "norm_output", "draft_vocab_size"),
    ),
    Dialect(
        "NeMo AutoModel",
        classes=("LlamaEagle3DraftModel", "Qwen3Eagle3DraftModel"),
        ids=((AUX, "inputs"),),
        paper=True,
        normed=False,
        unread=("layer_types", "use_sliding_window", "final_logit_softcapping"),
        output="target",
        reads=(*SIZES, "vocab_size", "norm_output", "draft_vocab_size"),
    ),
    Dialect(
        "AngelSlim",
        classes=("Eagle3LlamaForCausalLM",),
        ids=((AUX, "inputs"), (f"eagle_config.{AUX}", "outputs")),
        paper=True,
        normed=False,
        output="target",
        reads=(*SIZES, "vocab_size", "draft_vocab_size"),
    ),
    Dialect(
        "Model-Optimizer",
        marks=(
            "eagle_config.use_input_layernorm_in_first_layer",
            "eagle_config.next_layer_regular",
            "eagle_config.parallel_draft_step",
            "eagle_config.use_last_layernorm",
        ),
        ids=((f"eagle_config.{AUX}", "outputs"), ("eagle_config.layer_ids", "inputs"), (AUX, "inputs")),
        paper=True,
        normed=False,
        output="target",
        reads=(*SIZES, "vocab_size", f"eagle_config.{AUX}", "draft_vocab_size"),
    ),
    Dialect(
        "SpecForge",
        marks=("eagle_config", "fc_norm", "norm_output", "target_model_type"),
        ids=((f"eagle_config.{AUX}", "outputs"), ("eagle_config.layer_ids", "inputs"), (AUX, "inputs")),
        paper=True,
        normed=False,
        norm_output_is_last_norm=True,
        reads=(*SIZES, "vocab_size", f"eagle_config.{AUX}", "draft_vocab_size", "norm_output", "tie_word_embeddings"),
    ),
    Dialect(
        "SafeAILab",
        ids=((AUX, "inputs"),),
        paper=True,
        normed=False,
        reads=(*SIZES, "vocab_size", AUX, "norm_before_residual", "draft_vocab_size", "tie_word_embeddings"),
    ),
)
"""Of heads that read pairs of a hidden state and a token; the last one if no other matches."""

OUT_IDS: tuple[tuple[str, Reading], ...] = (("target_layer_ids", "outputs"), ("aux_hidden_state_layer_ids", "inputs"))
BLOCKS = (
    Dialect(
        "speculators",
        marks=("speculators_model_type",),
        ids=(("aux_hidden_state_layer_ids", "inputs"), ("target_layer_ids", "outputs")),
        output="target",
        reads=(*BLOCK, "aux_hidden_state_layer_ids", "sample_from_anchor", "draft_vocab_size"),
    ),
    Dialect(
        "NVIDIA Model-Optimizer",
        marks=(
            "has_embed_tokens",
            "dspark_bonus_anchor",
            "dflash_config.use_swa",
            "dflash_config.attention_sink_bias",
            "dflash_config.shift_label",
        ),
        tensors=r".*attn_sinks\.weight",
        ids=(*OUT_IDS, (AUX, "inputs")),
        output="target",
        nested=("dflash_config",),
        reads=(
            *SIZES, "vocab_size", "block_size", "dflash_config.mask_token_id", "dflash_config.target_layer_ids",
            "dflash_config.swa_window_size", "dflash_config.causal", "sample_from_anchor",
        ),
    ),
    Dialect(
        "Meta's Muse assistant",
        classes=("MuseGlimmerAssistantModel",),
        ids=OUT_IDS,
        output="target",
        wide=True,
        two_way=True,
        reads=(
            "hidden_size", "num_attention_heads", "intermediate_size", "rms_norm_eps", "rope_parameters.rope_theta",
            *BLOCK, "target_layer_ids", "sliding_window", "layer_types",
        ),
    ),
    Dialect(
        "Laguna",
        classes=("DFlashLagunaForCausalLM",),
        ids=(*OUT_IDS, (AUX, "inputs")),
        output="target",
        nested=("dflash_config",),
        context_norm=True,
        gate="softplus",
        reads=(
            "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
            "intermediate_size", "rms_norm_eps", "rope_theta", "vocab_size", "dflash_config.block_size",
            "dflash_config.mask_token_id", "dflash_config.target_layer_ids", "dflash_config.causal", "sliding_windows",
            "num_attention_heads_per_layer",
        ),
    ),
    Dialect(
        "SpecForge",
        classes=("DSpineDraftModel",),
        marks=("dspine_config",),
        ids=OUT_IDS,
        output="target",
        nested=("dflash_config",),
        causal=True,
        reads=(
            *SIZES, "vocab_size", "block_size", "dflash_config.mask_token_id", "dflash_config.target_layer_ids",
            "is_causal", "dspine_config.transfer_rank", "dspine_config.message_size", "dspine_config.top_k",
        ),
    ),
    Dialect(
        "NVIDIA",
        classes=("LiLiCorrDraftModel",),
        marks=("dflash_config.lilicorr_enabled", "dflash_config.lilicorr_num_heads"),
        ids=OUT_IDS,
        output="target",
        nested=("dflash_config",),
        reads=(
            *SIZES, "vocab_size", "block_size", "dflash_config.mask_token_id", "dflash_config.target_layer_ids",
            "dflash_config.causal", "dflash_config.lilicorr_candidate_topk", "dflash_config.lilicorr_num_heads",
            "dflash_config.lilicorr_hidden_size", "dflash_config.lilicorr_num_layers",
            "dflash_config.lilicorr_factor_dim", "dflash_config.lilicorr_vector_eps",
            "dflash_config.lilicorr_logit_scale",
        ),
    ),
    Dialect(
        "DeepSpec, Gemma 4",
        classes=("Gemma4DSparkModel",),
        ids=OUT_IDS,
        output="own",
        anchored=True,
        reads=(
            "hidden_size", "num_hidden_layers", "num_attention_heads", "global_head_dim", "intermediate_size",
            "rms_norm_eps", "rope_parameters.full_attention.rope_theta", "vocab_size", *BLOCK, "target_layer_ids",
            *MARKOV,
        ),
    ),
    Dialect(
        "SpecForge DSpark",
        classes=("DSparkDraftModel",),
        marks=("dflash_config.projector_type",),
        ids=OUT_IDS,
        nested=("dflash_config",),
        anchored=True,
        reads=(
            *SIZES, "vocab_size", "block_size", "dflash_config.mask_token_id", "dflash_config.target_layer_ids",
            *MARKOV,
        ),
    ),
    Dialect(
        "Liquid AI",
        classes=("Lfm2DSparkDraftModel",),
        ids=OUT_IDS,
        nested=("dflash_config",),
        anchored=True,
        reads=(*SIZES, "vocab_size", *MARKOV, "rope_is_neox_style"),
    ),
    Dialect(
        "DeepSpec",
        classes=("Qwen3DSparkModel",),
        ids=OUT_IDS,
        nested=("dflash_config",),
        anchored=True,
        reads=(
            *(key for key in SIZES if key != "rope_theta"), "rope_parameters.rope_theta", "vocab_size", *BLOCK,
            "target_layer_ids", *MARKOV, "tie_word_embeddings",
        ),
    ),
    Dialect(
        "NeMo AutoModel",
        classes=("Qwen3DFlashDraftModel",),
        marks=("output_multiplier", "input_embedding_scale"),
        ids=OUT_IDS,
        nested=("dflash_config",),
        reads=(
            *SIZES, "vocab_size", "dflash_config.mask_token_id", "dflash_config.target_layer_ids", "block_size",
            "is_causal", "output_multiplier", "final_logit_softcapping", "input_embedding_scale",
        ),
    ),
    Dialect(
        "z-lab",
        ids=OUT_IDS,
        nested=("dflash_config",),
        anchored=True,
        reads=(
            *SIZES, "vocab_size", "block_size", "dflash_config.mask_token_id", "dflash_config.target_layer_ids",
            "layer_types",
        ),
    ),
)  # fmt: skip
"""Of heads that fill blocks; the last one if no other matches."""

LLAMACPP = Dialect("llama.cpp", ids=(("target_layers", "inputs"),), normed=False, output="own", offsets=False)
LLAMACPP_BLOCKS = attrs.evolve(LLAMACPP, normed=True)
TRAINED_HERE = attrs.evolve(LLAMACPP_BLOCKS, name="spec train", output="target")
"""Dialects of GGUF files: the converter's, whose engine takes an embedding without an output matrix as tied, and that
of ``spec train``."""


def value_at(raw: Any, path: str) -> Any:
    """The value under keys with dots between levels; None if it is not there."""
    for key in path.split("."):
        raw = raw.get(key) if isinstance(raw, Mapping) else None
    return raw


def dialect_of(raw: Mapping[str, Any], names: Collection[str], blocks: bool) -> Dialect:
    """The dialect of a directory. blocks: it fills blocks."""
    dialects = BLOCKS if blocks else PAIRS
    return next((dialect for dialect in dialects if dialect.matches(raw, names)), dialects[-1])
