"""OLMo 2 against transformers on a random model, from a directory and from a GGUF file, on both executors."""

from importlib.metadata import entry_points

import gguf
import pytest
import torch
from spec_olmo2 import OLMO2
from transformers import Olmo2Config, Olmo2ForCausalLM

from spec_core import Run, UsageError, load

SIZES = dict(vocab_size=97, hidden_size=40, intermediate_size=72, num_hidden_layers=3, num_attention_heads=5)
SIZES |= dict(num_key_value_heads=1, max_position_embeddings=128, tie_word_embeddings=False)
SIZES |= dict(pad_token_id=0, bos_token_id=None, eos_token_id=None)
FLOATS = {"dtype": "float32", "cache_dtype": "float32"}
PROMPT = [5, 9, 60, 2, 33, 8]
INSTALLED = "olmo2" in entry_points(group="spec_targets.architectures").names
pytestmark = pytest.mark.skipif(
    not INSTALLED, reason="the architecture is found by its entry point: install the package"
)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = Olmo2ForCausalLM(Olmo2Config(**SIZES)).eval()
    for name, weight in model.named_parameters():
        if "norm" in name:  # ones would hide a norm that is missing
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    return model


@pytest.fixture(scope="module")
def directory(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("olmo2")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    """Names and keys of llama.cpp; its converter does not reorder q and k of OLMo 2."""
    path = tmp_path_factory.mktemp("gguf") / "olmo2.gguf"
    writer = gguf.GGUFWriter(path, "olmo2")
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_context_length(SIZES["max_position_embeddings"])
    writer.add_embedding_length(SIZES["hidden_size"])
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_head_count(SIZES["num_attention_heads"])
    writer.add_head_count_kv(SIZES["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.OLMO2, SIZES["num_hidden_layers"])
    for name, weight in model.state_dict().items():
        writer.add_tensor(names.get_name(name, (".weight",)), weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(params=["reference", "native"])
def kernels(request):
    return request.param


@pytest.mark.parametrize("form", ["directory", "file"])
def test_the_text_and_its_logprobs_are_those_of_transformers(form, kernels, model, request):
    try:
        target = load(request.getfixturevalue(form), kernels=kernels, **FLOATS)
    except UsageError as error:
        pytest.skip(str(error))  # installed without a C compiler
    expected = model.generate(torch.tensor([PROMPT]), max_new_tokens=24, do_sample=False, eos_token_id=None)
    result = Run(target).generate(PROMPT, max_tokens=24, ignore_eos=True, logprobs=0).result

    assert result.tokens == expected[0, len(PROMPT) :].tolist()
    with torch.no_grad():
        rows = torch.log_softmax(model(expected).logits[0, len(PROMPT) - 1 : -1].double(), -1)
    for logprob, row, token in zip(result.logprobs, rows, result.tokens, strict=True):
        assert abs(logprob.value - float(row[token])) < 2e-5


def test_drafts_change_no_text(directory):
    target = load(directory, kernels="reference", **FLOATS)
    plain, drafted = (
        Run(target, methods=methods).generate(PROMPT, max_tokens=40, temperature=0.8, ignore_eos=True).result
        for methods in ([], ["ngram", "suffix"])
    )

    assert plain.tokens == drafted.tokens


def test_a_tensor_that_is_missing_is_named(model, tmp_path):
    model.save_pretrained(tmp_path, state_dict={k: v for k, v in model.state_dict().items() if "q_norm" not in k})
    with pytest.raises(UsageError, match=r"attn_q_norm|q_norm"):
        load(tmp_path)


def test_it_is_one_family():
    assert (OLMO2.name, OLMO2.classes) == ("olmo2", ("Olmo2ForCausalLM",))
