"""Files of GLM-5.3-Flash whose metadata describe no streams, no index or another model: refused by name, unread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.small_models import tiny_streamed
from tests.targets.refused import change_options, check_keys, check_missing, check_refused
from tests.targets.streamed import GLM, save
from tests.targets.tiny import model

COUNT, EPS, ROUNDS = (f"hyper_connection.{key}" for key in ("count", "epsilon", "sinkhorn_iterations"))
HEADS, DIM, TOP, POOL, TYPES, TAIL = (
    f"attention.indexer.{key}" for key in ("head_count", "key_length", "top_k", "kpool", "types", "kpool_select_tail")
)
FLOOR, LIMIT, SHARED, QUERIES = (
    "kda.gate_lower_bound",
    "swiglu_clamp_exp",
    "swiglu_clamp_shexp",
    "attention.q_lora_rank",
)
NO_INDEX, NO_STREAMS = "no sparse index has these sizes", "are inconsistent"
REFUSED_KEYS = {
    "no streams": (COUNT, ("u32", 0), r"streams StreamShape\(count=0"),
    "streams without number": (COUNT, ("u32", 2**31 - 1), NO_STREAMS),
    "fewer streams than none": (COUNT, ("i32", -4), NO_STREAMS),
    "streams of other count": (COUNT, ("u32", 2), r"'blk.0.hc_attn_fn.weight' has shape \[24, 128\], \[8, 64\]"),
    "an eps below 0": (EPS, ("f32", -1.0), NO_STREAMS),
    "an eps that is no number": (EPS, ("f32", float("nan")), NO_STREAMS),
    "no rounds": (ROUNDS, ("u32", 0), NO_STREAMS),
    "rounds without end": (ROUNDS, ("u32", 2**31 - 1), NO_STREAMS),
    "no index heads": (HEADS, ("u32", 0), NO_INDEX),
    "index heads without number": (HEADS, ("u32", 2**31 - 1), NO_INDEX),
    "index heads of other count": (HEADS, ("u32", 5), r"'blk.1.indexer.proj.weight' has shape \[24, 32\], \[5, 32\]"),
    "no index keys": (DIM, ("u32", 0), NO_INDEX),
    "wide index keys": (DIM, ("u32", 2**20), NO_INDEX),
    "index keys of other width": (DIM, ("u32", 10), r"'blk.1.indexer.attn_k.weight' has shape \[12, 32\], \[10, 32\]"),
    "no pools": (POOL, ("u32", 0), "an index of 16 positions in pools of 0"),
    "pools that are no part": (POOL, ("u32", 5), "an index of 16 positions in pools of 5"),
    "pools of all": (POOL, ("u32", 2**31 - 1), "an index of 16 positions in pools of 2147483647"),
    "large pools": (TOP, ("u32", 0), NO_INDEX),
    "more positions than there are": (TOP, ("u32", 2**31 - 4), NO_INDEX),
    "no tail": (TAIL, ("bool", False), "kpool_select_tail is false, which is not supported"),
    "an index of another block first": (TYPES, ("array", ("bool", [True, False, True, True])), NO_INDEX),
    "an index of no block": (TYPES, ("array", ("bool", [False] * 4)), NO_INDEX),
    "an index of fewer blocks": (TYPES, ("array", ("bool", [True])), "a yes or no for each of 4 blocks"),
    "an index of one more block": (
        TYPES,
        ("array", ("bool", [True] * 4)),
        "'blk.2.indexer.attn_k.weight' is missing",
    ),
    "queries from the stream": (QUERIES, ("u32", 0), NO_INDEX),
    "a decay that grows": (FLOOR, ("f32", 5.0), "a lowest decay of 5.0"),
    "a decay without number": (FLOOR, ("f32", float("-inf")), "a lowest decay of -inf"),
    "a limit below 0": (LIMIT, ("array", ("f32", [1.0, 1.0, -1.0, 1.0])), NO_STREAMS),
    "limits of fewer blocks": (SHARED, ("array", ("f32", [1.0])), "a float for each of 4 blocks was needed"),
    "a limit that is a text": (LIMIT, ("text", "10"), "a float for each of 4 blocks was needed"),
    "a count that is a text": (COUNT, ("text", "4"), "count is '4'"),
}


@pytest.mark.parametrize("what", REFUSED_KEYS)
def test_metadata_of_no_streams_and_no_index_are_refused_by_name(what, tmp_path):
    key, value, message = REFUSED_KEYS[what]

    check_keys(tiny_streamed(), "glm5-next", {key: value}, message, tmp_path)


@pytest.mark.parametrize("key", [COUNT, EPS, ROUNDS, HEADS, DIM, TOP, POOL, QUERIES])
def test_a_file_without_a_size_is_refused(key, tmp_path):
    check_missing(tiny_streamed(), f"glm5-next.{key}", rf"glm5-next\.{key} is (missing|'None')", tmp_path)


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    return save(model(GLM), tmp_path_factory.mktemp(GLM))


REFUSED_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "rotation": ({"qk_rope_head_dim": 8}, "qk_rope_head_dim = 8 is not supported"),
    "rotation by name": ({"mla_use_nope": False}, "mla_use_nope = False is not supported"),
    "one stream by name": ({"mhc": False}, "mhc = False is not supported"),
    "no tail": ({"index_kpool_always_select_tail": False}, "index_kpool_always_select_tail = False is not supported"),
    "a pattern of indexes": ({"index_topk_pattern": "FSS"}, "index_topk_pattern = 'FSS' is not supported"),
    "an index in every second block": ({"index_topk_freq": 2}, "index_topk_freq = 2 is not supported"),
    "biases of attention": ({"attention_bias": True}, "attention_bias = True is not supported"),
    "fewer types of indexes": ({"indexer_types": ["full"]}, r"indexer_types = \['full'\]"),
    "types of indexes that are no list": ({"indexer_types": 7}, "indexer_types = 7"),
    "an index of no kind": ({"indexer_types": ["full", "half", "full"]}, "indexer_types = "),
    "no index to share": ({"indexer_types": ["full", "shared", "full"]}, NO_INDEX),
    "blocks of another type": ({"layer_types": ["mamba"] * 3}, "layers of type 'mamba'"),
    "no recurrent blocks": ({"linear_attn_config": None}, "linear_attn_config = None"),
    "pools that are no part": ({"index_kpool": 5}, "an index of 16 positions in pools of 5"),
    "no streams": ({"hc_mult": 0}, "hc_mult = '0'"),
    "streams without number": ({"hc_mult": 2**30}, NO_STREAMS),
    "rounds without end": ({"hc_sinkhorn_iters": 2**30}, NO_STREAMS),
    "a limit below 0": ({"swiglu_limit": -1.0}, "swiglu_limit = '-1.0'"),
    "an eps of 1": ({"hc_eps": 1.0}, NO_STREAMS),
}


@pytest.mark.parametrize("what", REFUSED_OPTIONS)
def test_options_of_no_streams_and_no_index_are_refused_by_name(what, directory, tmp_path):
    changes, message = REFUSED_OPTIONS[what]

    check_refused(change_options(directory, tmp_path, changes, "text_config"), message, (True,))


@pytest.mark.parametrize("floor", [1.0, 0.0, "low", float("nan"), True])
def test_decays_that_do_not_fall_are_refused(floor, directory, tmp_path):
    folder = change_options(directory, tmp_path, {"gate_lower_bound": floor}, "text_config.linear_attn_config")

    assert check_refused(folder, "gate_lower_bound = ", (True,)).hint == "a number below 0 is needed"
