"""Heads as strangers publish them: what is recognised, repaired, asked for and refused by name."""

from __future__ import annotations

import json
from shutil import copytree

import attrs
import pytest
import torch
from safetensors.torch import load_file, save_file
from spec_targets.formats.damage import AGAIN, damage_error
from spec_train.heads.export.write import write_head

from spec_core import Run, UsageError, load
from spec_core.errors import Refused
from tests.support.small_heads import directory, edit_config, edit_tensors, tiny_target, train
from tests.targets.containers import open_model as gguf_parts
from tests.targets.containers import pack_typed

AUX = "eagle_aux_hidden_state_layer_ids"


def head_of(path):
    return load(path, weights=False).head


def rename_tensors(path, change):
    """A copy of the tensors with other names."""
    tensors = {change(name): tensor for name, tensor in load_file(path / "model.safetensors").items()}
    save_file(tensors, path / "model.safetensors")
    return path


def same_weights(one, other):
    a, b = (load(path, weights=False) for path in (one, other))
    return a.names == b.names and all(torch.equal(a.tensor(name), b.tensor(name)) for name in a.names)


@pytest.mark.parametrize("prefix", ["module.", "model.", "module.model.", "module.module.", "_orig_mod.module."])
@pytest.mark.parametrize(("kind", "layout"), [("eagle3", "safeailab"), ("dflash", "z-lab")])
def test_wrappers_of_a_training_are_no_part_of_a_name(kind, layout, prefix, tmp_path):
    plain = directory(tmp_path / "a", kind, layout)
    wrapped = rename_tensors(copytree(plain, tmp_path / "b"), lambda name: prefix + name)

    assert same_weights(plain, wrapped)


@pytest.mark.parametrize("stated", [40, 5, None])
def test_layers_in_the_file_count_and_not_those_that_are_stated(stated, tmp_path):
    path = directory(tmp_path, "eagle3", "safeailab")
    edit_config(path, lambda c: c.update(num_hidden_layers=stated))
    head = head_of(path)

    assert head.layers == 1
    assert (f"{stated} layers stated, 1 in the file" in head.description) == (stated is not None)
    assert load(path, weights=False).misfit(tiny_target(weights=False)) is None


def test_the_embedding_is_the_layer_before_the_first(tmp_path):
    path = directory(tmp_path, "dflash", "z-lab")
    edit_config(path, lambda c: c["dflash_config"].update(target_layer_ids=[-1, 2]))

    assert head_of(path).sources(4) == (0, 3)


@pytest.mark.parametrize("where", ["top", "rope_parameters", "rope_scaling"])
@pytest.mark.parametrize(("kind", "layout"), [("eagle3", "safeailab"), ("dflash", "z-lab"), ("dflash", "speculators")])
def test_a_share_that_rotates_was_copied_from_the_target(kind, layout, where, tmp_path):
    """Every trainer's layers rotate the whole width; the reader says so."""
    torch.manual_seed(0)
    path = directory(tmp_path, kind, layout)
    whole = head_of(path).rotation()[0]

    def change(config):
        sizes = config.get("transformer_layer_config", config)
        part = {"rope_type": "default", "rope_theta": sizes["rope_theta"], "partial_rotary_factor": 0.25}
        sizes.update({where: part} if where != "top" else {"partial_rotary_factor": 0.25})

    head = head_of(edit_config(path, change))
    assert torch.equal(head.rotation()[0], whole)
    assert "partial_rotary_factor 0.25 ignored: its training rotates the full width" in head.description


def test_the_share_of_a_gguf_file_was_copied_too(tmp_path):
    target, path = tiny_target(weights=False), tmp_path / "h.gguf"
    write_head(train("eagle3", target), target, path, "gguf", "f32")
    whole, model = head_of(path).rotation()[0], gguf_parts(path)
    model.pairs["eagle3.rope.dimension_count"] = pack_typed("u32", 16)
    path.write_bytes(model.bytes())

    assert torch.equal(head_of(path).rotation()[0], whole)
    assert "dimension_count 16 ignored" in head_of(path).description


@pytest.mark.parametrize("share", [0, -1, 2.5, "half", True])
def test_a_share_that_is_none_is_refused(share, tmp_path):
    path = edit_config(directory(tmp_path, "eagle3", "safeailab"), lambda c: c.update(partial_rotary_factor=share))

    with pytest.raises(UsageError, match="partial_rotary_factor"):
        load(path, weights=False)


def test_positions_of_pictures_are_those_of_a_text(tmp_path):
    path = directory(tmp_path, "eagle3", "safeailab")
    whole = head_of(path).rotation()[0]
    rope = {"type": "mrope", "mrope_section": [16, 24, 24]}
    edit_config(path, lambda c: c.update(rope_scaling=rope))

    assert torch.equal(head_of(path).rotation()[0], whole)
    assert "mrope sections ignored" in head_of(path).description


def test_a_gguf_head_without_a_tokenizer_has_the_vocabulary_of_its_target(tmp_path):
    target, path = load(tiny_target().info.file), tmp_path / "h.gguf"
    write_head(train("dflash", target), target, path, "gguf", "f32")
    model = gguf_parts(path)
    for key in [key for key in model.pairs if key.startswith("tokenizer.ggml.") and "mask" not in key]:
        del model.pairs[key]
    model.pairs.pop("dflash.vocab_size")
    path.write_bytes(model.bytes())
    file = load(path, weights=False)

    assert file.head.vocab == 0 and file.misfit(target) is None
    assert file.fit_to(target).head.vocab == target.info.vocab
    run, plain = Run(target, [("dflash", {"file": str(path), "p_min": 0.0})]), Run(target)
    assert run.generate([1, 2, 3], max_tokens=8).result.tokens == plain.generate([1, 2, 3], max_tokens=8).result.tokens


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(speculators_model_type="peagle", architectures=["PEagleSpeculator"]), "P-EAGLE"),
        (lambda c: c.update(parallel_drafting=True), "P-EAGLE"),
    ],
)
def test_heads_of_other_methods_are_refused_by_name(change, words, tmp_path):
    path = edit_config(directory(tmp_path, "eagle3", "safeailab"), change)

    with pytest.raises(UsageError, match=words):
        load(path, weights=False)


def test_a_vector_for_the_mask_makes_a_head_of_pairs_another_method(tmp_path):
    path = directory(tmp_path, "eagle3", "safeailab")
    edit_tensors(path, lambda named: named.update({"mask_hidden": torch.ones(1, 1, 96)}))

    with pytest.raises(UsageError, match="P-EAGLE"):
        load(path, weights=False)


def test_a_head_of_several_layers_reads_pairs_in_the_first(tmp_path):
    torch.manual_seed(0)
    path = directory(tmp_path, "eagle3", "speculators")

    def change(named):
        for name in [name for name in named if name.startswith("layers.0.") and "hidden_norm" not in name]:
            tensor = named[name].clone()
            wide = any(f"{x}_proj.weight" in name for x in "qkv")
            named[name.replace("layers.0", "layers.1")] = tensor[:, :32].clone() if wide else tensor

    edit_tensors(path, change)
    edit_config(path, lambda c: c["transformer_layer_config"].update(num_hidden_layers=2))
    target = tiny_target()
    run = Run(target, [("eagle3", {"file": str(path), "p_min": 0.0})])
    drafted = []
    run.observe(lambda step: drafted.extend(part.drafted for part in step.parts))

    assert head_of(path).layers == 2
    assert (
        run.generate([1, 2, 3], max_tokens=9).result.tokens
        == Run(target).generate([1, 2, 3], max_tokens=9).result.tokens
    )
    assert sum(drafted)


def test_a_head_without_fc_reads_the_last_state(tmp_path):
    path = directory(tmp_path, "eagle3", "safeailab")
    edit_tensors(path, lambda named: named.pop("fc.weight"))
    edit_config(path, lambda c: c.pop(AUX))
    target = tiny_target()
    head = head_of(path)

    assert not head.projected and head.inputs == 1
    assert head.sources(4) == (4,)
    run = Run(target, [("eagle3", {"file": str(path), "p_min": 0.0})])
    assert (
        run.generate([1, 2, 3], max_tokens=9).result.tokens
        == Run(target).generate([1, 2, 3], max_tokens=9).result.tokens
    )


def test_layers_that_fit_in_one_reading_only_are_read_so(tmp_path):
    """[24, 30, 36] of 36 layers, as published: boundaries, though the writer counts outputs elsewhere."""
    path = directory(tmp_path, "eagle3", "safeailab")

    def change(config):
        config.pop(AUX)
        config["eagle_config"] = {AUX: [24, 30, 36], "use_aux_hidden_state": True}

    head = head_of(edit_config(path, change))
    assert head.sources(36) == (24, 30, 36)
    assert head.sources(48) == (25, 31, 37)
    info = tiny_target(weights=False).info
    assert "layer ids read as inputs" in head.fit_to(attrs.evolve(info, layers=36)).description


def test_the_state_behind_the_last_layer_is_read_before_the_norm(tmp_path):
    """Of heads of pairs by others; those of ``spec train`` say that they read it after the norm."""
    path = directory(tmp_path, "eagle3", "safeailab")
    edit_config(path, lambda c: c.update({AUX: [0, 1, 4]}))
    ours = Run(tiny_target(), [("eagle3", {"file": str(path)})])
    edit_config(path, lambda c: c.pop("final_norm"))
    theirs = Run(tiny_target(), [("eagle3", {"file": str(path)})])
    needs = [next(c.compat.needs for c in run.plugins if c.name == "eagle3") for run in (ours, theirs)]

    assert [(need.final, 4 in need.hidden) for need in needs] == [(True, False), (False, True)]
    assert (
        theirs.generate([1, 2, 3], max_tokens=5).result.tokens
        == Run(tiny_target()).generate([1, 2, 3], max_tokens=5).result.tokens
    )


def test_tokens_in_place_of_offsets_are_read_as_tokens(tmp_path):
    torch.manual_seed(0)
    path = directory(tmp_path, "eagle3", "safeailab", rows=120)
    right = head_of(path).d2t
    edit_tensors(path, lambda named: named.update(d2t=right.clone()))

    assert torch.equal(head_of(path).d2t, right)
    assert "d2t holds tokens" in head_of(path).description


def test_marks_replace_a_missing_map(tmp_path):
    torch.manual_seed(0)
    path = directory(tmp_path, "eagle3", "safeailab", rows=120)
    right = head_of(path).d2t
    edit_tensors(path, lambda named: named.pop("d2t"))

    assert torch.equal(head_of(path).d2t, right)
    assert "t2d marks" in head_of(path).description


def test_no_hint_says_to_get_a_file_again(tmp_path):
    """Bytes are missing only where a file is cut off; a container that cannot be read may be."""
    from tests.targets.test_heads import BAD

    cut_off = {"the file is cut off", "no weights"}
    for number, (name, (layout, spoil, _)) in enumerate(BAD.items()):
        if name in cut_off or "pickle" in name:
            continue
        torch.manual_seed(0)
        kind = "dflash" if layout == "z-lab" else "eagle3"
        path = directory(tmp_path / str(number), kind, "speculators" if layout == "eagle3-spec" else layout, rows=120)
        spoil(path)
        with pytest.raises(UsageError) as refused:
            load(path, weights=False)
        containers = (AGAIN, damage_error(path, "").hint)
        assert refused.value.hint in containers or "again" not in refused.value.hint, (name, refused.value.hint)


@pytest.mark.parametrize("ids", ["1,x", "1;3", "", "-1,2", "1,999999"])
def test_layers_that_are_no_numbers_are_refused(ids, tmp_path):
    path = directory(tmp_path, "dflash", "z-lab")

    with pytest.raises((UsageError, Refused), match=r"layer_ids|0 to 4"):
        Run(tiny_target(), [("dflash", {"file": str(path), "layer_ids": ids})])


@pytest.mark.parametrize("flag", [True, False, None])
@pytest.mark.parametrize(("layout", "kind"), [("safeailab", "eagle3"), ("speculators", "eagle3"), ("z-lab", "dflash")])
def test_an_own_embedding_without_an_output_matrix(layout, kind, flag, tmp_path):
    """A flag decides where no dialect does."""
    path = directory(tmp_path, kind, layout)

    def change(named):
        named.pop("lm_head.weight", None)
        named["embed_tokens.weight"] = torch.randn(300, 32)

    edit_tensors(path, change)
    edit_config(path, lambda c: c.update(tie_word_embeddings=flag))

    assert head_of(path).tied == (flag is True and layout != "speculators")
    assert "no output matrix" in head_of(path).description
    assert json.loads((path / "config.json").read_text())["tie_word_embeddings"] is flag
