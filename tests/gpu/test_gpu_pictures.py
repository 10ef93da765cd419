"""Pictures on GPU kernels: vectors of transformers, and rows of pictures against the reference and against themselves.

``tests/campaigns/gpu_models.py`` has the other prompts.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.gpu.executor import Gpu
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.ops import AddRows, Attend, Tap

from spec_core import Request, Run, load
from tests.support.golden import golden
from tests.support.small_models import tiny_gguf
from tests.targets.test_pictures import logits_of, pictures

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = 1e-4
"""Of logits: half of the tolerance of other executors."""


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize(("name", "case"), [("gemma3", "a"), ("idefics3", "a"), ("llava", "a"), ("qwen3vl", "b")])
def test_logits_are_those_of_transformers(name, case):
    """gemma3: rows of a picture see each other; qwen3vl: positions on a grid and added rows."""
    pytest.importorskip("transformers")
    folder = golden(f"vision-{name}")
    tensors, facts = load_file(folder / "golden.safetensors"), json.loads((folder / "golden.json").read_text("utf-8"))
    target = load(str(folder / "hf"), kernels="gpu", device=DEVICE, dtype="float32")
    logits = logits_of(target, tensors, facts, case).cpu()

    assert (logits - tensors[f"logits_{case}"]).abs().max() <= TOLERANCE


def test_a_text_goes_on_after_a_picture():
    """Its rows have positions below their places; drafts are evaluated there too."""
    pytest.importorskip("transformers")
    folder = golden("vision-qwen3vl")
    tensors, facts = load_file(folder / "golden.safetensors"), json.loads((folder / "golden.json").read_text("utf-8"))
    target = load(str(folder / "hf"), kernels="gpu", device=DEVICE, dtype="float32")
    request = Request(facts["prompts"]["a"], images=pictures(tensors, "a"), max_tokens=6, ignore_eos=True)
    run = Run(target, [("recycling", {})], max_sequences=1)

    assert run.generate(request).result.tokens == tensors["greedy_tokens_a"].tolist()[:6]


@pytest.fixture(scope="module")
def pair():
    """(reference, GPU executor) of a model that adds rows after its first two blocks."""
    of = load(tiny_gguf(0, layers=2), kernels="reference", device="cpu", dtype="float32", threads=1).executor
    ops = []
    for op in of.model.ops:
        if isinstance(op, Tap) and op.name in ("hidden.1", "hidden.2"):
            ops.append(AddRows("x", int(op.name[-1]) - 1))
        ops.append(op)
    model = replace(of.model, ops=tuple(ops))
    reference = of.with_layers(model, of.source)
    return reference, Gpu(model, of.source, torch.float32, torch.device(DEVICE), 300)


def prompt(executor, counts, added=(), grid=True, mutual=()):
    """A batch of prompts of these lengths, with random positions of every pair of a head. mutual: of each prompt."""
    torch.manual_seed(0)
    rows = sum(counts)
    pairs = len(executor.model.tables[0].frequencies)
    positions = torch.randint(40, (rows, pairs)) if grid else torch.arange(rows)
    sequences, first = [], 0
    for i, count in enumerate(counts):
        both = i < len(mutual) and mutual[i]
        sequences.append(SequenceRows(executor.cache(rows), first, count, 0, mutual=both))
        first += count
    return ForwardBatch(torch.randint(200, (rows,)), positions, sequences, added=added)


def some_rows(width, *rows):
    return {row: torch.randn(width, generator=torch.Generator().manual_seed(row)) for row in rows}


def width_of(executor):
    return executor.model.ops[0].table.k


def difference(expected, rows):
    return ((expected - rows.cpu()).norm() / expected.norm()).item()


def test_positions_on_a_grid_and_added_rows_are_the_references(pair):
    width = width_of(pair[0])
    added = some_rows(width, 2, 3, 9), some_rows(width, 3)
    expected, logits = (executor.run(prompt(executor, (7, 5), added))["logits"] for executor in pair)

    assert difference(expected, logits) < 3e-6
    assert difference(expected, pair[0].run(prompt(pair[0], (7, 5)))["logits"]) > 1e-2


def test_a_row_without_added_rows_has_the_bits_that_it_has_in_a_step_without_any(pair):
    """The second text is as in a forward without a picture."""
    gpu = pair[1]
    plain = gpu.run(prompt(gpu, (7, 5)))["logits"][7:].clone()
    with_picture = gpu.run(prompt(gpu, (7, 5), (some_rows(width_of(gpu), 2, 3),)))["logits"][7:]

    assert torch.equal(plain, with_picture)


def test_equal_positions_on_all_axes_give_the_bits_of_one_position(pair):
    gpu = pair[1]
    one = prompt(gpu, (9,), grid=False)
    plain = gpu.run(one)["logits"].clone()
    pairs = len(gpu.model.tables[0].frequencies)
    many = replace(one, positions=one.positions[:, None].expand(-1, pairs))

    assert torch.equal(plain, gpu.run(many)["logits"])


def test_rows_of_a_picture_see_each_other_in_chunks_of_any_size(pair, monkeypatch):
    """The second text of three is a picture, longer than a chunk: it is not cut, and the others stay causal."""
    reference, gpu = pair
    counts, mutual = (6, 21, 9), (False, True)
    expected = reference.run(prompt(reference, counts, grid=False, mutual=mutual))["logits"]
    logits = gpu.run(prompt(gpu, counts, grid=False, mutual=mutual))["logits"].clone()
    monkeypatch.setattr("spec_kernels.gpu.chunks.ROWS_MAX", 16)
    cut = gpu.run(prompt(gpu, counts, grid=False, mutual=mutual))["logits"]

    assert difference(expected, logits) < 3e-6
    assert torch.equal(logits, cut)
    assert difference(expected, reference.run(prompt(reference, counts, grid=False))["logits"]) > 1e-2


@pytest.mark.parametrize("how", [{"causal": False}, {"anchored": True}])
def test_a_block_whose_rows_depend_on_each_other_is_not_cut(pair, how, monkeypatch):
    """Three blocks, and chunks with room for two of them and a half."""
    model = pair[0].model
    narrow = lambda op: replace(op, shape=replace(op.shape, window=3), **how) if isinstance(op, Attend) else op
    model = replace(model, ops=tuple(narrow(op) for op in model.ops))
    gpu = Gpu(model, pair[0].source, torch.float32, torch.device(DEVICE), 300)
    whole = gpu.run(prompt(gpu, (7, 7, 7), grid=False))["logits"].clone()
    monkeypatch.setattr("spec_kernels.gpu.chunks.ROWS_MAX", 16)
    cut = gpu.run(prompt(gpu, (7, 7, 7), grid=False))["logits"]

    assert torch.equal(whole, cut)


def test_rows_that_do_not_fit_are_refused(pair):
    gpu = pair[1]
    with pytest.raises(ValueError, match=r"the embedding of row 1 has shape \[5\], \[\d+\] is needed"):
        gpu.run(prompt(gpu, (4,), ({1: torch.zeros(5)},)))
    one = prompt(gpu, (4,))
    with pytest.raises(ValueError, match=r"a row has 3 positions, a head has \[\d+\] pairs"):
        gpu.run(replace(one, positions=one.positions[:, :1].expand(-1, 3)))
