"""Files of Mamba-2 hybrids that describe no such layer, or another model: refused by name, unread."""

# ruff: noqa: E501
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.small_models import tiny_scanned
from tests.targets.containers import Model
from tests.targets.refused import ABSENT, change_options, check_keys, check_missing, check_refused, write_changed
from tests.targets.scanned import FALCON, GRANITE, NEMOTRON, draw_model
from tests.targets.tiny import save

MOE = f"{NEMOTRON}_moe"
HEADS, INNER, GROUPS = "ssm.time_step_rank", "ssm.inner_size", "ssm.group_count"
STATE, KERNEL, KV = "ssm.state_size", "ssm.conv_kernel", "attention.head_count_kv"
NUMBERS = lambda *values: ("array", ("i32", list(values)))
REFUSED_KEYS = {
    "no heads": (GRANITE, HEADS, ("u32", 0), "inner_size is 64, a multiple of 0 was needed"),
    "heads that do not divide": (GRANITE, HEADS, ("u32", 7), "inner_size is 64, a multiple of 7 was needed"),
    "fewer heads than none": (GRANITE, HEADS, ("i32", -4), "a multiple of -4 was needed"),
    "no groups": (GRANITE, GROUPS, ("u32", 0), "no Mamba-2 layer has these sizes"),
    "groups that do not divide heads": (GRANITE, GROUPS, ("u32", 3), "no Mamba-2 layer has these sizes"),
    "groups of other size": (GRANITE, GROUPS, ("u32", 4), r"'blk.0.ssm_in.weight' has shape \[228, 32\], \[324, 32\]"),
    "no state": (GRANITE, STATE, ("u32", 0), "no Mamba-2 layer has these sizes"),
    "a huge state": (GRANITE, STATE, ("u32", 2**31 - 1), "no Mamba-2 layer has these sizes"),
    "a kernel of one": (GRANITE, KERNEL, ("u32", 1), "a convolution of 1: no Mamba-2 layer"),
    "a kernel of many": (GRANITE, KERNEL, ("u32", 99), "a convolution of 99: no Mamba-2 layer"),
    "a text for a size": (GRANITE, STATE, ("text", "24"), "state_size is '24'"),
    "key heads of fewer blocks": (GRANITE, KV, NUMBERS(0, 1), "head_count_kv is .*, a number for each of 4"),
    "two numbers of key heads": (GRANITE, KV, NUMBERS(0, 1, 0, 2), "0 and one other number were needed"),
    "attention for a scan": (GRANITE, KV, NUMBERS(1, 1, 0, 1), "'blk.0.attn_q.weight' is missing"),
    "a divisor of 0": (GRANITE, "logit_scale", ("f32", 0.0), "logit_scale is 0.0, a positive number was needed"),
    "a negative divisor": (GRANITE, "logit_scale", ("f32", -6.0), "logit_scale is -6.0, a positive number"),
    "a divisor that is not a number": (GRANITE, "logit_scale", ("f32", float("nan")), "logit_scale is nan"),
    "an infinite divisor": (GRANITE, "logit_scale", ("f32", float("inf")), "branches scaled by .* are inconsistent"),
    "a residual scale of 0": (GRANITE, "residual_scale", ("f32", 0.0), "branches scaled by .* are inconsistent"),
    "an embedding scale that is not a number": (
        GRANITE, "embedding_scale", ("f32", float("nan")), "branches scaled by .* are inconsistent",
    ),
    "a number for a yes": (GRANITE, "rope.scaling.finetuned", ("u32", 0), "rope.scaling.finetuned is"),
    "falcon: no heads": (FALCON, HEADS, ("u32", 0), "inner_size is 64, a multiple of 0"),
    "falcon: other state": (FALCON, STATE, ("u32", 25), r"'blk.0.ssm_in.weight' has shape"),
    "nemotron: widths of fewer blocks": (MOE, "feed_forward_length", NUMBERS(0, 0), "a number for each of 7"),
    "nemotron: key heads of the trunk alone": (MOE, KV, NUMBERS(0, 1, 0, 1, 0, 0), "a number for each of 7"),
    "nemotron: experts by softmax": (MOE, "expert_gating_func", ("u32", 1), "expert_gating_func is 1, 2 was needed"),
    "nemotron: a latent without tensors": (MOE, "moe_latent_size", ("u32", 8), "'blk.4.ffn_.*' (is missing|has shape)"),
    "nemotron: no experts": (MOE, "expert_count", ("u32", 0), "'blk.4.ffn_up.weight' is missing"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED_KEYS)
def test_metadata_of_no_mamba2_are_refused_by_name(what, tmp_path):
    family, key, value, message = REFUSED_KEYS[what]

    check_keys(tiny_scanned(family), family, {key: value}, message, tmp_path)


@pytest.mark.parametrize("family", [GRANITE, FALCON, MOE])
@pytest.mark.parametrize("key", [HEADS, INNER, GROUPS, STATE, KERNEL])
def test_a_file_without_a_size_is_refused(family, key, tmp_path):
    check_missing(tiny_scanned(family), f"{family}.{key}", rf"{family}\.{key} is missing", tmp_path)


@pytest.mark.parametrize(
    "name", ["ssm_a", "ssm_d", "ssm_dt.bias", "ssm_conv1d.weight", "ssm_norm.weight", "ssm_out.weight"]
)
def test_a_tensor_of_another_shape_is_refused(name, tmp_path):
    def reshape(model: Model) -> None:
        tensor = model.tensors[f"blk.0.{name}"]
        tensor[0] = (*tensor[0][:-1], tensor[0][-1] // 2, 2)

    check_refused(write_changed(tiny_scanned(GRANITE), tmp_path, reshape), rf"'blk.0.{name}' has shape", (False,))


REFUSED_JSON: dict[str, tuple[str, dict[str, Any], str]] = {
    "granite: heads that do not fit": (GRANITE, {"mamba_d_head": 3}, "Mamba-2 heads of 3, .* numbers in all were needed"),
    "granite: no state": (GRANITE, {"mamba_d_state": 0}, "mamba_d_state = '0'"),
    "granite: projections with biases": (GRANITE, {"mamba_proj_bias": True}, "mamba_proj_bias = True is not supported"),
    "granite: limited steps": (GRANITE, {"time_step_limit": [0.001, 0.1]}, "time_step_limit = .* is not supported"),
    "granite: other positions": (GRANITE, {"position_embedding_type": "alibi"}, "position_embedding_type = 'alibi'"),
    "granite: unknown blocks": (GRANITE, {"layer_types": ["x"] * 9}, "layer_types"),
    "granite: a divisor of 0": (GRANITE, {"logits_scaling": 0}, "logits_scaling = '0'"),
    "falcon: the norm before the gate": (
        FALCON, {"mamba_rms_norm": True, "mamba_norm_before_gate": True}, "mamba_norm_before_gate = True",
    ),
    "falcon: fewer multipliers": (FALCON, {"ssm_multipliers": [1.0]}, "a list of 5 positive numbers"),
    "falcon: a multiplier of 0": (FALCON, {"mlp_multipliers": [1.0, 0]}, "mlp_multipliers"),
    "falcon: a text for multipliers": (FALCON, {"mlp_multipliers": "11"}, "mlp_multipliers"),
    "falcon: projections with biases": (FALCON, {"projectors_bias": True}, "projectors_bias = True"),
    "nemotron: an unknown letter": (MOE, {"layers_block_type": ABSENT, "hybrid_override_pattern": "MX"}, "hybrid_override_pattern = 'MX'"),
    "nemotron: no blocks": (MOE, {"layers_block_type": ABSENT, "hybrid_override_pattern": ""}, "hybrid_override_pattern = ''"),
    "nemotron: numbers for blocks": (MOE, {"layers_block_type": [1, None]}, "hybrid_override_pattern"),
    "nemotron: lists for blocks": (MOE, {"layers_block_type": [["M"], {}]}, "hybrid_override_pattern"),
    "nemotron: another activation": (MOE, {"mlp_hidden_act": "silu"}, "mlp_hidden_act = 'silu' is not supported"),
    "nemotron: another block behind": (
        MOE, {"num_nextn_predict_layers": 1, "mtp_layers_block_type": ["mamba"]}, "mtp_hybrid_override_pattern = 'M'",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def directories(tmp_path_factory) -> dict[str, Path]:
    return {f: save(draw_model(f, 1), tmp_path_factory.mktemp(f)) for f in (GRANITE, FALCON, MOE)}


@pytest.mark.parametrize("what", REFUSED_JSON)
def test_configs_of_another_model_are_refused_by_name(what, directories, tmp_path):
    family, changes, message = REFUSED_JSON[what]

    check_refused(change_options(directories[family], tmp_path, changes), message, (False,))
