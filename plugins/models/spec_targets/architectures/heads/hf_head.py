"""A head in a Hugging Face directory, in any dialect: its tensors, its kind, and the fields that all kinds have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spec_core.errors import UsageError
from spec_targets.architectures.by_class import divisors_of
from spec_targets.architectures.config import Config
from spec_targets.architectures.heads import hf_options, tensors
from spec_targets.architectures.heads.block_facts import sizes_of
from spec_targets.architectures.heads.check import check_tensors
from spec_targets.architectures.heads.checkpoint import HeadCheckpoint
from spec_targets.architectures.heads.dialects import Dialect, dialect_of
from spec_targets.architectures.heads.head import Head, HeadKind
from spec_targets.architectures.heads.names import DSPARK, MUSE, TARGETS_OWN, layer_names, our_name
from spec_targets.architectures.heads.overrides import UNREAD, apply_reading
from spec_targets.architectures.heads.stated_sizes import StatedSizes, stated_sizes
from spec_targets.architectures.heads.tensors import HeadTensors, StoredTensor
from spec_targets.architectures.heads.unread import unread_method
from spec_targets.formats import pickled

MASK_VECTOR = "mask_embedding.pt"


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
    if method := unread_method(raw, set(source.names())):
        raise UsageError(f"{name}: heads of {method.name} are not read: {method.reason}", hint="use another head")
    kind = kind_of(raw, source)
    values = raw.get("transformer_layer_config", raw)
    if not isinstance(values, dict):
        hint = "the object of the layers' sizes is needed"
        raise UsageError(f"{name}: config.json has transformer_layer_config = {str(values)[:40]!r}", hint=hint)
    _check_names(raw, kind, name)
    gemma4 = hf_options.is_gemma4(raw)
    sizes = stated_sizes(hf_options.gemma4_sizes(values, name) if gemma4 else values, source, gemma4)
    arch = "LlamaForCausalLM" if kind == "eagle3" else "Qwen3ForCausalLM"
    config = sizes.config(arch, _vocab_of(source))
    source.split_fused(config.kv_heads * config.head)
    dialect = dialect_of(raw, set(source.names()), kind != "eagle3")
    common = _common(raw, sizes, config, source, kind, dialect)
    finish = hf_options.pair_fields if kind == "eagle3" else hf_options.block_fields
    reading = raw.get("spec_reading")
    head = apply_reading(finish(common, raw, sizes.values, source, dialect), reading, source)
    check_tensors(head, source, () if reading is None else UNREAD)
    return HeadCheckpoint(head, source, path=directory)


def _vocab_of(tensors: HeadTensors) -> int | None:
    """Tokens of the target, by tensors with a row for each."""
    shapes = (tensors.shape(name) for name in ("token_embd.weight", "markov_w1.weight", "t2d"))
    return next((shape[0] for shape in shapes if shape), None)


def _check_names(raw: Mapping[str, Any], kind: HeadKind, where: str) -> None:
    """Raise UsageError for a DSpark head of a family whose layers differ."""
    names = raw.get("architectures")
    first = str(names[0]) if isinstance(names, list) and names else DSPARK[0]
    known = first in DSPARK or "DFlash" in first
    if kind == "dspark" and (not known or "deepseek" in str(raw.get("model_type"))):
        raise UsageError(
            f"{where}: {first[:60]} of {str(raw.get('model_type'))[:40]} is not read; known are {', '.join(DSPARK)}",
            hint="use another head of the same model",
        )


def kind_of(raw: Mapping[str, Any], tensors: HeadTensors) -> HeadKind:
    """The kind, from the config or else from the tensors. Raises UsageError for a head that is none of them."""
    names = f"{raw.get('speculators_model_type')} {raw.get('architectures')}"
    if "DFlash2" in names or "dflash2" in names or tensors.shape("selector_hidden.weight") is not None:
        return "dflash2"
    if "DSpine" in names or "dspine_config" in raw or tensors.shape("transfer_codes.weight") is not None:
        return "dspine"
    if "LiLiCorr" in names or tensors.shape("lilicorr.out_head.weight") is not None:
        return "lilicorr"
    if "DSpark" in names or "dspark" in names or tensors.shape("markov_w1.weight") is not None:
        return "dspark"
    if "dflash_config" in raw or "DFlash" in names or "dflash" in names or MUSE in names:
        return "dflash"
    if "agle3" in names or tensors.shape("blk.0.attn_norm_2.weight") is not None:
        return "eagle3"
    raise UsageError(
        f"{tensors.where}: this is no eagle3, dflash, dspark, dflash2, dspine or lilicorr head ({names[:60]})",
        hint="give one of them; EAGLE-1 and EAGLE-2 are not supported",
    )


def _common(
    raw: Mapping[str, Any], sizes: StatedSizes, c: Config, head_tensors: HeadTensors, kind: HeadKind, dialect: Dialect
) -> Head:
    """Fields that all kinds have."""
    target_width = raw.get("target_hidden_size") or c.width
    output = head_tensors.shape("output.weight")
    rows = output[0] if output else c.vocab
    if rows < 1 and output:
        raise UsageError(f"{head_tensors.where}: 'lm_head.weight' has no rows", hint=tensors.DAMAGED)
    inputs = inputs_of(head_tensors, target_width, kind)
    stated = raw.get("draft_vocab_size")
    if stated not in (None, rows) and rows:
        raise UsageError(
            f"{head_tensors.where}: config.json has draft_vocab_size = {repr(stated)[:40]}, "
            f"its logits have {rows} rows",
            hint=tensors.DAMAGED,
        )
    d2t, note = tensors.mapping(head_tensors, rows, c.vocab, dialect.offsets)
    tied = is_tied(head_tensors, dialect, raw)
    return Head(
        kind=kind,
        name=head_tensors.where,
        producer=dialect.name,
        target_width=target_width,
        inputs=inputs,
        draft_vocab=rows,
        divisors=divisors_of({**sizes.values, "architectures": None}, c),
        d2t=d2t,
        tied=tied,
        paper=dialect.paper,
        normed=dialect.normed
        if raw.get("final_norm") is None
        else hf_options.flag(raw, "final_norm", head_tensors.where),
        partial=sizes.partial,
        projected=head_tensors.shape("fc.weight") is not None,
        context_norm=dialect.context_norm,
        act=sizes.act,
        repairs=(*sizes.notes, *([note] if note else []), *_output_note(head_tensors, dialect, tied)),
        **sizes_of(c, head_tensors),
    )


def inputs_of(head_tensors: HeadTensors, target_width: Any, kind: str) -> int:
    """Hidden states that it reads: by the width of ``fc``, one without it. Raises UsageError."""
    fc = head_tensors.shape("fc.weight")
    if fc is None and kind == "eagle3":
        return 1
    wide = fc[-1] if fc else 0
    if type(target_width) is not int or target_width < 1 or wide < target_width or wide % target_width:
        raise UsageError(
            f"{head_tensors.where}: 'fc.weight' reads {wide} numbers, a multiple of the target's width "
            f"{repr(target_width)[:20]} was needed",
            hint=tensors.DAMAGED,
        )
    return wide // target_width


def is_tied(tensors: HeadTensors, dialect: Dialect, raw: Mapping[str, Any]) -> bool:
    """Whether logits are made by the head's own embedding: where it has no output matrix, as its dialect means that."""
    if tensors.shape("token_embd.weight") is None or tensors.shape("output.weight") is not None:
        return False
    if dialect.output == "flag":
        return raw.get("tie_word_embeddings") is True
    return dialect.output == "own"


def _output_note(tensors: HeadTensors, dialect: Dialect, tied: bool) -> list[str]:
    if tensors.shape("token_embd.weight") is None or tensors.shape("output.weight") is not None:
        return []
    return [f"no output matrix: logits by {'its own embedding' if tied else 'that of the target'}"]
