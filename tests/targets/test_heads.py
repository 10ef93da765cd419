"""Files of draft heads: every layout gives the same description, and invalid heads are refused before use.

Longer than our files are: one list of damaged heads, which two tests read.
"""

from __future__ import annotations

import warnings

import attrs
import pytest
import torch
from safetensors.torch import load_file
from spec_cli.main import run_command
from spec_train.heads.export.write import write_head

from spec_core import UsageError, load
from tests.support.golden import golden
from tests.support.small_heads import directory, edit_config, edit_tensors, target_with, tiny_target, train
from tests.support.small_models import tiny_gguf
from tests.targets.containers import open_model as gguf_parts
from tests.targets.containers import pack_typed

GOLDEN = ("eagle3/llama-d2t", "eagle3/llama-full", "eagle3/qwen3-speculators", "dflash/qwen3", "dflash/qwen35")
LAYOUTS = [("eagle3", "safeailab"), ("eagle3", "speculators"), ("dflash", "z-lab"), ("dflash", "speculators")]
APART = {"name", "producer", "ids", "reading", "certain", "eps", "d2t"}
"""Fields that may differ between two files of one head."""


def open_head(path):
    return load(path, weights=False)


def head_of(path):
    return open_head(path).head


def facts(head):
    return {f.name: getattr(head, f.name) for f in attrs.fields(type(head)) if f.name not in APART}


def same_mapping(a, b):
    return (a is None and b is None) or torch.equal(a, b)


@pytest.mark.parametrize("name", GOLDEN)
def test_gguf_and_directory_of_a_published_head_say_the_same(name):
    """Sizes, flags, source layers, vocabulary, and every tensor after llama.cpp's order of q and k is undone."""
    folder = golden(name)
    gguf, hf = open_head(folder / "model-f32.gguf"), open_head(folder / "hf")
    one, other = (file.head for file in (gguf, hf))

    assert facts(one) == facts(other)
    assert one.sources(5) == other.sources(5)
    assert same_mapping(one.d2t, other.d2t)
    assert gguf.names == hf.names
    for tensor in gguf.names:
        assert torch.equal(gguf.tensor(tensor), hf.tensor(tensor))


@pytest.mark.parametrize("name", GOLDEN)
def test_a_published_head_fits_its_target_and_no_other(name):
    target = {"llama": "llama", "qwen3": "qwen3", "qwen35": "qwen35"}[name.split("/")[1].split("-")[0]]
    file = open_head(golden(name) / "model-f32.gguf")

    assert file.misfit(load(golden(target) / "model-f32.gguf", weights=False)) is None
    assert "hidden states of width 64" in file.misfit(tiny_target(weights=False))[0]


@pytest.mark.parametrize(("kind", "layout"), LAYOUTS)
@pytest.mark.parametrize("rows", [None, 120])
def test_a_head_written_in_a_layout_is_read_as_it_was(kind, layout, rows, tmp_path):
    torch.manual_seed(0)
    target = tiny_target(weights=False)
    trained_head = train(kind, target, rows)
    for form in ("gguf", layout):
        write_head(trained_head, target, tmp_path / form, form, "f32")
        file = open_head(tmp_path / form)
        head = file.head

        assert same_mapping(head.d2t, trained_head.d2t)
        assert head.sources(4) == trained_head.shape.sources
        assert (head.draft_vocab, head.block) == (trained_head.shape.draft_vocab, trained_head.shape.block)
        assert {n: torch.equal(file.tensor(n), t) for n, t in trained_head.weights.items()} == dict.fromkeys(
            trained_head.weights, True
        )
        assert file.misfit(target) is None


# source layers


def reading(tmp_path, ids, where="top", **more):
    """The description of a SafeAILab directory with these ids, at the top or in ``eagle_config``."""
    key = "eagle_aux_hidden_state_layer_ids"

    def change(config):
        del config[key]
        if ids is not None:
            config.update({key: ids} if where == "top" else {"eagle_config": {key: ids}})

    return head_of(edit_config(directory(tmp_path, "eagle3", "safeailab"), change))


def test_layers_that_a_file_does_not_name_are_low_middle_and_high(tmp_path):
    assert reading(tmp_path, None).sources(32) == (2, 16, 29)


def test_ids_that_are_the_default_of_one_reading_are_read_that_way(tmp_path):
    assert reading(tmp_path / "a", [2, 16, 29], "nested").sources(32) == (2, 16, 29)
    assert reading(tmp_path / "b", [1, 15, 28], "top").sources(32) == (2, 16, 29)


def test_other_ids_are_read_as_the_producer_means_them_unless_told_otherwise(tmp_path):
    """SpecForge, which writes ``eagle_config``, counts layers that are left; others count layers that are entered."""
    left, entered = reading(tmp_path / "a", [3, 9, 20], "nested"), reading(tmp_path / "b", [3, 9, 20], "top")

    assert left.sources(32) == (4, 10, 21)
    assert entered.sources(32) == (3, 9, 20)
    assert left.sources(32, "inputs") == (3, 9, 20)
    assert entered.sources(32, "outputs") == (4, 10, 21)


def test_ids_of_a_gguf_file_are_never_in_doubt(tmp_path):
    """[1, n/2 - 1, n - 4] would be the other reading's default."""
    target = tiny_target(weights=False)
    trained_head = train("eagle3", target)
    shape = attrs.evolve(trained_head.shape, sources=(1, 3, 4))
    write_head(attrs.evolve(trained_head, shape=shape), target, tmp_path / "h.gguf", "gguf", "f32")

    assert head_of(tmp_path / "h.gguf").sources(8) == (1, 3, 4)


def test_a_block_drafter_without_ids_is_asked_for_them(tmp_path):
    """No formula is right for all: the file is named, with the key that is missing and two ways to give it."""
    path = edit_config(directory(tmp_path, "dflash", "z-lab"), lambda c: c["dflash_config"].pop("target_layer_ids"))
    file, target = open_head(path), tiny_target(weights=False)
    reason, hint = file.misfit(target)

    assert "target_layer_ids is missing" in reason and "reads 2 hidden states" in reason
    assert "-o dflash.layer_ids=" in hint
    assert file.misfit(target, "1,3") is None
    assert file.head.sources(36, "1,3") == (1, 3)


# variants


def test_norms_biases_and_scaling_are_found(tmp_path):
    """A norm for each hidden state, q and k norms, attention biases, llama3 scaling: as speculators files have them."""
    torch.manual_seed(0)

    def change(tensors):
        tensors.update({f"fc_norm.{i}.weight": torch.rand(32) for i in range(3)})
        q, k = (tensors[f"layers.0.self_attn.{x}_proj.weight"].shape[0] for x in "qk")
        tensors.update({f"layers.0.self_attn.{x}_proj.bias": torch.rand(q if x == "q" else k) for x in "qkv"})
        tensors.update({f"layers.0.self_attn.{x}_norm.weight": torch.rand(32) for x in "qk"})

    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    path = edit_tensors(directory(tmp_path, "eagle3", "speculators"), change)
    edit_config(path, lambda c: c["transformer_layer_config"].update(rope_scaling=scaling))
    edit_config(path, lambda c: c.update(norm_output=True, norm_before_residual=True))
    file = open_head(path)
    head = file.head

    assert (head.fc_norm, head.qk_norm, head.biases, head.norm_output, head.norm_before_residual) == (True,) * 5
    assert file.tensor("input_norm.2.weight").shape == (32,)
    assert head.divisors.max() > 1


def test_one_norm_over_all_hidden_states_is_found_under_both_names(tmp_path):
    path = directory(tmp_path, "eagle3", "speculators")
    edit_tensors(path, lambda t: t.update({"input_norm.weight": torch.ones(96)}))

    assert head_of(path).norm_before_fc


def test_sliding_layers_are_causal_unless_the_file_says_otherwise(tmp_path):
    path = directory(tmp_path, "dflash", "speculators")
    sliding = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16}
    edit_config(path, lambda c: c["transformer_layer_config"].update(sliding))
    first = head_of(path)
    edit_config(path, lambda c: c.update(sliding_window_non_causal=True))

    assert (first.windows, first.causal) == ((16, 0), (True, False))
    assert head_of(path).causal == (False, False)


def test_a_pickled_head_is_read_by_a_loader_that_runs_nothing(tmp_path):
    path = directory(tmp_path, "eagle3", "safeailab")
    tensors = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    torch.save(tensors, path / "pytorch_model.bin")

    assert torch.equal(open_head(path).tensor("fc.weight"), tensors["fc.weight"])


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("code of a pickle was run",))


# what is refused


def pickle_with_code(path):
    (path / "model.safetensors").unlink()
    torch.save({"fc.weight": Evil()}, path / "pytorch_model.bin")


def pickle_weights(make, name="fc.weight"):
    """Pickles the weights, with what ``make`` returns in the place of a tensor."""

    def spoil(path):
        named = load_file(path / "model.safetensors")
        (path / "model.safetensors").unlink()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls some kinds of tensors prototypes
            value = make()
        torch.save({**named, name: value}, path / "pytorch_model.bin")

    return spoil


def cut(path):
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def tensors(change):
    return lambda path: edit_tensors(path, change)


def config(change):
    return lambda path: edit_config(path, change)


def nan(named):
    named["norm.weight"][3] = float("nan")


BAD = {
    "d2t is missing": ("safeailab", tensors(lambda t: (t.pop("d2t"), t.pop("t2d"))), "'d2t' is missing"),
    "d2t leads outside": ("safeailab", tensors(lambda t: t["d2t"].fill_(250)), "maps to token 369"),
    "d2t leads below": ("safeailab", tensors(lambda t: t["d2t"].fill_(-1)), "maps to token -1"),
    "d2t maps two rows to one": (
        "safeailab",
        tensors(lambda t: t.update(d2t=-torch.arange(120))),
        "two rows to one token",
    ),
    "d2t is too short": ("safeailab", tensors(lambda t: t.update(d2t=t["d2t"][:7])), "for each of 120 rows"),
    "d2t is not a number": ("safeailab", tensors(lambda t: t.update(d2t=t["d2t"].float())), "a whole number"),
    "NaN": ("safeailab", tensors(nan), "NaN or infinite"),
    "a tensor is missing": ("safeailab", tensors(lambda t: t.pop("norm.weight")), "'output_norm.weight' is missing"),
    "a tensor is too small": ("safeailab", tensors(lambda t: t.update({"norm.weight": torch.ones(3)})), "[32] was"),
    "a tensor is unknown": ("safeailab", tensors(lambda t: t.update(extra=torch.ones(3))), "'extra' is not part"),
    "fc reads another width": ("safeailab", config(lambda c: c.update(target_hidden_size=33)), "a multiple of"),
    "ids are no numbers": (
        "safeailab",
        config(lambda c: c.update(eagle_aux_hidden_state_layer_ids=["a"])),
        "a list of layer numbers",
    ),
    "vocabularies disagree": ("safeailab", config(lambda c: c.update(draft_vocab_size=7)), "have 120 rows"),
    "the file is cut off": ("safeailab", cut, "needs"),
    "no weights": ("safeailab", lambda path: (path / "model.safetensors").unlink(), "neither model.safetensors"),
    "a pickle holds code": ("safeailab", pickle_with_code, "cannot be read as tensors alone"),
    "a pickled tensor has no numbers": (
        "safeailab",
        pickle_weights(lambda: torch.empty(2, 2, device="meta")),
        "the meta device",
    ),
    "a pickled tensor is sparse": ("safeailab", pickle_weights(lambda: torch.eye(3).to_sparse()), "layout sparse_coo"),
    "a pickled tensor is sparse by rows": (
        "safeailab",
        pickle_weights(lambda: torch.eye(3).to_sparse_csr()),
        "layout sparse_csr",
    ),
    "a pickled tensor is nested": (
        "safeailab",
        pickle_weights(lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
        "a nested tensor",
    ),
    "a pickled tensor is larger than the file": (
        "safeailab",
        pickle_weights(lambda: torch.ones(1).expand(1 << 40)),
        "in 4 bytes",
    ),
    "a pickled tensor is complex": (
        "safeailab",
        pickle_weights(lambda: torch.ones(32, 96, dtype=torch.complex64)),
        "is complex64",
    ),
    "a pickled value is no tensor": ("safeailab", pickle_weights(lambda: 7), "holds a int under 'fc.weight'"),
    "d2t is complex": ("safeailab", pickle_weights(lambda: torch.arange(120) + 0j, "d2t"), "a whole number"),
    "a layer of five thousand digits": (
        "safeailab",
        tensors(lambda t: t.update({f"layers.{'9' * 5000}.mlp.up_proj.weight": torch.ones(3)})),
        "has 5026 characters",
    ),
    "a layer of a hundred digits": (
        "safeailab",
        tensors(lambda t: t.update({f"layers.{'9' * 100}.mlp.up_proj.weight": torch.ones(3)})),
        "is not part",
    ),
    "a name of five thousand characters is pickled": (
        "safeailab",
        pickle_weights(lambda: torch.ones(3), f"layers.{'9' * 5000}.mlp.up_proj.weight"),
        "has 5026 characters",
    ),
    "two names of one tensor": (
        "safeailab",
        tensors(lambda t: t.update({"model.fc.weight": t["fc.weight"].clone()})),
        "two of its tensors are 'fc.weight'",
    ),
    "a number is a text for a terminal": (
        "safeailab",
        config(lambda c: c.update(draft_vocab_size="\n\x1b[2J")),
        r"draft_vocab_size = '\n\x1b[2J'",
    ),
    "rotary parameters are no object": ("safeailab", config(lambda c: c.update(rope_scaling="yarn")), "'yarn'"),
    "rotary parameters differ between layers": (
        "z-lab",
        config(lambda c: c.update(rope_parameters={"full_attention": {"rope_theta": 5}})),
        "rope_parameters = ",
    ),
    "an eagle3 head has a sliding window": (
        "safeailab",
        config(lambda c: c.update(use_sliding_window=True)),
        "use_sliding_window = True",
    ),
    "a layer of an eagle3 head has a sliding window": (
        "safeailab",
        config(lambda c: c.update(layer_types=["sliding_attention"], sliding_window=4)),
        "layer_types = ",
    ),
    "an eagle3 head caps its logits": (
        "safeailab",
        config(lambda c: c.update(final_logit_softcapping=30.0)),
        "final_logit_softcapping = 30.0",
    ),
    "logits have no rows": (
        "safeailab",
        tensors(lambda t: t.update({"lm_head.weight": torch.ones(0, 32), "d2t": torch.arange(0)})),
        "no rows",
    ),
    "a flag is missing": ("eagle3-spec", config(lambda c: c.pop("norm_before_residual")), "norm_before_residual"),
    "the block is over the context": ("z-lab", config(lambda c: c.update(block_size=999)), "block size is 999"),
    "the mask is no token": ("z-lab", config(lambda c: c["dflash_config"].update(mask_token_id=300)), "mask token"),
    "another option": (
        "z-lab",
        config(lambda c: c["dflash_config"].update(attention_value_scale=2.0)),
        "not supported",
    ),
    "DFlash2": (
        "z-lab",
        tensors(lambda t: t.update({"candidate_selector.hidden": torch.ones(2)})),
        "candidate_selector.hidden",
    ),
    "DSpark": ("z-lab", tensors(lambda t: t.update({"markov_head.w1.weight": torch.ones(2)})), "markov_head.w1"),
}


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("eagle3", "attention.sliding_window", ("u32", 4)),
        ("eagle3", "final_logit_softcapping", ("f32", 30.0)),
        ("dflash", "logit_scale", ("f32", 0.5)),
    ],
)
def test_a_factor_or_window_of_a_gguf_head_that_is_not_run_is_refused(kind, key, value, tmp_path):
    target, path = tiny_target(weights=False), tmp_path / "h.gguf"
    write_head(train(kind, target), target, path, "gguf", "f32")
    model = gguf_parts(path)
    model.pairs[f"{kind}.{key}"] = pack_typed(*value)
    path.write_bytes(model.bytes())

    with pytest.raises(UsageError, match=f"{kind}.{key} = .* is not supported"):
        open_head(path)


def test_a_gguf_head_with_two_names_of_one_tensor_is_refused(tmp_path):
    target, path = tiny_target(weights=False), tmp_path / "h.gguf"
    write_head(train("dflash", target), target, path, "gguf", "f32")
    model = gguf_parts(path)
    model.tensors["hidden_norm.weight"] = list(model.tensors["enc.output_norm.weight"])
    path.write_bytes(model.bytes())

    with pytest.raises(UsageError, match="are one tensor, both are there"):
        open_head(path)


@pytest.mark.parametrize("name", BAD)
def test_a_head_that_is_damaged_or_unknown_is_refused_with_a_mend(name, tmp_path):
    layout, spoil, message = BAD[name]
    torch.manual_seed(0)
    kind = "dflash" if layout == "z-lab" else "eagle3"
    path = directory(tmp_path, kind, "speculators" if layout == "eagle3-spec" else layout, rows=120)
    spoil(path)

    with pytest.raises(UsageError) as refused:
        open_head(path)
    assert message in refused.value.reason
    assert refused.value.hint
    assert "\n" not in refused.value.reason


def test_a_directory_without_config_is_refused(tmp_path):
    path = directory(tmp_path, "eagle3", "safeailab")
    (path / "config.json").unlink()

    with pytest.raises(UsageError, match="not a model that an installed target recognises"):
        open_head(path)


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_gguf_head_that_is_cut_off_is_refused(kind, tmp_path):
    target = tiny_target(weights=False)
    path = tmp_path / "h.gguf"
    write_head(train(kind, target), target, path, "gguf", "f32")
    whole = path.read_bytes()
    for share in (0.1, 0.5, 0.9, 0.999):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(UsageError):
            open_head(path)


def test_layers_that_the_target_lacks_are_a_misfit(tmp_path):
    file = open_head(directory(tmp_path, "eagle3", "safeailab"))
    edit_config(tmp_path / "safeailab", lambda c: c.update(eagle_aux_hidden_state_layer_ids=[1, 2, 9]))

    assert file.misfit(tiny_target(weights=False)) is None
    assert "0 to 4" in open_head(tmp_path / "safeailab").misfit(tiny_target(weights=False))[0]
    assert "names 2 layers" in attrs.evolve(file.head, ids=(1, 2)).misfit(tiny_target(weights=False))[0]


def test_another_vocabulary_is_a_misfit(tmp_path):
    """By its size; and where the file carries its tokenizer, token by token."""
    file = open_head(directory(tmp_path, "eagle3", "safeailab"))
    target = tiny_target(weights=False)
    write_head(train("eagle3", target), target, tmp_path / "h.gguf", "gguf", "f32")
    other = load(tiny_gguf(0, layers=4, salt="zzyzx "), weights=False)

    assert "made for 300 tokens" in file.misfit(load(tiny_gguf(0, layers=4, vocab=310), weights=False))[0]
    assert "for this head" in open_head(tmp_path / "h.gguf").misfit(other)[0]
    assert open_head(tmp_path / "h.gguf").misfit(target) is None


def test_a_block_over_the_targets_context_is_a_misfit(tmp_path):
    file = open_head(directory(tmp_path, "dflash", "z-lab"))
    short = target_with(context=4)

    assert "blocks have 4 tokens" in file.head.misfit(short)[0]


def test_a_head_with_larger_heads_than_native_kernels_run_is_a_misfit(tmp_path):
    head = attrs.evolve(open_head(directory(tmp_path, "eagle3", "safeailab")).head, head=512)
    native, reference = (target_with(layer_max=n) for n in ({"head": 256}, {}))

    assert "heads of 512, native kernels run at most 256" in head.misfit(native)[0]
    assert head.misfit(reference) is None


def test_a_head_is_no_model(tmp_path):
    path = directory(tmp_path, "dflash", "z-lab")

    with pytest.raises(UsageError, match="draft head, not a model") as refused:
        load(path)
    assert "--method dflash=FILE" in refused.value.hint


MISFITS = {
    "another width": ("eagle3", {"width": 64}, "has 64"),
    "another vocabulary": ("eagle3", {"vocab": 310}, "has 310"),
    "layers that are not there": ("eagle3", {"layers": 1}, "has 0 to 1"),
    "a block over the context": ("dflash", {"context": 4}, "is 4"),
}


def refused_by_the_command(model, kind, path, monkeypatch, capsys):
    """Message of ``spec generate`` on standard error; no weight of the target may be read."""

    def read(*arguments):
        raise AssertionError("weights of the target are read")

    monkeypatch.setattr("spec_targets.runtime.plan.load_executor", read)
    assert run_command(["generate", "-m", str(model), "--method", f"{kind}={path}", "-p", "x", "-n", "2"]) == 2
    output = capsys.readouterr().err
    assert "Traceback" not in output
    assert len(output.splitlines()) == 2 and output.splitlines()[1].startswith("  "), "a reason and a hint"
    return output


@pytest.mark.parametrize("name", [*BAD, "no config"])
def test_the_command_refuses_a_bad_head_before_it_reads_the_target(name, tmp_path, monkeypatch, capsys):
    layout, spoil, message = BAD.get(name, ("safeailab", lambda p: (p / "config.json").unlink(), "not a model"))
    torch.manual_seed(0)
    kind = "dflash" if layout == "z-lab" else "eagle3"
    path = directory(tmp_path, kind, "speculators" if layout == "eagle3-spec" else layout, rows=120)
    spoil(path)

    assert message in refused_by_the_command(tiny_gguf(0, layers=4), kind, path, monkeypatch, capsys)


@pytest.mark.parametrize("name", MISFITS)
def test_the_command_refuses_a_head_of_another_model_before_it_reads_the_target(name, tmp_path, monkeypatch, capsys):
    kind, other, message = MISFITS[name]
    path = directory(tmp_path, kind, "speculators")

    output = refused_by_the_command(tiny_gguf(0, **{"layers": 4, **other}), kind, path, monkeypatch, capsys)
    assert message in output
