"""Files of Gemma 4 whose metadata describe no blocks of different sizes, or another model: refused by name, unread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.small_models import tiny_gemma4
from tests.targets.containers import open_model
from tests.targets.refused import change_options, check_keys, check_refused, write_changed
from tests.targets.tiny import model, save

KV, FF, PATTERN = "attention.head_count_kv", "feed_forward_length", "attention.sliding_window_pattern"
WINDOW, SHARED, OWN = "attention.sliding_window", "attention.shared_kv_layers", "embedding_length_per_layer_input"
LOCAL, BASE, CAP = "attention.key_length_swa", "rope.freq_base_swa", "final_logit_softcapping"
LISTED = "a number for each of 4 blocks was needed"
REFUSED_KEYS: dict[str, tuple[str, tuple[str, Any], str]] = {
    "key heads of three numbers": (KV, ("array", ("i32", [1, 2, 4, 2])), "one number for blocks with a window and one"),
    "key heads of fewer blocks": (KV, ("array", ("i32", [2, 2, 2])), LISTED),
    "key heads of no block": (KV, ("array", ("i32", [])), LISTED),
    "fewer key heads than none": (KV, ("array", ("i32", [2, -2, 2, -2])), LISTED),
    "key heads that are texts": (KV, ("array", ("text", ["2"] * 4)), LISTED),
    "key heads that queries do not divide by": (KV, ("array", ("i32", [3, 2, 3, 2])), "3 key heads of 12 and"),
    "many key heads": (KV, ("array", ("u32", [2**31] * 4)), "kv_heads is 2147483648"),
    "no key heads": (KV, ("u32", 0), "kv_heads is 0"),
    "widths of fewer blocks": (FF, ("array", ("i32", [48] * 3)), LISTED),
    "widths of no size": (FF, ("array", ("i32", [48, 0, 48, 48])), "are inconsistent"),
    "wide blocks": (FF, ("array", ("u32", [48, 2**31, 48, 48])), "are inconsistent"),
    "widths that tensors do not have": (FF, ("u32", 47), r"'blk.0.ffn_gate.weight' has shape \[48, 32\], \[47, 32\]"),
    "one kind for all blocks": (PATTERN, ("bool", True), "a yes or no for each of 4 blocks was needed"),
    "kinds of fewer blocks": (PATTERN, ("array", ("bool", [True] * 3)), "a yes or no for each of 4"),
    "kinds that are numbers": (PATTERN, ("array", ("i32", [1, 0, 2, 0])), "a yes or no for each of 4"),
    "other kinds": (PATTERN, ("array", ("bool", [False, True] * 2)), "'blk.0.attn_q.weight' has shape"),
    "a window of a text": (WINDOW, ("text", "9"), "sliding_window is '9'"),
    "a long window": (WINDOW, ("u32", 2**31), "windows .* are inconsistent"),
    "a window of fewer positions than none": (WINDOW, ("i32", -9), "windows .* are inconsistent"),
    "no window": (WINDOW, ("u32", 0), "'blk.0.attn_q.weight' has shape"),
    "sharing blocks alone": (SHARED, ("u32", 4), "4 of 4 blocks that share a cache"),
    "more sharing blocks than there are": (SHARED, ("u32", 2**31), "2147483648 of 4 blocks that share a cache"),
    "fewer sharing blocks than none": (SHARED, ("i32", -1), "-1 of 4 blocks that share a cache"),
    "blocks without an owner of their kind": (SHARED, ("u32", 3), "3 of 4 blocks that share a cache"),
    "sharing blocks as a text": (SHARED, ("text", "1"), "shared_kv_layers is '1'"),
    "blocks that share nothing": (SHARED, ("u32", 0), "'blk.3.attn_k.weight' is missing"),
    "own embeddings of another width": (OWN, ("u32", 16), r"'per_layer_proj_norm.weight' has shape \[8\], \[16\]"),
    "wide own embeddings": (OWN, ("u32", 2**31), "embeddings of 2147483648 for each block"),
    "narrow own embeddings": (OWN, ("i32", -1), "embeddings of -1 for each block"),
    "own embeddings that are not mentioned": (OWN, ("u32", 0), "tensor .* is not part of the gemma4 architecture"),
    "local heads of no width": (LOCAL, ("u32", 0), "'blk.0.attn_q.weight' has shape"),
    "local heads of odd width": (LOCAL, ("u32", 7), "key heads of 7 and"),
    "wide local heads": (LOCAL, ("u32", 2**31), "key heads of 2147483648 and"),
    "no local base": (BASE, ("f32", 0.0), "a rope base of 0.0"),
    "a local base that is no number": (BASE, ("f32", float("nan")), "a local rope base of nan"),
    "a cap below nothing": (CAP, ("f32", -1.0), "logits capped at -1.0"),
    "a cap that is no number": (CAP, ("f32", float("nan")), "logits capped at nan"),
    "experts": ("expert_count", ("u32", 6), "0 of 6 experts are used"),
}
MISSING = {
    "attention.sliding_window_pattern": "sliding_window_pattern is missing",
    "attention.sliding_window": "sliding_window is missing",
    "attention.key_length_swa": "key_length_swa is missing",
    "feed_forward_length": "feed_forward_length is 'None', a number for each of 4",
    "attention.head_count_kv": "head_count_kv is 'None', a number for each of 4",
}
REFUSED_TENSORS: dict[str, tuple[str, str, tuple[int, ...] | None, str]] = {
    "divisors": ("gemma4-e", "rope_freqs.weight", None, "'rope_freqs.weight' is missing"),
    "divisors of other heads": ("gemma4-e", "rope_freqs.weight", (5,), r"has shape \[5\], \[10\] was needed"),
    "own embeddings": ("gemma4-e", "per_layer_token_embd.weight", None, "'per_layer_token_embd.weight' is missing"),
    "own embeddings of few tokens": ("gemma4-e", "per_layer_token_embd.weight", (299, 32), r"has shape \[299, 32\]"),
    "their norm": ("gemma4-e", "per_layer_proj_norm.weight", (4,), r"has shape \[4\], \[8\] was needed"),
    "values in a block with a window": ("gemma4-k", "blk.0.attn_v.weight", None, "'blk.0.attn_v.weight' is missing"),
    "keys": ("gemma4-k", "blk.1.attn_k.weight", None, "'blk.1.attn_k.weight' is missing"),
    "a scale of two numbers": ("gemma4-k", "blk.0.layer_output_scale.weight", (2,), r"has shape \[2\], \[1\]"),
    "a router's scale of another shape": ("gemma4-moe", "blk.0.ffn_gate_inp.scale", (6,), r"has shape \[6\], \[32\]"),
    "a router's scale": ("gemma4-moe", "blk.0.ffn_gate_inp.scale", None, "'blk.0.ffn_gate_inp.scale' is missing"),
    "factors of fewer experts": ("gemma4-moe", "blk.0.ffn_down_exps.scale", (5,), r"has shape \[5\], \[6\]"),
    "a norm of experts": (
        "gemma4-moe",
        "blk.0.post_ffw_norm_2.weight",
        None,
        "'blk.0.post_ffw_norm_2.weight' is missing",
    ),
}


@pytest.mark.parametrize("what", REFUSED_KEYS)
def test_metadata_of_no_such_blocks_are_refused_by_name(what, tmp_path):
    key, value, message = REFUSED_KEYS[what]

    check_keys(tiny_gemma4(), "gemma4", {key: value}, message, tmp_path)


@pytest.mark.parametrize("key", MISSING)
def test_a_file_without_one_of_its_sizes_is_refused(key, tmp_path):
    file = write_changed(tiny_gemma4(), tmp_path, lambda model: model.pairs.pop(f"gemma4.{key}"))

    check_refused(file, MISSING[key])


@pytest.mark.parametrize("what", REFUSED_TENSORS)
def test_a_tensor_that_is_missing_or_has_another_shape_is_refused(what, tmp_path):
    family, name, shape, message = REFUSED_TENSORS[what]
    changed = open_model(tiny_gemma4(family, kind="F32")).copy()
    assert name in changed.tensors
    if shape is None:
        del changed.tensors[name]
    else:
        size = 4
        for n in shape:
            size *= n
        changed.tensors[name] = [shape, "F32", bytes(size)]
    (tmp_path / "m.gguf").write_bytes(changed.bytes())

    check_refused(tmp_path / "m.gguf", message)


def test_experts_that_are_not_mentioned_are_refused(tmp_path):
    file, message = tiny_gemma4("gemma4-moe"), "is not part of the gemma4 architecture"

    check_keys(file, "gemma4", {"expert_count": ("u32", 0)}, message, tmp_path)


@pytest.fixture(scope="module")
def directories(tmp_path_factory) -> dict[str, Path]:
    names = ("gemma4-e", "gemma4-moe")
    return {name: save(model(name), tmp_path_factory.mktemp(name)) for name in names}


REFUSED_OPTIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "rotary parameters of one kind": (
        "gemma4-e",
        {"rope_parameters": {"rope_type": "default"}},
        "has rope_parameters =",
    ),
    "no rotary parameters": ("gemma4-e", {"rope_parameters": None}, "has rope_parameters = None"),
    "another kind of block": ("gemma4-e", {"layer_types": ["mamba"] * 3}, "layers of type 'mamba'"),
    "kinds of fewer blocks": ("gemma4-e", {"layer_types": ["full_attention"]}, "has layer_types ="),
    "blocks without an owner": ("gemma4-e", {"num_kv_shared_layers": 2}, "2 of 3 blocks that share a cache"),
    "all blocks share": ("gemma4-e", {"num_kv_shared_layers": 3}, "3 of 3 blocks that share a cache"),
    "many sharing blocks": ("gemma4-e", {"num_kv_shared_layers": 2**31}, "has num_kv_shared_layers = '2147483648'"),
    "wide own embeddings": ("gemma4-e", {"hidden_size_per_layer_input": 2**20}, "embeddings of 1048576 for each block"),
    "heads by block as a list": ("gemma4-e", {"per_layer_config": [1]}, r"has per_layer_config = \[1\]"),
    "heads of a block as a number": ("gemma4-e", {"per_layer_config": {"1": 5}}, "has per_layer_config ="),
    "heads of a block without a number": ("gemma4-e", {"per_layer_config": {"x": {}}}, "has per_layer_config ="),
    "other sizes of a block": ("gemma4-e", {"per_layer_config": {"1": {"hidden_size": 8}}}, "has per_layer_config ="),
    "heads that differ": ("gemma4-e", {"per_layer_config": {"1": {"head_dim": 20}}}, "has per_layer_config ="),
    "a head of a text": ("gemma4-e", {"per_layer_config": {"1": {"head_dim": "20"}}}, "has head_dim = '20'"),
    "biases": ("gemma4-e", {"attention_bias": True}, "attention_bias = True is not supported"),
    "another activation": ("gemma4-e", {"hidden_activation": "silu"}, "hidden_activation = 'silu' is not supported"),
    "attention in both directions": (
        "gemma4-e",
        {"use_bidirectional_attention": "all"},
        "use_bidirectional_attention =",
    ),
    "no experts": ("gemma4-moe", {"num_experts": 0}, "has num_experts = '0'"),
    "more experts of a row than there are": ("gemma4-moe", {"top_k_experts": 7}, "7 of 6 experts are used"),
    "a share of pairs below nothing": (
        "gemma4-moe",
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": -1},
                "sliding_attention": {},
            }
        },
        "partial_rotary_factor = '-1'",
    ),
}


@pytest.mark.parametrize("what", REFUSED_OPTIONS)
def test_options_of_no_such_blocks_are_refused_by_name(what, directories, tmp_path):
    name, changes, message = REFUSED_OPTIONS[what]

    check_refused(change_options(directories[name], tmp_path, changes), message, (True,))
