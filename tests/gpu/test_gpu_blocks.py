"""Matrices in quantised blocks on GPU kernels, against ggml's numbers and plain products, in float32.

In triton's interpreter where there is no device.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.gpu.embedding import embed
from spec_kernels.gpu.executor import Gpu
from spec_kernels.gpu.forms import FORMS
from spec_kernels.gpu.matrices import Matrices
from spec_kernels.gpu.products import Room, multiply, multiply_gated, padded_rows, parts_of, room_sizes
from spec_kernels.gpu.repack import Matrix
from spec_kernels.model import ops
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.ops import Weight
from spec_kernels.model.reference import Reference
from spec_kernels.ops.dequant import TYPES, dequantize

from benchmarks.dense_shapes import TINY, RandomBlocks, dense_model, random_blocks
from spec_core import load
from tests.support.golden import golden
from tests.support.gpu_twins import RepackedWeights, naive_embed, naive_multiply, naive_multiply_gated, naive_weights
from tests.targets.drive import fresh

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LARGE = {"MXFP4": 1.2}
"""Max bytes on the device, over those of the file, where more than 1.15."""


@pytest.fixture(autouse=True)
def seed_torch():
    torch.manual_seed(0)


def width(type: str, blocks: int) -> int:
    """Columns of 32 times an odd number where blocks have 32."""
    return TYPES[type].elements * blocks


def repack_rows(type: str, data: torch.Tensor) -> Matrix:
    k = data.shape[1] // TYPES[type].bytes * TYPES[type].elements
    matrix = Matrix.empty(FORMS[type], len(data), k, torch.float32, DEVICE)
    matrix.write(0, data[:3].to(DEVICE))
    matrix.write(3, data[3:].to(DEVICE))
    return matrix


def random_matrix(type: str, n: int, k: int) -> tuple[Matrix, torch.Tensor]:
    """A matrix, and its weights by ggml's dequantisation."""
    data = random_blocks(type, n, k, torch.Generator().manual_seed(n))
    return repack_rows(type, data), dequantize(data, type).to(DEVICE)


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal bit for bit, NaN in the same places."""
    return torch.equal(a.nan_to_num(1e30), b.nan_to_num(1e30))


def close(kernel: torch.Tensor, expected: torch.Tensor, ratio: float = 1e-6) -> None:
    assert (kernel - expected).norm() / expected.norm() <= ratio


EXACT = [type for type, form in FORMS.items() if form.unit == 1.0]
"""Types whose scales lie in their files as numbers of 16 bits, or as exponents."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("blocks", [3, 1])
@pytest.mark.parametrize("type", EXACT)
def test_rows_of_a_table_are_ggmls_numbers(type, blocks):
    """Of random bytes: scales that are subnormal, infinite or NaN. The kernel and its twin."""
    data = torch.randint(0, 256, (16, blocks * TYPES[type].bytes), dtype=torch.uint8)
    if type == "MXFP4":
        data[:, 0] = torch.arange(16) * 17  # all sizes of exponents, those of 0 and 255 among them
        data[1, 0] = 1
    table, expected = repack_rows(type, data), dequantize(data, type).to(DEVICE)
    kernel, twin = embed_all(table)

    assert equal(kernel[1:17], expected) and equal(kernel, twin)
    assert equal(naive_weights(table), expected)


def embed_all(table: Matrix) -> list[torch.Tensor]:
    """Rows -1, 0, 1, ... of a table of 16, by the kernel and by its twin."""
    tokens = torch.arange(-1, 16, dtype=torch.int32, device=DEVICE)
    outs = [torch.full((20, table.k), 7.0, device=DEVICE) for _ in range(2)]
    embed(tokens, table, outs[0], 1.0)
    naive_embed(tokens, table, outs[1], 1.0)
    return outs


@pytest.mark.parametrize("type", sorted(FORMS.keys() - set(EXACT)))
def test_scales_that_are_products_are_rounded_to_eleven_bits(type):
    """Each scale and each minimum of a K type once; the integers are exact."""
    data = random_blocks(type, 16, 512, torch.Generator().manual_seed(1))
    table, expected = repack_rows(type, data), dequantize(data, type).to(DEVICE)
    kernel, twin = embed_all(table)
    blocks = expected.unflatten(1, (-1, 32))
    largest = blocks.amax(2, keepdim=True) - 2 * blocks.amin(2, keepdim=True)  # bounds scale · integer and minimum

    assert equal(kernel, twin)
    assert ((kernel[1:17] - expected).unflatten(1, (-1, 32)).abs() <= 2.0**-11 * largest).all()
    assert not equal(kernel[1:17], expected)


def test_a_scale_that_is_too_large_is_refused():
    data = random_blocks("Q4_K", 4, 256, torch.Generator().manual_seed(1))
    data[2, :2] = torch.tensor([1e3], dtype=torch.float16).view(torch.uint8)

    with pytest.raises(ValueError, match=r"scales of Q4_K reach .*, GPU kernels hold up to 255.9: run such a file"):
        repack_rows("Q4_K", data)


def test_golden_blocks_are_repacked_exactly():
    tensors, types = load_file(golden("quant") / "golden.safetensors"), set()
    for name, data in tensors.items():
        type = name.split(".")[1]
        if name.endswith(".bytes") and type in FORMS:
            weights, expected = naive_weights(repack_rows(type, data)).cpu(), tensors[name.replace("bytes", "dequant")]
            assert equal(weights, expected) if type in EXACT else (weights - expected).norm() < 1e-3 * expected.norm()
            types.add(type)

    assert types == set(FORMS) - {"MXFP4"}


@pytest.mark.parametrize("type", FORMS)
def test_a_matrix_is_hardly_larger_than_in_its_file(type):
    matrix = Matrix.empty(FORMS[type], 24, 1024, torch.float32, torch.device("meta"))
    size = sum(m.nbytes for m in matrix.memory if m is not None)

    assert size == FORMS[type].bytes_of(24, 1024)
    assert size <= LARGE.get(type, 1.15) * 24 * TYPES[type].row_bytes(1024)


@pytest.mark.repeats(9)
@pytest.mark.parametrize("rows, n, blocks", [(5, 50, 1), (20, 33, 7), (3, 140, 33)])
@pytest.mark.parametrize("type", FORMS)
def test_products_and_gated_ones(type, rows, n, blocks):
    """Fewer columns than a run, a run that is not full, and parts of k."""
    k = width(type, blocks if TYPES[type].elements == 32 else max(1, blocks // 8))
    matrix, _ = random_matrix(type, 2 * n, k)
    weights = naive_weights(matrix)
    x = torch.full((padded_rows(rows), k), float("nan"), device=DEVICE)
    x[:rows] = torch.randn(rows, k)
    outs = [torch.empty(parts_of(matrix), len(x), 2 * n + 3, device=DEVICE)[:, :, 3:] for _ in range(2)]
    multiply(x, matrix, outs[0])
    naive_multiply(x, matrix, outs[1])
    gated = [torch.empty(len(x), n, device=DEVICE) for _ in range(2)]
    parts, tiles = room_sizes(matrix, len(x))
    room = Room(
        torch.empty(parts, device=DEVICE).view(-1, len(x), 2 * n), torch.zeros(tiles, dtype=torch.int32, device=DEVICE)
    )
    for _ in range(2):  # the counts are zero again
        gated[0].fill_(float("nan"))
        multiply_gated(x, matrix, gated[0], "silu_glu", room)
    naive_multiply_gated(x, matrix, gated[1], "silu_glu")

    product = x[:rows] @ weights.T
    gate, up = product.chunk(2, 1)
    for out, gated_out in zip(outs, gated, strict=True):
        close(out.sum(0)[:rows], product)
        close(gated_out[:rows], torch.nn.functional.silu(gate) * up)


@pytest.mark.parametrize("type", ["Q8_0", "Q5_K", "Q6_K"])
def test_a_row_has_the_same_bits_in_every_batch(type):
    """In parts of k; parts depend on the matrix alone."""
    matrix, _ = random_matrix(type, 24, 1024)
    x = torch.randn(256, 1024, device=DEVICE)
    results = []
    for rows in (16, 64, 256):
        out = torch.empty(parts_of(matrix), rows, 24, device=DEVICE)
        multiply(x[:rows], matrix, out)
        results.append(out)

    assert len(results[0]) == 2
    assert all(torch.equal(results[0], out[:, :16]) for out in results[1:])


class Tensors:
    """A source of blocks, and of floats."""

    def __init__(self, **tensors: tuple[str, torch.Tensor]) -> None:
        self.tensors = tensors

    def type(self, name):
        return self.tensors[name][0]

    def blocks(self, name):
        return self.tensors[name][1]

    def load(self, name):
        type, data = self.tensors[name]
        return data if type == "F32" else dequantize(data, type)


def blocks_of(type: str, n: int, k: int) -> tuple[str, torch.Tensor]:
    return type, random_blocks(type, n, k, torch.Generator().manual_seed(n))


def test_weights_of_one_input_are_read_by_their_types():
    """Permuted rows, a stack of two, a type without a form, one that stays in float32."""
    order, source = torch.randperm(6), Tensors(
        q=blocks_of("Q4_K", 6, 256), k=blocks_of("Q4_K", 20, 256), v=blocks_of("Q6_K", 5, 256),
        other=("Q3_K", torch.randint(0, 90, (4, 110), dtype=torch.uint8)), wide=blocks_of("Q8_0", 3, 256),
    )  # fmt: skip
    weights = (
        Weight("q", 6, 256, order), Weight("k", 6, 256, order, count=2), Weight("v", 5, 256),
        Weight("other", 4, 256), Weight("wide", 3, 256, wide=True),
    )  # fmt: skip
    matrices = Matrices(torch.bfloat16, DEVICE)
    matrices.read(source, weights)
    q_and_k, v, other, wide = matrices[weights]
    k = source.load("k").view(2, 10, 256)[:, order].flatten(0, 1)

    close(naive_weights(q_and_k).cpu(), torch.cat([source.load("q")[order], k]), 1e-3)
    close(naive_weights(v).cpu(), source.load("v"), 1e-3)
    assert equal(other.memory.numbers.cpu(), source.load("other").bfloat16())
    assert equal(wide.memory.numbers.cpu(), source.load("wide")) and wide.dtype == torch.float32
    assert matrices.types == ["Q4_K", "Q6_K"]
    assert matrices.conversions == {"Q3_K as bfloat16": 1, "Q8_0 as float32": 1}
    with pytest.raises(ValueError, match=r"'q' was read as \[30, 256\], \[29, 256\] is needed"):
        matrices[(*weights[:-1], replace(weights[-1], n=2))]


def test_a_model_of_many_types():
    """q, k and v, and gate and up, have different types; the embedding table is the output matrix."""
    types = {"": "Q5_0", "attn_k": "Q8_0", "attn_v": "MXFP4", "ffn_up": "Q4_1", "token_embd": "Q5_1"}
    shape = replace(TINY, layers=1, tied=True)
    source = RandomBlocks(shape, types, "cpu")
    model = dense_model(shape, source)
    batch = lambda e: ForwardBatch(torch.arange(9), torch.arange(9), [SequenceRows(e.cache(20), 0, 9, 0)])
    executors = (
        Reference(model, source, torch.float32, torch.device("cpu")),
        Gpu(model, source, torch.float32, DEVICE, 64),
    )
    expected, logits = (executor.run(batch(executor))["logits"].cpu() for executor in executors)

    close(logits, expected, 3e-6)
    assert not executors[1].shared.matrices.conversions


def test_a_wide_matrix_of_a_narrow_model_is_multiplied_in_float32():
    """Beside one of the model's type: its rows are converted."""
    source = Tensors(
        table=("F32", torch.randn(7, 64)), wide=("F32", torch.randn(5, 64)), output=("F32", torch.randn(3, 64))
    )
    weights = Weight("wide", 5, 64, wide=True), Weight("output", 3, 64)
    described = (
        ops.Embed("x", Weight("table", 7, 64)), ops.Pick("x", "x", "final"), ops.Norm("x", "h", torch.ones(64), 1e-6),
        ops.Tap("h", "final"), ops.Pick("h", "h", "logits"), ops.Linear("h", ("logits", "rest"), weights, (None, None)),
        ops.Tap("logits", "logits"),
    )  # fmt: skip
    gpu = Gpu(ops.Model(described), source, torch.float16, DEVICE, 64)
    sequences, taps = [SequenceRows(None, 0, 4, 0)], ("logits", "final")
    outputs = gpu.run(ForwardBatch(torch.arange(4), torch.arange(4), sequences, taps=taps))

    assert outputs["final"].dtype == torch.float16
    close(outputs["logits"].cpu(), outputs["final"].cpu().float() @ source.load("wide").T)


def test_a_quantised_golden_model_and_what_is_said_of_it():
    """q, k and v of one layer have two types."""
    folder = golden("quantmodel/llama-q4_k_m")
    target = load(folder / "model-q4_k_m.gguf", kernels="gpu", device=str(DEVICE), dtype="float32")
    tensors, facts = load_file(folder / "golden.safetensors"), json.loads((folder / "golden.json").read_text())
    prompt, executor = tensors["prompt_37"][:9], target.executor
    rows = fresh(target, prompt.tolist()).logits.cpu()
    reference = Reference(executor.model, RepackedWeights(executor.source), torch.float32)
    expected = reference.run(ForwardBatch(prompt, torch.arange(9), [SequenceRows(reference.cache(9), 0, 9, 0)]))

    assert facts["quantiser"] == "llama-quantize Q4_K_M"
    assert (expected["logits"] - rows).abs().max() <= 4e-5
    close(rows, tensors["logits_37"][:9], 3e-3)
    assert target.info.kernels.endswith("weights and cache float32, blocks Q4_K and Q6_K)")
    assert target.info.weight_bytes < 1.11 * (folder / "model-q4_k_m.gguf").stat().st_size
