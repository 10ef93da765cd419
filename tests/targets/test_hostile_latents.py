"""Files of Kimi Linear whose metadata describe no latent attention or another model: refused by name, unread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spec_core import load
from tests.support.small_models import tiny_kimi
from tests.targets.kimi import save
from tests.targets.refused import change_options, check_keys, check_missing, check_refused, write_changed
from tests.targets.tiny import model

RANK, SHARED, KEY, VALUE = (
    "attention.kv_lora_rank",
    "rope.dimension_count",
    "attention.key_length_mla",
    "attention.value_length_mla",
)
HEADS, HEAD, KERNEL = "attention.head_count_kv", "kda.head_dim", "ssm.conv_kernel"
REFUSED_KEYS = {
    "no latent": (RANK, ("u32", 0), "latents of 0 and 6 numbers"),
    "a latent of many numbers": (RANK, ("u32", 2**31 - 1), "head is 2147483653"),
    "fewer numbers than none": (RANK, ("i32", -32), "head is -26"),
    "a latent of other size": (RANK, ("u32", 30), r"'blk.1.attn_kv_a_mqa.weight' has shape \[38, 32\], \[36, 32\]"),
    "no shared numbers": (SHARED, ("u32", 0), r"'blk.1.attn_kv_a_mqa.weight' has shape \[38, 32\], \[32, 32\]"),
    "an odd number of shared ones": (
        SHARED,
        ("u32", 5),
        r"'blk.1.attn_kv_a_mqa.weight' has shape \[38, 32\], \[37, 32\]",
    ),
    "keys of shared numbers alone": (KEY, ("u32", 6), "keys of 0 and values of 14 from them"),
    "keys of fewer numbers than are shared": (KEY, ("u32", 2), "keys of -4 and values of 14 from them"),
    "keys of other size": (KEY, ("u32", 17), r"'blk.1.attn_q.weight' has shape \[64, 32\], \[68, 32\]"),
    "no values": (VALUE, ("u32", 0), "keys of 10 and values of 0 from them"),
    "values of other size": (VALUE, ("u32", 13), r"'blk.1.attn_v_b.weight' has shape \[4, 14, 32\], \[4, 13, 32\]"),
    "several key heads": (HEADS, ("array", ("i32", [0, 4, 0, 4])), r"head_count_kv is \[0, 4, 0, 4\], 0 and 1"),
    "key heads of fewer blocks": (HEADS, ("array", ("i32", [0, 1])), "head_count_kv is .*, a number for each of 4"),
    "one number for all blocks": (HEADS, ("u32", 1), "'blk.0.attn_kv_a_mqa.weight' is missing"),
    "no recurrent heads": (HEAD, ("u32", 0), "no gated delta net has these sizes"),
    "wide recurrent heads": (HEAD, ("u32", 2**20), "no gated delta net has these sizes"),
    "recurrent heads of other size": (HEAD, ("u32", 9), r"'blk.0.attn_q.weight' has shape \[32, 32\], \[36, 32\]"),
    "a kernel of many inputs": (KERNEL, ("u32", 99), "a convolution of 99: no gated delta net has these sizes"),
    "experts by softmax": ("expert_gating_func", ("u32", 1), "expert_gating_func is 1, 2 was needed"),
    "a text for a size": (RANK, ("text", "32"), r"kv_lora_rank is '32'"),
}


@pytest.mark.parametrize("what", REFUSED_KEYS)
def test_metadata_of_no_latent_attention_are_refused_by_name(what, tmp_path):
    key, value, message = REFUSED_KEYS[what]

    check_keys(tiny_kimi(), "kimi-linear", {key: value}, message, tmp_path)


@pytest.mark.parametrize("key", [RANK, SHARED, KEY, VALUE, HEADS, HEAD, KERNEL])
def test_a_file_without_a_size_is_refused(key, tmp_path):
    check_missing(tiny_kimi(), f"kimi-linear.{key}", rf"kimi-linear\.{key} is (missing|'None')", tmp_path)


@pytest.mark.parametrize("shape", [(4, 1, 1), (2, 2)])
def test_rates_of_another_shape_are_refused(shape, tmp_path):
    """More dimensions of 1 are left out, and others are not."""
    file = write_changed(tiny_kimi(), tmp_path, lambda changed: changed.tensors["blk.0.ssm_a"].__setitem__(0, shape))

    if 2 not in shape:
        assert load(file, weights=False).info.layers == 4
    else:
        check_refused(file, r"'blk.0.ssm_a' has shape \[2, 2\], \[4\] was needed", (False,))


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    return save(model("kimi-linear"), tmp_path_factory.mktemp("kimi-linear"))


REFUSED_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "queries from a latent": ({"q_lora_rank": 8}, "q_lora_rank = 8 is not supported"),
    "dense blocks behind others": (
        {"mlp_layer_types": ["sparse", "dense", "sparse"]},
        r"mlp_layer_types = \['sparse', 'dense', 'sparse'\]",
    ),
    "fewer kinds of feed-forward layers": ({"mlp_layer_types": ["dense"]}, r"mlp_layer_types = \['dense'\]"),
    "kinds that are no list": ({"mlp_layer_types": 7}, "mlp_layer_types = 7"),
    "blocks of another type": ({"layer_types": ["mamba"] * 3}, "layers of type 'mamba'"),
    "rotation": ({"mla_use_nope": False}, "mla_use_nope = False is not supported"),
    "experts by softmax": ({"moe_router_activation_func": "softmax"}, "moe_router_activation_func = 'softmax'"),
    "experts in every second block": ({"moe_layer_freq": 2}, "moe_layer_freq = 2 is not supported"),
    "no recurrent blocks": ({"linear_attn_config": None}, "linear_attn_config = None"),
    "a list in place of sizes": ({"linear_attn_config": [1, 3]}, r"linear_attn_config = \[1, 3\]"),
    "a latent of no numbers": ({"kv_lora_rank": 0}, "kv_lora_rank = '0'"),
    "a scaled rotation": ({"rope_scaling": {"type": "llama4"}}, "rope scaling 'llama4' is not supported"),
}
REFUSED_BLOCKS = {
    "a block twice": {"kda_layers": [1, 3, 3]},
    "a block that is missing": {"kda_layers": [1]},
    "a block that is not there": {"kda_layers": [1, 4]},
    "blocks from 0": {"kda_layers": [0, 2], "full_attn_layers": [1]},
    "no list": {"kda_layers": 3},
    "truths": {"full_attn_layers": [True]},
}


@pytest.mark.parametrize("what", REFUSED_OPTIONS)
def test_options_of_no_latent_attention_are_refused_by_name(what, directory, tmp_path):
    changes, message = REFUSED_OPTIONS[what]

    check_refused(change_options(directory, tmp_path, changes), message, (True,))


@pytest.mark.parametrize("what", REFUSED_BLOCKS)
def test_blocks_of_neither_or_both_kinds_are_refused(what, directory, tmp_path):
    folder = change_options(directory, tmp_path, REFUSED_BLOCKS[what], "linear_attn_config")

    refused = check_refused(folder, r"kda_layers = .*, full_attn_layers = ", (True,))

    assert refused.hint == "every block of 1 to 3 is needed in one of both lists"
