"""Files of LFM2 whose metadata describe no short convolution, or another model: refused by name, unread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.small_models import tiny_lfm2
from tests.targets.refused import change_options, check_keys, check_missing, check_refused
from tests.targets.tiny import model, save

KERNEL, HEADS, GATING = "shortconv.l_cache", "attention.head_count_kv", "expert_gating_func"
REFUSED_KEYS = {
    "a kernel of many inputs": (KERNEL, ("u32", 2**31), "a short convolution of 2147483648 inputs, 2 to 16"),
    "a kernel of more inputs than there is memory": (
        KERNEL,
        ("u64", 2**63),
        "a short convolution of 9223372036854775808",
    ),
    "a kernel of one input": (KERNEL, ("u32", 1), "a short convolution of 1 inputs"),
    "a kernel of no inputs": (KERNEL, ("u32", 0), "a short convolution of 0 inputs"),
    "fewer inputs than none": (KERNEL, ("i32", -3), "a short convolution of -3 inputs"),
    "a kernel of another shape": (KERNEL, ("u32", 4), r"'blk.0.shortconv.conv.weight' has shape \[32, 3\], \[32, 4\]"),
    "a text for a kernel": (KERNEL, ("text", "3"), r"shortconv\.l_cache is '3'"),
    "key heads of fewer blocks": (
        HEADS,
        ("array", ("i32", [0, 1, 0])),
        r"head_count_kv is '\[0, 1, 0\]', a number for each of 4",
    ),
    "key heads of more blocks": (
        HEADS,
        ("array", ("i32", [0, 1] * 500)),
        "head_count_kv is .*, a number for each of 4",
    ),
    "key heads of no block": (HEADS, ("array", ("i32", [])), r"head_count_kv is '\[\]', a number for each of 4"),
    "fewer key heads than none": (
        HEADS,
        ("array", ("i32", [0, -1, 0, -1])),
        "head_count_kv is .*, a number for each of 4",
    ),
    "key heads that are texts": (
        HEADS,
        ("array", ("text", ["0", "1"] * 2)),
        "head_count_kv is .*, a number for each of 4",
    ),
    "key heads that differ": (
        HEADS,
        ("array", ("i32", [0, 1, 0, 2])),
        r"head_count_kv is \[0, 1, 0, 2\], 0 and one other",
    ),
    "no key heads at all": (HEADS, ("array", ("i32", [0] * 4)), r"head_count_kv is \[0, 0, 0, 0\], 0 and one other"),
    "key heads that queries do not divide by": (
        HEADS,
        ("array", ("i32", [0, 2**31 - 1] * 2)),
        "kv_heads is 2147483647",
    ),
    "one number for all blocks": (HEADS, ("u32", 1), r"'blk.0.attn_q.weight' is missing"),
    "experts by softmax": (GATING, ("u32", 1), "expert_gating_func is 1, 2 was needed"),
}


@pytest.mark.parametrize("what", REFUSED_KEYS)
def test_metadata_of_no_short_convolution_are_refused_by_name(what, tmp_path):
    key, value, message = REFUSED_KEYS[what]
    moe = key == GATING

    check_keys(tiny_lfm2(moe=moe), "lfm2moe" if moe else "lfm2", {key: value}, message, tmp_path)


def test_a_file_without_its_kernel_is_refused(tmp_path):
    check_missing(tiny_lfm2(), "lfm2.shortconv.l_cache", r"lfm2\.shortconv\.l_cache is missing", tmp_path)


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    return save(model("lfm2"), tmp_path_factory.mktemp("lfm2"))


REFUSED_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "a kernel of many inputs": ({"conv_L_cache": 2**31}, "conv_L_cache = '2147483648'"),
    "a kernel that is too long": ({"conv_L_cache": 17}, "a short convolution of 17 inputs"),
    "biases of convolutions": ({"conv_bias": True}, "conv_bias = True is not supported"),
    "another kind of block": ({"layer_types": ["conv", "mamba", "conv"]}, "layers of type 'mamba'"),
    "kinds of fewer blocks": ({"layer_types": ["conv"]}, r"layer_types = .\['conv'\]"),
    "neither kinds nor blocks": ({"layer_types": None, "full_attn_idxs": None}, "full_attn_idxs = 'None'"),
    "a block that is not there": ({"layer_types": None, "full_attn_idxs": [3]}, r"full_attn_idxs = '\[3\]'"),
    "blocks that are truths": ({"layer_types": None, "full_attn_idxs": [True]}, r"full_attn_idxs = '\[True\]'"),
    "rounding to no multiple": ({"block_multiple_of": 0}, "block_multiple_of = '0'"),
    "an infinite factor": ({"block_ffn_dim_multiplier": 1e300}, "block_ffn_dim_multiplier = "),
    "another rounding": ({"block_multiple_of": 64}, r"'blk.0.ffn_gate.weight' has shape \[32, 32\], \[64, 32\]"),
}


@pytest.mark.parametrize("what", REFUSED_OPTIONS)
def test_options_of_no_short_convolution_are_refused_by_name(what, directory, tmp_path):
    changes, message = REFUSED_OPTIONS[what]

    check_refused(change_options(directory, tmp_path, changes), message, (True,))
