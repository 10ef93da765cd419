"""Block drafters against independent implementations, their trees, and what they refuse."""

from __future__ import annotations

import math
from shutil import copytree

import attrs
import pytest
import torch
from safetensors.torch import load_file, save_file
from spec_methods.block_drafters.dflash2 import DFlash2
from spec_methods.block_drafters.dspark import DSpark

from spec_core import Compat, DraftPlan, Limit, Request, Run, hookimpl, load
from spec_core.errors import Refused, UsageError
from spec_core.testing import DrafterConformance
from tests.methods.drafted import TOLERANCE, check_block
from tests.methods.heads import TARGETS, check_lossless, method, selector_file, spark_file, tiny
from tests.support.golden import golden
from tests.support.small_heads import edit_config, edit_tensors
from tests.support.small_models import tiny_gguf, tiny_hybrid
from tests.targets.containers import open_model as gguf_parts
from tests.targets.containers import pack_typed

GOLDEN = {
    "dspark/gemma4-k": "gemma4-k",
    "dspark/qwen3": "qwen3",
    "dspark/qwen3-bonus": "qwen3",
    "dspark/lfm2": "lfm2",
    "dflash2/qwen3": "qwen3",
}
FLOATS = {"dtype": "float32", "cache_dtype": "float32"}


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("form", ["hf", "model-f32.gguf"])
@pytest.mark.parametrize("name", GOLDEN)
def test_a_block_is_that_of_the_original_implementation(name, form, kernels):
    target = load(golden(GOLDEN[name]) / "model-f32.gguf", **FLOATS, device="cpu", kernels=kernels)
    check_block(name, form, target, TOLERANCE)


def test_rows_of_neighbouring_pairs_become_halves(tmp_path):
    """Dimensions 2i and 2i + 1 of q, k and their norms turn together in the file, i and i + d/2 here."""
    names = [f"layers.{i}.self_attn.{x}_{part}.weight" for i in (0, 1) for x in "qk" for part in ("proj", "norm")]
    plain, paired = (copytree(spark_file("dense"), tmp_path / name) for name in ("plain", "paired"))
    norms = {name: torch.rand(load(plain, weights=False).head.head) for name in names if "norm" in name}
    edit_tensors(plain, lambda tensors: tensors.update(norms))
    halves = load(plain, weights=False)
    edit_tensors(paired, lambda tensors: tensors.update({n: neighbours((tensors | norms)[n], halves) for n in names}))

    edit_config(paired, lambda config: config.update(rope_is_neox_style=False))
    assert all(torch.equal(load(paired, weights=False).tensor(name), halves.tensor(name)) for name in halves.names)
    as_stored = load(edit_config(paired, lambda config: config.pop("rope_is_neox_style")), weights=False)
    differing = {name for name in halves.names if not torch.equal(as_stored.tensor(name), halves.tensor(name))}
    assert differing == {f"blk.{i}.attn_{x}{norm}.weight" for i in (0, 1) for x in "qk" for norm in ("", "_norm")}


def neighbours(rows, file):
    """Rows i and i + d/2 of every attention head as rows 2i and 2i + 1."""
    heads = rows.view(-1, 2, file.head.head // 2, *rows.shape[1:])
    return heads.transpose(1, 2).reshape(rows.shape).contiguous()


@pytest.mark.repeats(24)
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("of", TARGETS)
@pytest.mark.parametrize("name", ["dflash-tree", "dspark", "dspark-bonus", "dspark-tree", "dflash2", "dflash2-tree"])
def test_texts_equal_plain_decoding(name, of, temperature, slots):
    steps = check_lossless(name, of, 120 if name == "dspark-tree" else None, temperature, slots)

    branches = [p.draft.parents for s in steps for p in s.parts if p.draft is not None and p.draft.parents is not None]
    assert bool(branches) == name.endswith("tree")
    assert name.endswith("tree") <= any(len({*parents}) < len(parents) for parents in branches)


def test_a_tree_has_the_likeliest_paths_of_its_rows():
    """Of a greedy request: no path that was left out is likelier than a leaf."""
    drafts = []
    run = Run(tiny("dense"), [method("dflash-tree", "dense", None)])
    run.observe(lambda step: drafts.extend(part.draft for part in step.parts if part.draft is not None))
    run.generate(Request([3, 1, 4], max_tokens=6)).result

    for draft in drafts:
        chances = [math.prod(draft.confidence[i] for i in draft.ancestry(node)) for node in range(len(draft.ids))]
        assert chances == sorted(chances, reverse=True)
        assert len(draft.ids) <= 9 and draft.depth <= 3


def test_the_confidence_of_the_head_is_that_of_its_draft_and_ends_it():
    drafts = {}
    for p_min in (0.0, 0.5):
        kind, settings = method("dspark", "dense", None)
        run, drafts[p_min] = Run(tiny("dense"), [(kind, {**settings, "p_min": p_min})]), []
        run.observe(lambda step, p_min=p_min: drafts[p_min].extend(p.draft for p in step.parts if p.draft is not None))
        run.generate(Request([3, 1, 4], max_tokens=20)).result

    assert max(len(draft.ids) for draft in drafts[0.0]) == 4
    assert min(len(draft.ids) for draft in drafts[0.5]) < 4
    assert len({chance for draft in drafts[0.0] for chance in draft.confidence}) > 4
    for draft in drafts[0.5]:
        assert math.prod(draft.confidence[:-1]) >= 0.5


@attrs.define(eq=False)
class Watcher:
    """A controller that lets a method draft and keeps what it reads of its drafts."""

    method: str
    attempts: list = attrs.field(factory=list)

    @hookimpl
    def compat(self):
        return Compat(drafts=())

    @hookimpl
    def draft(self, step):
        self.attempts += [attempt for record in step.records for attempt in record.attempts]
        step.plan(DraftPlan({self.method: Limit(3, 0.0, 9)}))


@pytest.mark.parametrize("name", ["dspark", "dspark-tree"])
def test_a_controller_reads_what_became_of_the_chances_of_a_head(name):
    """Those of the tokens whose place in the text was reached, in chains and in trees."""
    kind, settings = method(name, "dense", 120)
    watcher, drafts = Watcher(kind), []
    run = Run(tiny("dense"), [(kind, settings), ("watcher", watcher)])
    run.observe(lambda step: drafts.extend((p.draft, p.full_verdict.path) for p in step.parts if p.draft is not None))
    run.generate(Request([3, 1, 4], max_tokens=40)).result

    assert len({chance for attempt in watcher.attempts for chance, _ in attempt.judged}) > 4
    for attempt, (draft, path) in zip(watcher.attempts, drafts, strict=False):
        before = [-1, *path]
        parents = range(-1, len(draft) - 1) if draft.parents is None else draft.parents
        tested = [i for i, parent in enumerate(parents) if parent in before]
        assert attempt.judged == tuple((draft.confidence[i], i in path) for i in tested)


class TestDSpark(DrafterConformance):
    def make(self):
        return DSpark(file=str(spark_file("hybrid", 120)), p_min=0.0, draft_max=2)

    def target(self):
        return load(tiny_hybrid(context=2048), dtype="float32", device="cpu")

    def prompts(self):
        return [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2], [7]]


class TestDFlash2(TestDSpark):
    def make(self):
        return DFlash2(file=str(selector_file("hybrid", 120)), p_min=0.0, draft_max=2)


def damage_head(tmp_path, config=(), tensors=(), name="dspark/qwen3"):
    """A copy of a golden head with other values in its config and other tensors."""
    path, source = tmp_path / "head", golden(name) / "hf"
    path.mkdir()
    (path / "config.json").write_text((source / "config.json").read_text("utf-8"), "utf-8")
    save_file(load_file(source / "model.safetensors") | dict(tensors), path / "model.safetensors")
    return edit_config(path, lambda raw: raw.update(config))


@pytest.mark.parametrize(
    ("config", "tensors", "message"),
    [
        ({"markov_rank": 2**31}, {}, "markov_rank is 2147483648, its Markov matrices have rank 20"),
        ({"markov_head_type": "gated"}, {}, "markov_head_type = 'gated' is not supported"),
        ({"block_size": 4096}, {}, "its block size is 4096"),
        ({"sample_from_anchor": "yes"}, {}, "sample_from_anchor = 'yes'"),
        ({"rope_is_neox_style": "no"}, {}, "rope_is_neox_style = 'no'"),
        ({"architectures": ["Gemma4DSparkModel"]}, {}, "'blk.0.post_attention_norm.weight' is missing"),
        ({}, {"markov_head.markov_w2.weight": torch.ones(7, 20)}, "has shape [7, 20], [512, 20] was needed"),
        ({}, {"confidence_head.proj.weight": torch.full((1, 84), math.nan)}, "has NaN or infinite numbers"),
        ({}, {"confidence_head.proj.weight": torch.ones(1, 5)}, "its confidence head reads 5 numbers, 64 or 84"),
        ({}, {"confidence_head.proj.bias": torch.tensor([math.inf])}, "has NaN or infinite numbers"),
        ({}, {"confidence_head.proj.bias": torch.ones(2)}, "'conf_proj.bias' has shape [2], [1] was needed"),
        ({}, {"markov_head.markov_w1.weight": torch.ones(511, 20)}, "has shape [511, 20], [512, 20] was needed"),
        ({}, {"markov_head.markov_w1.weight": torch.ones(20)}, "has shape [20], [512, 20] was needed"),
        ({"hidden_size": 48}, {}, "'fc.weight' has shape [64, 192], [48, 192] was needed"),
        ({"target_hidden_size": 63}, {}, "'fc.weight' reads 192 numbers, a multiple of the target's width 63"),
        ({"block_size": 2**31}, {}, "its block size is 2147483648"),
        ({"mask_token_id": 512}, {}, "its mask token is 512"),
    ],
)  # fmt: skip
def test_hostile_heads_are_refused_by_name(config, tensors, message, tmp_path):
    with pytest.raises(UsageError) as refused:
        load(damage_head(tmp_path, config, tensors), weights=False)

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("d2t", "message"),
    [
        (torch.full((300,), 10**6), "maps to token 1000299, the vocabulary is 0 to 511"),
        (torch.full((300,), -1), "maps to token -1, the vocabulary is 0 to 511"),
        (-torch.arange(300), "maps two rows to one token"),
        (torch.zeros(299, dtype=torch.int64), "a whole number for each of 300 rows"),
    ],
)
def test_a_block_head_with_tokens_of_another_vocabulary_is_refused(d2t, message, tmp_path):
    with pytest.raises(UsageError) as refused:
        load(damage_head(tmp_path, {}, {"d2t": d2t}, "dspark/qwen3-bonus"), weights=False)

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("successor_codebook", torch.ones(512, 23), "has shape [512, 23], [512, 24] was needed"),
        ("predecessor_codebook", torch.ones(511, 24), "has shape [511, 24], [512, 24] was needed"),
        ("hidden_projection.weight", torch.ones(24, 48), "has shape [24, 48], [24, 64] was needed"),
        ("hidden_projection.weight", torch.full((24, 64), math.nan), "has NaN or infinite numbers"),
    ],
)
def test_hostile_matrices_of_a_selector_are_refused_by_name(name, tensor, message, tmp_path):
    with pytest.raises(UsageError) as refused:
        load(damage_head(tmp_path, {}, {f"candidate_selector.{name}": tensor}, "dflash2/qwen3"), weights=False)

    assert message in str(refused.value)


@pytest.mark.parametrize("of", [0, 1])
def test_a_block_head_of_another_width_is_refused_before_a_run(of):
    """That of a target of width 32, for one of 48; and one of another vocabulary."""
    other = tiny_gguf(1, layers=4, **({"width": 48}, {"vocab": 301})[of])
    with pytest.raises(Refused, match=("of width 32", "made for 300 tokens")[of]):
        Run(load(other, dtype="float32", device="cpu"), [method("dspark", "dense", None)])


SELECTOR = {"mask_token_id": 511, "target_layer_ids": [0, 1, 3], "conv_kernel_size": 2, "conv_group_size": 16}
SELECTOR |= {"selector_rank": 24, "selector_top_k": 7}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"selector_rank": 2**31}, "selector_rank is 2147483648, 24 was needed"),
        ({"selector_top_k": 10**6}, "selector_top_k is 1000000, 1 to 256 was needed"),
        ({"conv_group_size": 24}, "conv_group_size is 24, its width is 64"),
        ({"conv_group_size": 32}, "has shape [16, 64], [8, 64] was needed"),
        ({"conv_kernel_size": 3}, "conv_kernel_size is 3, 2 was needed"),
        ({"conv_group_size": -1}, "conv_group_size is -1"),
    ],
)
def test_hostile_selectors_are_refused_by_name(change, message, tmp_path):
    path = damage_head(tmp_path, {"dflash_config": SELECTOR | change}, name="dflash2/qwen3")
    with pytest.raises(UsageError) as refused:
        load(path, weights=False)

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("dflash2/qwen3", "selector_rank", ("u32", 2**31), "selector_rank is 2147483648, 24 was needed"),
        ("dflash2/qwen3", "conv_group_size", ("u32", 0), "conv_group_size is 0"),
        ("dflash2/qwen3", "selector_top_k", ("i32", -1), "selector_top_k is -1, 1 to 256 was needed"),
        ("dspark/qwen3", "block_size", ("u32", 4096), "its block size is 4096"),
        ("dspark/qwen3", "embedding_length", ("u32", 48), "'fc.weight' has shape [64, 192], [48, 192] was needed"),
    ],
)
def test_hostile_gguf_heads_are_refused_by_name(name, key, value, message, tmp_path):
    path, model = tmp_path / "head.gguf", gguf_parts(golden(name) / "model-f32.gguf")
    model.pairs[f"dflash.{key}"] = pack_typed(*value)
    path.write_bytes(model.bytes())
    with pytest.raises(UsageError) as refused:
        load(path, weights=False)

    assert message in str(refused.value)
