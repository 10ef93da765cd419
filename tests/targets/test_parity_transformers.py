"""What no golden vector covers, held against transformers on tiny random models in float32.

What readers read is asked of the reference executor.
"""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from spec_core import UsageError, load
from tests.targets.drive import fresh, greedy
from tests.targets.tiny import classes, logits, model, save

EXACT = {"dtype": "float32", "cache_dtype": "float32"}
"""Options under which the bars of float32 arithmetic hold."""
BAR = 2e-5
HYBRID_BAR = 2e-4
"""Against float64, transformers itself is off by up to 8e-5 on these models of logits of size 1."""
TOKENS = [int(t) for t in torch.randint(0, 96, (70,), generator=torch.Generator().manual_seed(1))]
LONG = [int(t) for t in torch.randint(0, 96, (130,), generator=torch.Generator().manual_seed(2))]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def rope(kind: str, **more) -> dict:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0} | more}


def skip_unless_known(arch: str) -> None:
    """Skip where the installed transformers is too old."""
    if None in classes(arch):
        pytest.skip(f"transformers {transformers.__version__} has no classes of {arch}")


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)


def yarn(**more) -> dict:
    return rope("yarn", factor=4.0, original_max_position_embeddings=16, **more)


YARN = yarn()
CONFIGS = {
    "llama": ("llama", {}),
    "llama of one key head": ("llama", {"num_key_value_heads": 1}),
    "llama with a key head per head": ("llama", {"num_key_value_heads": 4}),
    "llama of wide heads": ("llama", {"head_dim": 24}),
    "llama with biases": ("llama", {"attention_bias": True}),
    "llama with a tied head": ("llama", {"tie_word_embeddings": True}),
    "llama3 rope": ("llama", LLAMA3),
    "yarn rope": ("llama", YARN),
    "yarn rope with its own ramp": ("llama", rope("yarn", factor=8.0, beta_fast=16.0, beta_slow=2.0)),
    "yarn rope with its usual attention factor": ("llama", yarn(attention_factor=1.1386294361119891)),
    "yarn rope with another attention factor": ("llama", yarn(attention_factor=0.8)),
    "yarn rope with equal mscales": ("llama", yarn(mscale=1.0, mscale_all_dim=1.0)),
    "yarn rope with two mscales": ("llama", yarn(mscale=0.7, mscale_all_dim=1.5)),
    "linear rope": ("llama", rope("linear", factor=2.5)),
    "another rope base and epsilon": ("llama", rope("default") | {"rms_norm_eps": 1e-3}),
    "qwen2": ("qwen2", {}),
    "qwen2 with a tied head": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "qwen3 with biases": ("qwen3", {"head_dim": 16, "attention_bias": True}),
    "qwen3 with yarn": ("qwen3", {"head_dim": 16} | YARN),
    "qwen3moe with normalised weights": ("qwen3moe", {"head_dim": 8, "norm_topk_prob": True}),
    "qwen3moe with plain weights": ("qwen3moe", {"head_dim": 8, "norm_topk_prob": False}),
    "qwen3moe of one expert": ("qwen3moe", {"head_dim": 8, "num_experts_per_tok": 1, "norm_topk_prob": False}),
}

FOUR = {"layer_types": None, "num_hidden_layers": 4}
NEWER = {
    "glm4moe": ("glm4moe", {}),
    "glm4moe with norms of q and k": ("glm4moe", {"use_qk_norm": True}),
    "glm4moe with groups of experts and biases": (
        "glm4moe",
        {"n_group": 4, "topk_group": 2, "attention_bias": True, "norm_topk_prob": False},
    ),
    "glm4moe of another epsilon": ("glm4moe", {"use_qk_norm": True, "rms_norm_eps": 1e-2}),
    "qwen3next": ("qwen3next", {}),
    "qwen3next with plain weights": ("qwen3next", {"norm_topk_prob": False}),
    "qwen3next of another epsilon": ("qwen3next", {"rms_norm_eps": 1e-2}),
    "qwen3next by its interval": ("qwen3next", FOUR | {"linear_num_value_heads": 6}),
    "qwen35": ("qwen35", {}),
    "qwen35 with a tied head": ("qwen35", {"tie_word_embeddings": True}),
    "qwen35 of another epsilon": ("qwen35", {"rms_norm_eps": 1e-2}),
    "qwen35 of another rotation": ("qwen35", rope("default", rope_theta=1e6, partial_rotary_factor=0.5)),
    "qwen35 by its interval": ("qwen35", FOUR | {"linear_num_value_heads": 6}),
    "qwen35moe": ("qwen35moe", {}),
    "qwen35moe of another epsilon": ("qwen35moe", {"rms_norm_eps": 1e-2}),
    "qwen35moe by its interval": ("qwen35moe", FOUR | {"linear_num_value_heads": 8}),
    "ministral3, whose queries grow": ("ministral3", {}),
    "ministral3 with a window": ("ministral3", {"sliding_window": 9}),
    "ministral3 whose queries do not grow": ("ministral3", yarn(llama_4_scaling_beta=0.0)),
    "kimi-linear as transformers saves it": ("kimi-linear", {}),
    "kimi-linear of another epsilon": ("kimi-linear", {"rms_norm_eps": 1e-2}),
    "kimi-linear of dense blocks": ("kimi-linear", {"mlp_layer_types": ["dense"] * 3}),
    "glm5_next as transformers saves it": ("glm5_next", {}),
    "glm5_next of another epsilon": ("glm5_next", {"rms_norm_eps": 1e-2, "hc_eps": 1e-3}),
    "glm5_next whose decays have no bound": ("glm5_next", {"linear_lower_bound": None}),
    "glm5_next with an index of two blocks": (
        "glm5_next",
        {
            "layer_types": ["full_attention", "full_attention", "linear_attention"],
            "indexer_types": ["full", "shared", "full"],
        },
    ),
    "gemma4 of blocks with numbers of two digits": (
        "gemma4-e",
        {
            "layer_types": ["sliding_attention", "full_attention"] * 6,
            "num_hidden_layers": 12,
            "num_kv_shared_layers": 4,
        },
    ),
}


def largest(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a - b).abs().max().item()


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_transformers(name, tmp_path):
    arch, config = CONFIGS[name]
    theirs = model(arch, **config)
    target = load(save(theirs, tmp_path), dtype="float32", kernels="reference")

    assert largest(logits(theirs, TOKENS), fresh(target, TOKENS).logits) <= BAR


@torch.no_grad()
def continue_text(model, prompt: list[int], n: int) -> list[int]:
    """n greedy tokens of transformers over its own cache: states of gated delta nets, keys and values."""
    ids = torch.tensor([prompt])
    options = {"max_new_tokens": n, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    return model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, len(prompt) :].tolist()


@pytest.mark.parametrize("name", NEWER)
def test_newer_families_are_those_of_transformers(name, tmp_path):
    """One token, less than a chunk of 64, and more than two; then 16 greedy tokens."""
    arch, config = NEWER[name]
    skip_unless_known(arch)
    theirs = model(arch, **config)
    if arch == "gemma4-e":  # else the last token, whose embedding is a row of the output matrix, comes again
        theirs.model.embed_tokens.weight.data.mul_(0.25)
    target = load(save(theirs, tmp_path), dtype="float32", kernels="reference")

    for length in (1, 37, 130):
        expected = logits(theirs, LONG[:length])
        bar = BAR if arch == "glm4moe" else HYBRID_BAR
        assert largest(expected, fresh(target, LONG[:length]).logits) <= bar * max(1.0, expected.std())
    tokens, _ = greedy(target, LONG[:37], 16)
    assert tokens == continue_text(theirs, LONG[:37], 16)
    assert len(set(tokens)) > 1


@pytest.mark.parametrize("arch, classes_of", [("qwen35", "Qwen3_5"), ("qwen35moe", "Qwen3_5Moe")])
def test_the_text_part_of_a_model_with_vision(arch, classes_of, tmp_path):
    """As published: the config is nested, names begin with ``model.language_model.``, vision lies beside."""
    skip_unless_known(arch)
    theirs = model(arch)
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
    config = getattr(transformers, f"{classes_of}Config")(text_config=theirs.config.to_dict(), vision_config=vision)
    whole = getattr(transformers, f"{classes_of}ForConditionalGeneration")(config)
    whole.model.language_model.load_state_dict(theirs.model.state_dict())
    whole.lm_head.load_state_dict(theirs.lm_head.state_dict())
    target = load(save(whole, tmp_path), **EXACT)

    assert "text_config" in json.loads((tmp_path / "config.json").read_text())
    assert largest(logits(theirs, TOKENS), fresh(target, TOKENS).logits) <= HYBRID_BAR


def test_the_old_name_of_rope_parameters_is_read(tmp_path):
    """Files written before transformers 5 say ``rope_scaling``, and the base apart."""
    theirs = model("llama", **LLAMA3)
    save(theirs, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["rope_scaling"] = config.pop("rope_parameters")
    config["rope_theta"] = config["rope_scaling"].pop("rope_theta")
    (tmp_path / "config.json").write_text(json.dumps(config))

    assert largest(logits(theirs, TOKENS), fresh(load(tmp_path, **EXACT), TOKENS).logits) <= BAR


@pytest.mark.parametrize("arch", ["llama", "qwen3moe"])
def test_a_sharded_directory(arch, tmp_path):
    theirs = model(arch)
    save(theirs, tmp_path, max_shard_size="20KB")

    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert largest(logits(theirs, TOKENS), fresh(load(tmp_path, **EXACT), TOKENS).logits) <= BAR


def test_bfloat16_weights_are_computed_with_in_float32(tmp_path):
    qwen = model("qwen3")
    target = load(save(qwen.bfloat16(), tmp_path), **EXACT)
    theirs = type(qwen).from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager")

    assert target.info.dtype == "float32"
    assert largest(logits(theirs, TOKENS), fresh(target, TOKENS).logits) <= BAR


def test_a_bfloat16_target_is_near_the_float32_one(tmp_path):
    theirs = model("qwen3", head_dim=16)
    target = load(save(theirs, tmp_path), dtype="bfloat16")
    expected = logits(theirs, TOKENS)

    error = fresh(target, TOKENS).logits.float() - expected

    assert error.square().mean().sqrt() <= 0.05 * expected.std()


def test_experts_in_one_tensor_are_read(tmp_path):
    """``mlp.experts.gate_up_proj`` [E, 2 F, D], as transformers 5 holds them in memory."""
    theirs = model("qwen3moe")
    file = save(theirs, tmp_path) / "model.safetensors"
    apart = {name: t for name, t in load_file(file).items() if ".mlp.experts." not in name}
    fused = {name: t.clone() for name, t in theirs.state_dict().items() if ".mlp.experts." in name}
    assert any(name.endswith("mlp.experts.gate_up_proj") for name in fused)
    save_file(apart | fused, file, metadata={"format": "pt"})

    assert largest(logits(theirs, TOKENS), fresh(load(tmp_path, **EXACT), TOKENS).logits) <= BAR


def without(directory, name: str) -> None:
    tensors = load_file(directory / "model.safetensors")
    del tensors[name]
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def test_a_missing_tensor_is_named(tmp_path):
    without(save(model("llama"), tmp_path), "model.layers.1.mlp.down_proj.weight")

    with pytest.raises(UsageError, match=r"blk\.1\.ffn_down\.weight.* is missing"):
        load(tmp_path)


def test_a_missing_expert_is_named(tmp_path):
    without(save(model("qwen3moe"), tmp_path), "model.layers.0.mlp.experts.3.up_proj.weight")

    with pytest.raises(UsageError, match=r"blk\.0\.ffn_up_exps\.weight.* is missing"):
        load(tmp_path)


def edit(directory, **changes):
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | changes))
    return directory


def test_a_tensor_of_another_shape_is_refused(tmp_path):
    edit(save(model("llama"), tmp_path), intermediate_size=64)

    with pytest.raises(UsageError, match=r"shape \[48, 32\], \[64, 32\] was needed"):
        load(tmp_path)


def test_a_missing_output_matrix_is_not_replaced_by_the_embedding(tmp_path):
    """Only where the config says that both are one."""
    folder = save(model("llama"), tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("lm_head.weight")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UsageError, match=r"'lm_head.weight' is missing, .*tie_word_embeddings.: false"):
        load(edit(folder, tie_word_embeddings=False))

    assert load(edit(folder, tie_word_embeddings=True)).info.vocab > 0


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"architectures": ["BloomForCausalLM"]}, "BloomForCausalLM"),
        ({"architectures": None, "model_type": "bloom"}, "model_type 'bloom' is not supported"),
        ({"architectures": [], "model_type": None}, "neither architectures nor model_type"),
        ({"architectures": "Qwen3ForCausalLM"}, "architectures = 'Qwen3ForCausalLM'"),
        ({"rope_parameters": "yarn"}, "rope_parameters = 'yarn'"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 5}}}, "rope_parameters = "),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types = "),
        ({"architectures": None, "model_type": "mistral", "sliding_window": -1}, "sliding_window = '-1'"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "long_factor = 'None'"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4}}, "rope scaling 'dynamic'"),
        ({"rope_parameters": {"rope_type": "x" * 5000, "rope_theta": 1e4}}, "rope scaling 'x{60}' is"),
        ({"num_attention_heads": 0}, "num_attention_heads = '0'"),
        ({"use_sliding_window": True}, "use_sliding_window"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(changes, message, tmp_path):
    edit(save(model("llama"), tmp_path), **changes)

    with pytest.raises(UsageError, match=message):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "qwen3moe"])
def test_a_config_without_architectures_is_read_by_its_model_type(kind, tmp_path):
    named = load(save(model(kind), tmp_path), weights=False).info
    edit(tmp_path, architectures=None)

    assert load(tmp_path, weights=False).info == named


def test_biases_beside_an_output_gate_are_refused(tmp_path):
    """No published model has them."""
    skip_unless_known("qwen35")

    with pytest.raises(UsageError, match="attention_bias = True is not supported"):
        load(save(model("qwen35", attention_bias=True), tmp_path))
