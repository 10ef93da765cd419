"""Optional and fused tensors and keys of GGUF files, each against transformers on the same weights."""

from __future__ import annotations

import pytest
import torch
import transformers
from spec_kernels.ops.rope import llama3_factors

from spec_core import UsageError, load
from tests.targets.drive import fresh
from tests.targets.test_parity_transformers import BAR, LLAMA3, TOKENS, largest, yarn
from tests.targets.tiny import SIZES, logits, model
from tests.targets.written import Tensors, metadata, tensors, write


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class File:
    """A tiny model on its way into a file."""

    def __init__(self, arch: str, **config) -> None:
        self.arch, self.model = arch, model(arch, **config)
        self.keys, self.tensors = metadata(self.model, arch), tensors(self.model, arch == "llama")

    def differs(self, tmp_path) -> float:
        """What is read is in question, not how it is summed: the reference rounds as transformers does."""
        path = write(tmp_path / "model.gguf", self.arch, self.keys, self.tensors)
        target = load(path, kernels="reference")
        return largest(logits(self.model, TOKENS), fresh(target, TOKENS).logits)


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3", "qwen3moe"])
def test_plain_files(arch, tmp_path):
    assert File(arch, norm_topk_prob=True).differs(tmp_path) <= BAR


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_a_missing_head_is_tied(arch, tmp_path):
    file = File(arch, tie_word_embeddings=True)

    assert "output.weight" not in file.tensors
    assert file.differs(tmp_path) <= BAR


def fuse(named: Tensors, kind: str) -> None:
    for i in range(SIZES["num_hidden_layers"]):
        parts = [named.pop(f"blk.{i}.attn_{p}.{kind}") for p in "qkv"]
        named[f"blk.{i}.attn_qkv.{kind}"] = torch.cat(parts)


@pytest.mark.parametrize("kinds", [["weight"], ["weight", "bias"]], ids=["weights", "weights and biases"])
def test_q_k_and_v_in_one_tensor(kinds, tmp_path):
    """Biases may be fused, or apart from fused weights."""
    file = File("qwen2")
    for kind in kinds:
        fuse(file.tensors, kind)

    assert file.differs(tmp_path) <= BAR


def test_fused_rows_of_a_llama_are_permuted_too(tmp_path):
    file = File("llama", attention_bias=True)
    fuse(file.tensors, "weight")

    assert file.differs(tmp_path) <= BAR


def test_gate_and_up_of_experts_in_one_tensor(tmp_path):
    file = File("qwen3moe", norm_topk_prob=True)
    for i in range(2):
        both = [file.tensors.pop(f"blk.{i}.ffn_{p}_exps.weight") for p in ("gate", "up")]
        file.tensors[f"blk.{i}.ffn_gate_up_exps.weight"] = torch.cat(both, 1)

    assert file.differs(tmp_path) <= BAR


def test_a_bias_of_the_head_is_added(tmp_path):
    file = File("qwen2")
    file.tensors["output.bias"] = bias = torch.randn(96)
    target = load(write(tmp_path / "model.gguf", "qwen2", file.keys, file.tensors), cache_dtype="float32")

    assert largest(logits(file.model, TOKENS) + bias, fresh(target, TOKENS).logits) <= BAR


def test_rope_freqs_slow_the_rotation(tmp_path):
    """llama3 scaling is in a tensor only, without a key."""
    file = File("llama", **LLAMA3)
    file.tensors["rope_freqs.weight"] = llama3_factors(8, 10000.0, 8.0, 1.0, 4.0, 16)

    assert file.differs(tmp_path) <= BAR


@pytest.mark.parametrize("attention", [{}, {"attention_factor": 0.8}], ids=["usual", "own"])
def test_keys_of_yarn(attention, tmp_path):
    """With a factor of cos and sin of its own, too."""
    file = File("llama", **yarn(**attention))
    file.keys |= {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 16,
    }
    if attention:
        file.keys["rope.scaling.yarn_attn_factor"] = attention["attention_factor"]

    assert file.differs(tmp_path) <= BAR


@pytest.mark.parametrize(
    "keys",
    [{"rope.scaling.type": "linear", "rope.scaling.factor": 2.5}, {"rope.scale_linear": 2.5}],
    ids=["new", "old"],
)
def test_keys_of_linear_scaling(keys, tmp_path):
    file = File("llama", rope_parameters={"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0})
    file.keys |= keys

    assert file.differs(tmp_path) <= BAR


def test_keys_with_a_value_per_layer(tmp_path):
    file = File("qwen3")
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        file.keys[key] = [file.keys[key]] * 2

    assert file.differs(tmp_path) <= BAR


def test_layers_of_different_width_are_refused(tmp_path):
    file = File("qwen3")
    file.keys["attention.head_count_kv"] = [2, 1]

    with pytest.raises(UsageError, match="head_count_kv differs between layers"):
        file.differs(tmp_path)


def test_a_llama_with_experts(tmp_path):
    """Mixtral files name themselves llama."""
    torch.manual_seed(0)
    sizes = SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2}
    config = transformers.MixtralConfig(**sizes, attn_implementation="eager")
    mixtral = transformers.MixtralForCausalLM(config).eval()
    for parameter in mixtral.parameters():
        parameter.data.normal_(0, 0.25)
    file = File.__new__(File)
    file.arch, file.model = "llama", mixtral
    file.keys = metadata(mixtral, "llama") | {"expert_count": 4, "expert_used_count": 2}
    file.tensors = tensors(mixtral, permuted=True)

    assert file.differs(tmp_path) <= BAR


def test_blocks_that_predict_further_ahead_are_no_part_of_the_trunk(tmp_path):
    file = File("qwen3")
    file.keys |= {"block_count": 3, "nextn_predict_layers": 1}
    file.tensors |= {
        name.replace("blk.1.", "blk.2."): t for name, t in file.tensors.items() if name.startswith("blk.1.")
    }

    assert file.differs(tmp_path) <= BAR


def test_a_tensor_keeps_the_rows_of_the_file(tmp_path):
    """``tensor`` returns q of a llama as in the file."""
    file = File("llama")
    target = load(write(tmp_path / "model.gguf", "llama", file.keys, file.tensors))

    assert torch.equal(file.tensors["blk.0.attn_q.weight"], target.tensor("blk.0.attn_q.weight"))


@pytest.mark.parametrize("name", ["blk.1.attn_k.weight", "token_embd.weight", "output_norm.weight"])
def test_a_missing_tensor_is_refused(name, tmp_path):
    file = File("llama")
    del file.tensors[name]

    with pytest.raises(UsageError):
        file.differs(tmp_path)


@pytest.mark.parametrize("name", ["blk.0.attn_sinks.weight", "blk.0.ffn_up.bias", "blk.1.attn_q_norm.weight"])
def test_a_tensor_nobody_would_read_is_refused(name, tmp_path):
    """Leaving it out is not a crash, it is wrong text."""
    file = File("llama")
    file.tensors[name] = torch.randn(32)

    with pytest.raises(UsageError, match=f"{name}.* is not part of the llama architecture"):
        file.differs(tmp_path)


def test_a_bias_of_k_alone_is_refused(tmp_path):
    file = File("llama")
    file.tensors["blk.0.attn_k.bias"] = torch.randn(16)

    with pytest.raises(UsageError, match=r"attn_q\.bias.* is missing"):
        file.differs(tmp_path)


def test_rope_freqs_of_another_length_are_refused(tmp_path):
    file = File("llama")
    file.tensors["rope_freqs.weight"] = torch.ones(3)

    with pytest.raises(UsageError, match=r"shape \[3\], \[4\] was needed"):
        file.differs(tmp_path)


@pytest.mark.parametrize("arch, message", [("qwen9", "qwen9"), ("q" * 900, "q{60}")], ids=["short", "long"])
def test_an_unknown_architecture_is_refused(arch, message, tmp_path):
    file = File("qwen3")
    file.arch = arch

    with pytest.raises(UsageError, match=f"'{message}' is not supported"):
        file.differs(tmp_path)


def test_quantised_weights_are_those_of_their_numbers(tmp_path):
    """A file of Q8_0 gives the same bits as the float32 file of its dequantised numbers."""
    file = File("qwen3", head_dim=16, intermediate_size=64)
    quantised = load(write(tmp_path / "q8.gguf", "qwen3", file.keys, file.tensors, "Q8_0"), kernels="reference")
    numbers = {name: quantised.tensor(name) for name in file.tensors}
    plain = load(write(tmp_path / "f32.gguf", "qwen3", file.keys, numbers), kernels="reference")

    assert not torch.equal(file.tensors["blk.0.attn_q.weight"], numbers["blk.0.attn_q.weight"])
    assert torch.equal(fresh(plain, TOKENS).logits, fresh(quantised, TOKENS).logits)
