"""Hostile hybrids: a changed file runs or is refused in one line, in bounded time and memory.

A file is taken apart into metadata and tensors, changed so that the container stays sound, and written again: what is
tested is what comes after the container's reader (tests.targets.test_hostile_files).

Longer than our files are: one list of what is damaged, and the cases that were found, beside each other.
"""

from __future__ import annotations

import json
import random
import resource
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from spec_targets.formats.types import BLOCKS

from spec_core import Refused, Request, Run, Sampling, UsageError, load
from spec_core.errors import TargetError
from tests.support.golden import golden
from tests.support.small_models import tiny_hybrid
from tests.targets.containers import TYPES, VALUES, Model, open_model, pack_typed

MUTATIONS = 100
"""Mutations of each kind; the campaign by hand had thousands."""
ROOM = 300 << 20
MAX_SECONDS = 20
"""Max CPU seconds for one small file, many times its needs: a number believed from a header takes for ever."""
KEYS = [
    "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
    "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon",
    "rope.freq_base", "attention.recurrent_layers", "full_attention_interval", "nextn_predict_layers",
    "rope.dimension_count", "rope.dimension_sections", "ssm.conv_kernel", "ssm.state_size", "ssm.group_count",
    "ssm.time_step_rank", "ssm.inner_size", "leading_dense_block_count", "expert_count", "expert_used_count",
    "expert_group_count", "expert_feed_forward_length", "expert_shared_feed_forward_length", "rope.scaling.type",
    "rope.scaling.factor", "rope.scaling.original_context_length",
]  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> Model:
    return open_model(tiny_hybrid())


def tries(path: Path) -> list[str]:
    """Every way to use a file; what is refused of them. Any exception but UsageError goes through."""
    refused = []
    for use in (lambda: load(path, weights=False), lambda: generates(load(path), "mtp")):
        try:
            use()
        except UsageError as error:
            assert error.hint
            assert "\n" not in error.reason
            assert "\x1b" not in error.reason
            assert len(error.reason) < 2000
            refused.append(error.reason)
    return refused


def generates(target: Any, method: Any) -> None:
    """A short text without and with the method."""
    plain = answer(Run(target))
    assert answer(Run(target, [method])) == plain


def answer(run: Run, **sampling: Any) -> list[int] | str:
    """Weights that give NaN or infinity end their sequence with an error of the target, without other effects."""
    try:
        return run.generate(Request([3, 1, 4], max_tokens=4, seed=1, sampling=Sampling(**sampling))).result.tokens
    except TargetError as error:
        return error.reason


def survives(data: bytes, path: Path) -> list[str]:
    path.write_bytes(data)
    return used_or_refused(path, len(data))


def used_or_refused(path: Path, size: int) -> list[str]:
    """Refusals of a model, without work beyond its size, with at most 300 MB more than it has."""
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = tries(path)
    assert time.process_time() - began < MAX_SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < size + ROOM
    return refused


def changed_metadata(whole: Model, rng: random.Random) -> Model:
    """One to three values of the architecture replaced or left out."""
    model = whole.copy()
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        key = "qwen35." + rng.choice(KEYS)
        model.pairs.pop(key, None)
        if rng.random() < 0.95:
            model.pairs[key] = pack_typed(*rng.choice(VALUES))
    return model


def changed_tensors(whole: Model, rng: random.Random) -> Model:
    model = whole.copy()
    for _ in range(rng.choice([1, 1, 2])):
        rng.choice([lose, rename, double, transpose, reshape, retype, refill])(model, rng)
    return model


def pick(model: Model, rng: random.Random) -> str:
    """Tensors of gated delta nets and of the layer after the trunk more often than others."""
    special = [name for name in model.tensors if "ssm" in name or name.startswith(("blk.0.attn", "blk.4."))]
    return rng.choice(special if special and rng.random() < 0.8 else list(model.tensors))


def lose(model: Model, rng: random.Random) -> None:
    del model.tensors[pick(model, rng)]


def another_name(model: Model, rng: random.Random) -> str:
    """Name of a tensor that is there, or would be in another block or architecture."""
    other = ["ssm_a", "ssm_ba.weight", "attn_qkv.weight", "attn_qkv.bias", "attn_q.bias", "attn_output.bias"]
    other += ["ffn_gate_inp.weight", "ffn_down_shexp.weight", "nextn.embed_tokens.weight"]
    other += ["nextn.shared_head_head.weight", "nextn.shared_head_norm.weight", "rope_freqs.weight"]
    rest = rng.choice([*other, pick(model, rng).split(".", 2)[-1]])
    return rng.choice([f"blk.{rng.randrange(6)}.{rest}", rest, "output.weight", "output.bias", "rope_freqs.weight"])


def rename(model: Model, rng: random.Random) -> None:
    moved = model.tensors.pop(pick(model, rng))
    model.tensors[another_name(model, rng)] = moved


def double(model: Model, rng: random.Random) -> None:
    model.tensors[another_name(model, rng)] = list(model.tensors[pick(model, rng)])


def transpose(model: Model, rng: random.Random) -> None:
    tensor = model.tensors[pick(model, rng)]
    put(tensor, tensor[0][::-1], "F32")


def reshape(model: Model, rng: random.Random) -> None:
    tensor = model.tensors[pick(model, rng)]
    shape = list(tensor[0])
    at = rng.randrange(len(shape))
    shape[at] = max(1, rng.choice([1, shape[at] - 1, shape[at] + 1, shape[at] * 2, shape[at] // 2, 32]))
    put(tensor, rng.choice([shape, shape, [1, *shape], [*shape, 1]]), "F32")


def retype(model: Model, rng: random.Random) -> None:
    tensor = model.tensors[pick(model, rng)]
    put(tensor, tensor[0], rng.choice(list(TYPES)))


def refill(model: Model, rng: random.Random) -> None:
    tensor = model.tensors[pick(model, rng)]
    tensor[2] = rng.choice([b"\0", b"\xff", b"\x7f", b"\x7e"]) * len(tensor[2])


def put(tensor: list[Any], shape: Any, kind: str) -> None:
    """Another shape and type, with zeros; rows are made whole blocks."""
    elements, size = BLOCKS[kind]
    shape = [*shape[:-1], -(-shape[-1] // elements) * elements]
    count = 1
    for n in shape:
        count *= n
    tensor[:] = [tuple(shape), kind, bytes(count // elements * size)]


def flip(whole: Model, rng: random.Random) -> bytes:
    """Bits or whole numbers of the file overwritten, the texts of the tokenizer seldom."""
    data = bytearray(whole.bytes())
    tokens, tensors = data.find(b"tokenizer.ggml.model"), data.find(b"token_embd.weight")
    spans = [(0, tokens), (tensors, tensors + 4000), (tensors + 4000, len(data) - 8), (tokens, tensors)]
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(*rng.choices(spans, [6, 6, 4, 1])[0])
        data[at] = rng.choice([0, 255, 127, data[at] ^ (1 << rng.randrange(8))])
        if rng.random() < 0.2:
            data[at : at + 8] = struct.pack("<Q", rng.choice([0, 1, 2**31, 2**40, 2**63, 2**64 - 1]))
    return bytes(data)


def cut(whole: Model, rng: random.Random) -> bytes:
    data = whole.bytes()
    return data[: rng.randrange(len(data))]


MAKERS = {
    "metadata": lambda whole, rng: changed_metadata(whole, rng).bytes(),
    "tensors": lambda whole, rng: changed_tensors(whole, rng).bytes(),
    "both": lambda whole, rng: changed_tensors(changed_metadata(whole, rng), rng).bytes(),
    "bits": flip,
    "truncation": cut,
}


def test_the_model_written_again_runs(whole, tmp_path):
    assert survives(whole.bytes(), tmp_path / "m.gguf") == []


@pytest.mark.repeats(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", MAKERS)
def test_changed_hybrids_run_or_are_refused(kind, whole, tmp_path):
    rng = random.Random(kind)
    for _ in range(MUTATIONS):
        survives(MAKERS[kind](whole, rng), tmp_path / "m.gguf")


# what was found


def save(model: Model, folder: Path) -> Path:
    path = folder / "m.gguf"
    path.write_bytes(model.bytes())
    return path


def with_keys(whole: Model, **values: tuple[str, Any]) -> Model:
    """Keys with __ for the dot of ``ssm.`` and the like."""
    model = whole.copy()
    for key, value in values.items():
        model.pairs["qwen35." + key.replace("__", ".")] = pack_typed(*value)
    return model


REFUSED_KEYS = {
    "a list of layers that is none": {"attention__recurrent_layers": ("u32", 1)},
    "a list of layers that is too short": {"attention__recurrent_layers": ("array", ("bool", [True, False]))},
    "a list of texts": {"attention__recurrent_layers": ("array", ("text", ["a", "", "a", "", ""]))},
    "a list of large numbers": {"attention__recurrent_layers": ("array", ("i32", [7, 0, 7, 0, 0]))},
    "a size that heads do not divide": {"ssm__inner_size": ("u32", 130)},
    "a key head of many megabytes of state": {"ssm__state_size": ("u32", 60000)},
    "fewer than no blocks after the trunk": {"nextn_predict_layers": ("i32", -1)},
    "fewer than no dense blocks": {"leading_dense_block_count": ("i32", -1)},
    "infinite eps": {"attention__layer_norm_rms_epsilon": ("f32", float("inf"))},
    "an infinite rope base": {"rope__freq_base": ("f32", float("inf"))},
    "linear scaling by NaN": {"rope__scaling__factor": ("f32", float("nan"))},
    "yarn from no positions": {
        "rope__scaling__type": ("text", "yarn"),
        "rope__scaling__factor": ("f32", 2.0),
        "rope__scaling__original_context_length": ("u32", 0),
    },
    "yarn of base 1": {
        "rope__scaling__type": ("text", "yarn"),
        "rope__scaling__factor": ("f32", 2.0),
        "rope__freq_base": ("f32", 1.0),
    },
}


@pytest.mark.parametrize("name", REFUSED_KEYS)
def test_metadata_that_is_refused_before_weights_are_read(name, whole, tmp_path):
    path = save(with_keys(whole, **REFUSED_KEYS[name]), tmp_path)
    assert len(tries(path)) == 2


@pytest.mark.parametrize("name", ["attn_q", "attn_k", "attn_v"])
def test_a_bias_beside_an_output_gate_is_refused(name, whole, tmp_path):
    model = whole.copy()
    rows = model.tensors[f"blk.1.{name}.weight"][0][0]
    model.tensors[f"blk.1.{name}.bias"] = [(rows,), "F32", bytes(4 * rows)]
    assert [f"blk.1.{name}.bias" in reason for reason in tries(save(model, tmp_path))] == [True, True]


def test_an_interval_of_no_layers_is_refused(whole, tmp_path):
    model = with_keys(whole, full_attention_interval=("u32", 0))
    del model.pairs["qwen35.attention.recurrent_layers"]
    with pytest.raises(UsageError, match="full_attention_interval is 0"):
        load(save(model, tmp_path), weights=False)


@pytest.mark.parametrize("name", ["blk.0.ssm_a", "blk.4.nextn.enorm.weight", "blk.1.attn_q.weight"])
def test_weights_that_are_whole_numbers_are_refused(name, whole, tmp_path):
    model = whole.copy()
    put(model.tensors[name], model.tensors[name][0], "I32")
    with pytest.raises(UsageError, match="is of type I32"):
        load(save(model, tmp_path), weights=False)


@pytest.mark.parametrize("kind", ["I8", "IQ4_XS"])
def test_divisors_of_another_shape_are_refused_unread(kind, whole, tmp_path):
    model = whole.copy()
    model.tensors["rope_freqs.weight"] = [(), "F32", b""]
    put(model.tensors["rope_freqs.weight"], (1 << 20,), kind)
    assert len(tries(save(model, tmp_path))) == 2


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("ssm_a", "ssm_a"),
        ("ffn_gate_inp.weight", "ssm_beta.weight"),
        ("attn_qkv.weight", "attn_qkv.weight"),
        ("ffn_down_shexp.weight", "ssm_a"),
    ],
)
def test_tensors_that_make_no_other_block_of_the_layer_behind_the_trunk(name, like, whole, tmp_path):
    """Only tensors whose shapes were checked say what a block is."""
    model = whole.copy()
    model.tensors[f"blk.4.{name}"] = list(model.tensors[f"blk.0.{like}"])
    assert tries(save(model, tmp_path)) == []


@pytest.mark.parametrize("sampling", [{}, {"top_k": 5}, {"top_p": 0.9}], ids=str)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_a_layer_that_makes_no_numbers_changes_no_text(rule, temperature, sampling, whole, tmp_path):
    model = whole.copy()
    model.tensors["blk.4.nextn.enorm.weight"][2] = b"\xff" * 128
    target = load(save(model, tmp_path))
    run = Run(target, [("mtp", {"p_min": 0.0})], rule=rule)
    plain = answer(Run(target, rule=rule), temperature=temperature, **sampling)
    assert len(plain) == 4
    assert len(answer(run, temperature=temperature, **sampling)) == 4
    assert rule != "coupled" or answer(run, temperature=temperature, **sampling) == plain


def layer_alone(whole: Model) -> Model:
    model = whole.copy()
    kept = ("blk.4.", "token_embd.")
    model.tensors = {name: t for name, t in model.tensors.items() if name.startswith(kept)}
    return model


def test_a_layer_alone_without_a_last_norm_is_refused(whole, tmp_path):
    model = layer_alone(whole)
    del model.tensors["blk.4.nextn.shared_head_norm.weight"]
    with pytest.raises(Refused, match=r"'output_norm\.weight' of the NextN layer is missing"):
        Run(load(tiny_hybrid()), [("mtp", {"file": str(save(model, tmp_path))})])


def test_a_layer_alone_with_other_heads_is_refused(whole, tmp_path):
    """It would turn its queries by a table that is made for the target's."""
    halves = {"key_length": 16, "head_count": 4, "head_count_kv": 2}
    keys: dict[str, tuple[str, Any]] = {f"attention__{key}": ("u32", value) for key, value in halves.items()}
    model = with_keys(layer_alone(whole), **keys, rope__dimension_count=("u32", 16))
    for name in ("q", "k"):
        put(model.tensors[f"blk.4.attn_{name}_norm.weight"], (16,), "F32")
    with pytest.raises(Refused, match="heads of 16, 16 dimensions of them rotated, the target heads of 32"):
        Run(load(tiny_hybrid()), [("mtp", {"file": str(save(model, tmp_path))})])


def test_the_name_of_a_model_is_one_short_line(whole, tmp_path):
    model = whole.copy()
    model.pairs["general.name"] = pack_typed("text", "a\nb\x1b[2J" + "x" * 5000)
    name = load(save(model, tmp_path), weights=False).info.name
    assert name.startswith("ab[2Jx")
    assert len(name) <= 200


# directories

JSON_VALUES = [None, 0, 1, 3, -1, 2**16, 2**31 - 1, 2**70, 0.5, 1e300, "", "4", True, [], [[]], {}, {"a": []}]
JSON_KEYS = [
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
    "linear_conv_kernel_dim", "layer_types", "full_attention_interval", "num_hidden_layers", "mtp_num_hidden_layers",
    "num_nextn_predict_layers", "head_dim", "num_key_value_heads", "partial_rotary_factor", "num_experts",
    "n_routed_experts", "num_local_experts", "moe_intermediate_size", "shared_expert_intermediate_size",
    "rope_parameters", "architectures", "text_config",
]  # fmt: skip


@pytest.mark.parametrize("arch", ["qwen3next", "qwen35", "qwen35moe", "glm4moe"])
def test_directories_with_damaged_configs_run_or_are_refused(arch, tmp_path):
    source, rng = golden(arch) / "hf", random.Random(arch)
    for file in source.iterdir():
        if file.name != "config.json":
            (tmp_path / file.name).symlink_to(file)
    raw = json.loads((source / "config.json").read_text())
    for _ in range(MUTATIONS // 4):
        (tmp_path / "config.json").write_text(json.dumps(damaged_config(raw, rng)))
        used_or_refused(tmp_path, sum(file.stat().st_size for file in source.iterdir()))


def damaged_config(raw: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """One to three keys replaced or left out, in the part of the language model where there is one."""
    changed = json.loads(json.dumps(raw))
    for _ in range(rng.choice([1, 1, 2, 3])):
        key, nested = rng.choice(JSON_KEYS), changed.get("text_config")
        part = nested if isinstance(nested, dict) and rng.random() < 0.9 else changed
        part.pop(key, None)
        if rng.random() < 0.9:
            part[key] = rng.choice([*JSON_VALUES, ["linear_attention", "full_attention"] * 2, ["x"] * 4])
    return changed
