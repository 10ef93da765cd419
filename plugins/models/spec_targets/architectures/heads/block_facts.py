"""Fields of a head's description that both file formats state, checked: sizes, layer ids, blocks, sequential parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.heads import tensors
from spec_targets.architectures.heads.dialects import Dialect

CANDIDATES_MAX = 256
"""Tokens that a selector chooses from at most."""
TRANSFER_CANDIDATES = 16
"""Tokens of a row that a DSpine head chooses from, where its file does not say (SpecForge)."""
BLOCK_MAX = 1024
"""Tokens of the largest block that is read; a forward has a row for each."""


def sizes_of(c: Config, head_tensors: tensors.HeadTensors) -> dict[str, Any]:
    """Fields that follow from checked sizes, and from which tensors there are."""

    def has(name: str) -> bool:
        return head_tensors.shape(name) is not None

    names = ("width", "heads", "kv_heads", "head", "ff", "layers", "eps", "context", "rope_base", "vocab", "scaling")
    return {name: getattr(c, name) for name in names} | {
        "own_embedding": has("token_embd.weight"),
        "own_output": has("output.weight"),
        "qk_norm": has("blk.0.attn_q_norm.weight"),
        "biases": has("blk.0.attn_q.bias"),
        "fc_bias": has("fc.bias"),
        "output_bias": has("blk.0.attn_output.bias"),
        "sinks": has("blk.0.attn_sinks.weight"),
    }


def layer_ids(listed: Any, key: str, where: str) -> tuple[int, ...]:
    """Layer numbers, -1 for the embedding. Raises UsageError for anything else."""
    good = isinstance(listed, list) and listed and all(type(i) is int and -1 <= i < 1 << 16 for i in listed)
    if not good:
        raise UsageError(
            f"{where}: {key} is {str(listed)[:60]!r}, a list of layer numbers was needed",
            hint="correct it: -1 is the embedding",
        )
    return tuple(listed)


def block_facts(
    block: Any, mask: Any, windows: tuple[int, ...], causal: tuple[bool, ...], sizes: tuple[int, int], where: str
) -> dict[str, Any]:
    """Fields of a block drafter. sizes: context and vocabulary. Raises UsageError for an impossible size or token."""
    context, vocab = sizes
    block_max = min(context, BLOCK_MAX)
    if type(block) is not int or not 2 <= block <= block_max:
        raise UsageError(
            f"{where}: its block size is {repr(block)[:40]}, 2 to {block_max} was needed",
            hint="correct it, or use another head",
        )
    if type(mask) is not int or not 0 <= mask < (vocab or 1 << 24):
        raise UsageError(
            f"{where}: its mask token is {repr(mask)[:40]}, one of 0 to {vocab - 1} was needed",
            hint="correct it, or use the head of another model",
        )
    if any(type(w) is not int or not 0 <= w < 1 << 31 for w in windows):
        raise UsageError(
            f"{where}: a sliding window of {max(windows)} positions", hint="correct it, or use another head"
        )
    return {"block": block, "mask": mask, "windows": windows, "causal": causal}


def sequential_facts(head_tensors: tensors.HeadTensors, where: str, rank: Any = None) -> dict[str, Any]:
    """Fields of a sequential part and of a confidence head, by the shapes of their tensors.

    rank: of the matrices, as the file states it. Raises UsageError where it is another.
    """
    markov, confidence = head_tensors.shape("markov_w1.weight"), head_tensors.shape("conf_proj.weight")
    stored = markov[-1] if markov else 0
    if rank is not None and rank != stored:
        raise UsageError(
            f"{where}: markov_rank is {repr(rank)[:40]}, its Markov matrices have rank {stored}", hint=tensors.DAMAGED
        )
    reads, width = confidence[-1] if confidence else 0, (head_tensors.shape("output_norm.weight") or (0,))[0]
    if reads not in (0, width, width + stored):
        raise UsageError(
            f"{where}: its confidence head reads {reads} numbers, {width} or {width + stored} were needed",
            hint=tensors.DAMAGED,
        )
    return {"markov": stored, "confidence": reads}


def selector_facts(
    head_tensors: tensors.HeadTensors, width: int, stated: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Fields of convolutions and of a selector, by the shapes of their tensors and what the file states of them.

    Raises UsageError for sizes that do not fit.
    """
    base, hidden = head_tensors.shape("blk.0.attn_conv_base"), head_tensors.shape("selector_hidden.weight")
    if base is None and hidden is None:
        return {}
    group, taps = stated.get("conv_group_size"), base[1] if base and len(base) == 3 else 0
    rank, candidates = hidden[0] if hidden else 0, stated.get("selector_top_k")
    _check_size(where, "conv_group_size", group, range(1, width + 1))
    _check_size(where, "conv_kernel_size", stated.get("conv_kernel_size"), (taps,))
    _check_size(where, "selector_rank", stated.get("selector_rank"), (rank,))
    _check_size(where, "selector_top_k", candidates, range(1, CANDIDATES_MAX + 1))
    if width % group:
        raise UsageError(f"{where}: conv_group_size is {group}, its width is {width}", hint=tensors.DAMAGED)
    return {"conv_taps": taps, "conv_groups": width // group, "selector": rank, "candidates": candidates}


def transfer_facts(head_tensors: tensors.HeadTensors, stated: Any, where: str) -> dict[str, Any]:
    """Fields of messages between rows, by the shapes of their tensors and what the file states of them.

    Raises UsageError for sizes that do not fit, and for codes that were not computed when the head was saved.
    """
    codes, message = head_tensors.shape("transfer_codes.weight"), head_tensors.shape("transfer_message.weight")
    if not codes or not message:
        raise UsageError(f"{where}: a DSpine head lacks transfer_codes or injection.message", hint=tensors.DAMAGED)
    stated = stated if isinstance(stated, Mapping) else {}
    for key, size in {"transfer_rank": codes[-1], "message_size": message[0]}.items():
        if key in stated:
            _check_size(where, key, stated[key], (size,))
    candidates = stated.get("top_k", TRANSFER_CANDIDATES)
    _check_size(where, "top_k", candidates, range(1, CANDIDATES_MAX + 1))
    ready = head_tensors.tensors["transfer_ready"].whole_numbers() if "transfer_ready" in head_tensors.tensors else None
    if ready is not None and not bool(ready.all()):
        fact = f"{where}: transfer_ready is false: its codes of tokens were not computed when it was saved"
        raise UsageError(fact, hint="use a head that was saved by its training")
    return {"transfer": codes[-1], "message": message[0], "candidates": candidates}


def gate_facts(
    head_tensors: tensors.HeadTensors, head: Any, stated: Mapping[str, Any], dialect: Dialect
) -> dict[str, Any]:
    """Gates of attention, and heads of each layer: by the shapes of tensors, and by what the file states without them.

    Raises UsageError for layers of experts, and for heads that are stated otherwise.
    """
    if not dialect.gate:
        return {}
    kinds = stated.get("mlp_layer_types")
    if kinds not in (None, ["dense"] * head.layers):
        fact = f"{head.name}: config.json has mlp_layer_types = {str(kinds)[:60]!r}"
        raise UsageError(fact, hint="use a head whose layers have one feed-forward each")
    stored = [(head_tensors.shape(f"blk.{i}.attn_q.weight") or (0,))[0] // head.head for i in range(head.layers)]
    listed = stated.get("num_attention_heads_per_layer")
    if listed not in (None, stored):
        fact = f"{head.name}: num_attention_heads_per_layer is {str(listed)[:60]!r}, its queries have {stored} heads"
        raise UsageError(fact, hint=tensors.DAMAGED)
    if any(count < 1 or count % head.kv_heads for count in stored):
        fact = f"{head.name}: its layers have {stored} attention heads, multiples of {head.kv_heads} were needed"
        raise UsageError(fact, hint=tensors.DAMAGED)
    gates = head_tensors.shape("blk.0.attn_gate.weight")
    each = gates is not None and gates[0] == stored[0] * head.head != stored[0]
    gate = "" if gates is None and not stated.get("gating") else "numbers" if each else "heads"
    return {"gate": gate, "query_heads": tuple(stored) if set(stored) != {head.heads} else ()}


def _check_size(where: str, name: str, value: Any, good: Sequence[int]) -> None:
    if type(value) is not int or value not in good:
        needed = str(good[0]) if len(good) == 1 else f"{good[0]} to {good[-1]}"
        raise UsageError(f"{where}: {name} is {repr(value)[:40]}, {needed} was needed", hint=tensors.DAMAGED)
