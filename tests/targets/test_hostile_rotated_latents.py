"""Files of DeepSeek and GLM-4.7-Flash whose metadata describe no latent attention or no choice of experts, and the
forms in which converters write them; options that would change a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from spec_core import load
from tests.support.small_models import tiny_deepseek
from tests.targets import gated, latent
from tests.targets.containers import open_model, pack_typed
from tests.targets.drive import fresh
from tests.targets.random_families import lacking
from tests.targets.refused import change_options, check_keys, check_missing, check_refused
from tests.targets.tiny import save

pytestmark = pytest.mark.skipif(lacking(latent.FLASH), reason="this transformers has no such classes")
RANK, QUERIES, SHARED = "attention.kv_lora_rank", "attention.q_lora_rank", "rope.dimension_count"
KEY, VALUE, FUNCTION = "attention.key_length_mla", "attention.value_length_mla", "expert_gating_func"
REFUSED_KEYS: dict[str, tuple[str, tuple[str, Any], str]] = {
    "no latent": (RANK, ("u32", 0), "latents of 0 and 8 numbers"),
    "a latent of many numbers": (RANK, ("u32", 2**31 - 1), "head is 2147483655"),
    "queries from fewer numbers than none": (QUERIES, ("i32", -3), "queries from -3"),
    "queries from many numbers": (QUERIES, ("u32", 2**31), "queries from 2147483648"),
    "queries of other size": (QUERIES, ("u32", 31), r"'blk.0.attn_q_a.weight' has shape \[32, 32\], \[31, 32\]"),
    "queries from the stream": (QUERIES, ("u32", 0), "'blk.0.attn_q.weight' is missing"),
    "no shared numbers": (SHARED, ("u32", 0), "0 rotated"),
    "an odd number of shared ones": (SHARED, ("u32", 5), "5 rotated"),
    "keys of shared numbers alone": (KEY, ("u32", 8), "keys of 0 and values of 16"),
    "no values": (VALUE, ("u32", 0), "keys of 12 and values of 0"),
    "values of other size": (VALUE, ("u32", 13), r"'blk.0.attn_v_b.weight' has shape \[4, 16, 32\], \[4, 13, 32\]"),
    "another choice of experts": (FUNCTION, ("u32", 3), "expert_gating_func is 3, 1 or 2 was needed"),
    "a bias of softmax scores": (FUNCTION, ("u32", 1), "'blk.1.exp_probs_b.bias' is not part"),
    "many groups of experts": ("expert_group_count", ("u32", 7), "7 groups"),
    "no groups of experts": ("expert_group_count", ("u32", 0), "0 groups"),
    "a text for a size": (RANK, ("text", "32"), r"kv_lora_rank is '32'"),
}


@pytest.mark.parametrize("what", REFUSED_KEYS)
def test_metadata_of_no_latent_attention_are_refused_by_name(what, tmp_path):
    key, value, message = REFUSED_KEYS[what]

    check_keys(tiny_deepseek(), "deepseek2", {key: value}, message, tmp_path)


@pytest.mark.parametrize("key", [RANK, SHARED, VALUE])
def test_a_file_without_a_size_is_refused(key, tmp_path):
    check_missing(tiny_deepseek(), f"deepseek2.{key}", ".", tmp_path)


def test_softmax_scores_in_groups_are_refused(tmp_path):
    numbers = {FUNCTION: 1, "expert_group_count": 2, "expert_group_used_count": 1}
    values = {key: ("u32", value) for key, value in numbers.items()}

    check_keys(tiny_deepseek(), "deepseek2", values, "softmax scores within 2 groups", tmp_path)


@pytest.mark.parametrize("kernels", ["native", "reference"])
def test_the_form_of_a_file_changes_no_logits(kernels, tmp_path):
    """Both matrices in one tensor, and sigmoid scores that the file states or that their bias implies."""
    model, tokens = latent.draw_model(latent.FLASH, 0), [3, 1, 4, 1, 5, 9]
    files = [latent.write_gguf(model, latent.FLASH, tmp_path / f"{whole}.gguf", whole=whole) for whole in (False, True)]
    stated = open_model(files[0]).copy()
    stated.pairs["deepseek2.expert_gating_func"] = pack_typed("u32", 2)
    (tmp_path / "stated.gguf").write_bytes(stated.bytes())
    rows = [
        fresh(load(file, kernels=kernels, cache_dtype="float32", dtype="float32"), tokens).logits
        for file in (*files, tmp_path / "stated.gguf")
    ]

    assert all(torch.equal(rows[0], other) for other in rows[1:])


REFUSED_OPTIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "softmax": (latent.FLASH, {"scoring_func": "softmax"}, "scoring_func = 'softmax' is not supported"),
    "another choice": (latent.FLASH, {"topk_method": "greedy"}, "topk_method = 'greedy' is not supported"),
    "rotation of halves": (latent.FLASH, {"rope_interleave": False}, "rope_interleave = False is not supported"),
    "dense blocks between": (latent.FLASH, {"mlp_layer_types": ["sparse", "dense"]}, "mlp_layer_types"),
    "groups of softmax scores": (
        latent.V2,
        {"topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 1, "n_routed_experts": 4},
        "softmax scores within 2 groups",
    ),
    "no gates": (gated.LAGUNA, {"gating": False}, "gating = False is not supported"),
    "heads of fewer blocks": (gated.LAGUNA, {"num_attention_heads_per_layer": [2]}, "num_attention_heads_per_layer"),
    "heads that are no numbers": (gated.LAGUNA, {"num_attention_heads_per_layer": "2"}, "_per_layer = 2"),
    "capped routers": (gated.LAGUNA, {"moe_router_logit_softcapping": 3.0}, "moe_router_logit_softcapping = 3.0"),
    "no norms after branches": (gated.LFM3, {"use_sandwich_norm": False}, "use_sandwich_norm = False"),
    "no gates of heads": (gated.LFM3, {"use_attention_gate": False}, "use_attention_gate = False"),
    "biases": (gated.OLMO, {"attention_bias": True}, "attention_bias = True is not supported"),
    "blocks of another kind": (gated.OLMO, {"layer_types": ["mamba"] * 9}, "layer_types"),
}


@pytest.fixture
def plain(tmp_path_factory) -> Path:
    """The folder of a model before its options change."""
    return tmp_path_factory.mktemp("plain")


@pytest.mark.parametrize("what", REFUSED_OPTIONS)
def test_options_that_change_the_text_are_refused_by_name(what, plain, tmp_path):
    family, changes, message = REFUSED_OPTIONS[what]
    model = (latent if family in latent.FAMILIES else gated).draw_model(family, 1)
    save(model, plain)

    check_refused(change_options(plain, tmp_path, changes), message, (False,))


@pytest.mark.parametrize("bases", [[1e4, 1e4, 1e4], [0, 0, 0], [1e4], "no"])
def test_other_rotations_of_muse_glimmer_are_refused(bases, plain, tmp_path):
    save(gated.draw_model(gated.MUSE, 1), plain)
    folder = change_options(plain, tmp_path, {"layer_rope_theta": bases}, "text_config")

    check_refused(folder, "layer_rope_theta", (False,))
