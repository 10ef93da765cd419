"""EXAONE 4 against transformers on random models, from a directory and from a GGUF file, on both executors."""

import json
from importlib.metadata import entry_points

import gguf
import pytest
import torch
from transformers import Exaone4Config, Exaone4ForCausalLM

from spec_core import Run, UsageError, load

SIZES = dict(vocab_size=97, hidden_size=40, intermediate_size=72, num_hidden_layers=5, num_attention_heads=5)
SIZES |= dict(num_key_value_heads=1, max_position_embeddings=128, tie_word_embeddings=False)
SIZES |= dict(pad_token_id=0, bos_token_id=None, eos_token_id=None)
FLOATS = {"dtype": "float32", "cache_dtype": "float32"}
SCALED = {"rope_theta": 1e6, "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALED |= {"original_max_position_embeddings": 32}
PROMPT = [5, 9, 60, 2, 33, 8, 41, 77] * 5
LAYOUTS = {
    "hybrid": {"sliding_window": 8},
    "full": {"sliding_window": None, "layer_types": ["full_attention"] * 5, "tie_word_embeddings": True},
    "scaled": {"sliding_window": 5, "rope_parameters": SCALED, "head_dim": 16, "num_key_value_heads": 5},
}
INSTALLED = "exaone4" in entry_points(group="spec_targets.architectures").names
pytestmark = pytest.mark.skipif(
    not INSTALLED, reason="the architecture is found by its entry point: install the package"
)


def random_model(**options):
    torch.manual_seed(0)
    model = Exaone4ForCausalLM(Exaone4Config(**SIZES | options)).eval().requires_grad_(False)
    for name, weight in model.named_parameters():
        if "norm" in name:  # ones would hide a norm that is missing
            weight.uniform_(0.5, 1.5)
    return model


@pytest.fixture(scope="module", params=LAYOUTS)
def model(request):
    return random_model(**LAYOUTS[request.param])


@pytest.fixture(scope="module", params=["directory", "file"])
def place(model, request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exaone4")
    if request.param == "directory":
        model.save_pretrained(folder)
        return folder
    return write_file(model, folder / "exaone4.gguf")


def write_file(model, path):
    """Names and keys of llama.cpp; its converter does not reorder q and k of EXAONE 4."""
    c, rope = model.config, model.config.rope_parameters
    head = model.model.layers[0].self_attn.head_dim
    writer = gguf.GGUFWriter(path, "exaone4")
    writer.add_block_count(c.num_hidden_layers)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    if c.sliding_window:
        writer.add_sliding_window(c.sliding_window)
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in c.layer_types])
    if rope["rope_type"] == "llama3":
        unscaled = rope["rope_theta"] ** -(torch.arange(0, head, 2) / head)
        writer.add_tensor("rope_freqs.weight", (unscaled / model.model.rotary_emb.inv_freq).numpy())
    add_words(writer, c.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.EXAONE4, c.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if name != "lm_head.weight" or not c.tie_word_embeddings:
            writer.add_tensor(names.get_name(name, (".weight",)), weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_words(writer, count):
    """A vocabulary of ASCII's characters, under the name of a pre-tokenizer that only these files have."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("exaone4")
    writer.add_token_list([chr(33 + i) for i in range(94)] + [f"<{i}>" for i in range(count - 94)])
    writer.add_token_types([1] * 94 + [3] * (count - 94))
    writer.add_token_merges([])


@pytest.fixture(scope="module", params=["reference", "native"])
def target(place, request):
    try:
        return load(place, kernels=request.param, **FLOATS)
    except UsageError as error:
        if "compiler" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.mark.repeats(8)
@pytest.mark.parametrize(("length", "chunk", "methods"), [(3, 256, []), (40, 256, ["ngram"]), (40, 7, [])])
def test_all_logits_are_those_of_transformers(model, target, length, chunk, methods):
    """In a prompt that is shorter than the window, in parts of a long one, and after rejected drafts."""
    prompt = PROMPT[:length]
    expected = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False, eos_token_id=None)
    run = Run(target, methods, prefill_chunk=chunk)
    result = run.generate(prompt, max_tokens=24, ignore_eos=True, logprobs=SIZES["vocab_size"]).result

    assert result.tokens == expected[0, length:].tolist()
    rows = torch.log_softmax(model(expected).logits[0, length - 1 : -1].double(), -1)
    for logprob, row in zip(result.logprobs, rows, strict=True):
        assert len(logprob.top) == len(row)
        assert max(abs(value - float(row[token])) for token, value in logprob.top) < 2e-5


def test_the_pretokenizer_of_a_file_is_the_package_s(tmp_path):
    """Digits and letters are pieces of their own, as in GPT-2."""
    file = write_file(random_model(sliding_window=8), tmp_path / "exaone4.gguf")

    assert load(file, weights=False).tokenizer.encode("ab12") == [64, 65, 16, 17]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sliding_window": None}, "layer_types has layers of type 'sliding_attention'"),
        ({"layer_types": None, "sliding_window_pattern": "LLLG"}, "sliding_window_pattern = 'LLLG'"),
        ({"layer_types": ["linear_attention"] * 5}, "layer_types has layers of type 'linear_attention'"),
    ],
)
def test_other_layouts_are_refused(tmp_path, change, message):
    random_model(sliding_window=8).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), "utf-8")

    with pytest.raises(UsageError, match=message):
        load(tmp_path)


def test_the_period_of_windows_is_read_where_no_layers_are_listed(tmp_path):
    """A file that lists the layers gives the logits of one with the period."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 2
    random_model(sliding_window=8, layer_types=kinds[:5]).save_pretrained(tmp_path)
    listed = load(tmp_path, **FLOATS)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text("utf-8")) | {"layer_types": None, "sliding_window_pattern": 3}
    path.write_text(json.dumps(config), "utf-8")
    texts = [
        Run(target).generate(PROMPT, max_tokens=8, logprobs=2).result for target in (listed, load(tmp_path, **FLOATS))
    ]

    assert [one.value for one in texts[0].logprobs] == [one.value for one in texts[1].logprobs]
