"""Triton twins against the plain references.

Without a CUDA device the kernels run in triton's interpreter, element for element, and are compiled for one
kind of device without being run. Not tested without one: that compiled kernels give these results (races
between threads, the precision of the device's exponentials and products), bfloat16, which the interpreter cannot
multiply, launches beyond a device's limits, and speed. ``test_gpu.py`` and this file on a machine with CUDA test it.
"""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import attrs
import numpy
import pytest
import torch
from spec_kernels.model import mixture as layers
from spec_kernels.model.shapes import Experts
from spec_kernels.ops import dispatch
from spec_kernels.ops.rms_norm import rms_norm

from benchmarks import kernels
from spec_core import Request, Run, UsageError, load
from spec_core.testing import Oracle, RandomTrees
from tests.kernels.twins import CASES, OPS, Case, for_attention, for_delta, for_experts, move, ragged_lineage
from tests.support.small_models import tiny_hybrid

pytest.importorskip("triton", reason="triton is not installed: its kernels cannot be read, let alone run")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# A device's exponential of x is off by about 2**-22 + |x| / 2**24 of its size.
RATIO = {torch.float32: 2e-6 if DEVICE == "cpu" else 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Max root mean square difference, relative to the reference's."""


@pytest.fixture(autouse=True)
def scratch_is_nan():
    """Uninitialised memory holds NaN, so that elements which a kernel does not write are found."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def assert_close(name: str, plain: torch.Tensor, fast: torch.Tensor, ratio: float) -> None:
    """Equal if the reference is NaN or an integer; else close, by the ratio of root mean squares."""
    assert plain.shape == fast.shape and plain.dtype == fast.dtype
    if not plain.is_floating_point():
        assert torch.equal(plain, fast), name
        return
    missing = plain.isnan()
    assert torch.equal(missing, fast.isnan()), f"{name}: numbers where there are none, or none where there are some"
    gap, scale = (fast - plain)[~missing].double(), plain[~missing].double().norm()
    error = float(gap.norm() / scale)
    assert error < ratio, f"{name}: off by {error:.1e} of its size, at most by {gap.abs().max():.1e}"


def dtypes(case: Case) -> list[torch.dtype]:
    half = torch.bfloat16 if DEVICE == "cuda" else torch.float16
    return [torch.float32, half] if case.half else [torch.float32]


@pytest.mark.parametrize(
    "name, dtype", [pytest.param(n, t, id=f"{n}-{str(t)[6:]}") for n, case in CASES.items() for t in dtypes(case)]
)
def test_the_twin_agrees_with_the_reference(name, dtype):
    case = CASES[name]
    given = move(case.make(), "cpu", dtype)

    plain, fast = case.results("reference", given), case.results("triton", move(given, DEVICE, dtype))

    for output, expected in plain.items():
        assert_close(output, expected, fast[output], RATIO[dtype])


@pytest.mark.parametrize("folder, op", [(folder, op) for folder, ops in OPS.items() for op in ops])
def test_both_forms_have_one_signature_and_one_docstring(folder, op):
    """Both forms of an operator have the same arguments, and so has the function that chooses between them."""
    plain, fast = (
        getattr(importlib.import_module(f"spec_kernels.ops.{folder}.{f}"), op) for f in ("reference", "triton")
    )
    exposed = getattr(importlib.import_module(f"spec_kernels.ops.{folder}"), op)

    assert inspect.signature(plain) == inspect.signature(fast) == inspect.signature(exposed)
    assert plain.__doc__ == fast.__doc__ == exposed.__doc__


def test_every_twin_has_a_case():
    """Every kernel is compared with its reference."""
    folders = Path(dispatch.__file__).parent.glob("*/triton.py")

    assert sorted(OPS) == sorted(f.parent.name for f in folders)
    assert {op for ops in OPS.values() for op in ops} == {case.op for case in CASES.values()}


def test_experts_are_distinct_where_weights_vanish():
    """Beside a certain expert all others have weight 0; they are still chosen once each."""
    route = CASES["route-plain"].form("triton")

    weights, chosen = route(torch.arange(7.0, device=DEVICE)[None] * 200, 5, True)

    assert weights.tolist() == [[1, 0, 0, 0, 0]]
    assert chosen[0, 0] == 6 and len(set(chosen[0].tolist())) == 5


@pytest.fixture
def sums_in_order(monkeypatch):
    """Products of the interpreter are numpy's, whose BLAS may sum a row by its place; a device does not."""

    def in_order(a, b, dtype):
        return sum((a[:, i : i + 1] * b[i : i + 1] for i in range(1, len(b))), a[:, :1] * b[:1]).astype(dtype)

    monkeypatch.setattr(numpy, "matmul", in_order)


@pytest.mark.usefixtures("sums_in_order")
def test_an_attending_row_has_the_same_bits_alone_and_with_hidden_columns_behind():
    """Batch invariance: tiles and pieces are cut at fixed places."""
    attention = CASES["attention-chain"].form("triton")
    given = move(for_attention(5, 530, 4, 2, 16, 16), DEVICE)
    together = attention(**given)

    for row in (0, 4):
        end = 531 + row
        alone = {"q": given["q"][row : row + 1], "k": given["k"][:end], "v": given["v"][:end]}
        visible = given["visible"][row : row + 1, :end]
        assert torch.equal(together[row], attention(**alone, visible=visible, scale=given["scale"])[0])


@pytest.mark.usefixtures("sums_in_order")
def test_a_rows_experts_say_the_same_alone():
    experts = CASES["experts-odd"].form("triton")
    given = move(for_experts(7, 4, 2, 33, 9), DEVICE)
    together = experts(**given)

    for row in (0, 6):
        one = {name: given[name][row : row + 1] for name in ("x", "weights", "chosen")}
        assert torch.equal(together[row], experts(**given | one)[0])


def test_a_node_of_a_tree_has_the_bits_of_its_path_token_by_token():
    """One row per step, each kept where the next begins: outputs and the last state are equal bit for bit."""
    given = move(for_delta(ragged_lineage(kept=True)), DEVICE)
    together, alone = given["states"].clone(), given["states"].clone()
    delta = CASES["delta-chain"].form("triton")
    o, _ = delta(**given | {"states": together})

    single = type(given["lineage"])([-1], [1], [1], [0])
    for row in (4, 6, 9):
        one = {name: given[name][row : row + 1] for name in ("q", "k", "v", "g", "beta")}
        assert torch.equal(o[row], delta(**given | one | {"states": alone, "lineage": single})[0][0])
    assert torch.equal(together[7], alone[1])


@pytest.mark.parametrize("decay", ["head", "channel"])
def test_replayed_records_give_the_state_bit_for_bit(decay):
    given = move(for_delta(ragged_lineage(kept=True), decay), DEVICE)
    states = given["states"]
    _, d = CASES["delta-chain"].form("triton")(**given)

    CASES["replay"].form("triton")(states, given["k"], d, given["g"], given["key_of"], [6, 9], 1, 8)

    assert torch.equal(states[7], states[8])


def test_states_that_would_be_copied_are_refused():
    """They are overwritten in place."""
    given = move(for_delta(ragged_lineage(kept=True)), DEVICE)
    apart = given["states"].mT.contiguous().mT

    with pytest.raises(ValueError, match="contiguous"):
        CASES["delta-chain"].form("triton")(**given | {"states": apart})


class OnCuda(torch.Tensor):
    """A tensor that claims to be on CUDA."""

    is_cuda = True


def test_tensors_on_cuda_go_to_the_twin_and_others_to_the_reference(monkeypatch):
    asked = []
    monkeypatch.setattr(dispatch, "twin", lambda reference: lambda *a, **k: asked.append(reference.__name__))
    x, weight = torch.ones(2, 4), torch.ones(4)

    assert torch.allclose(x, rms_norm(x, weight, 0.0)) and not asked
    rms_norm(x.as_subclass(OnCuda), weight, 0.0)
    rms_norm(weight=weight, eps=0.0, x=x.as_subclass(OnCuda))
    assert asked == ["rms_norm", "rms_norm"]


def test_cuda_tensors_without_triton_are_an_error_with_a_mend(monkeypatch):
    """Plain torch is not used as a silent fallback."""
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "spec_kernels.ops.rms_norm.triton", raising=False)
    dispatch.twin.cache_clear()

    with pytest.raises(dispatch.KernelsMissing, match=r"rms_norm on CUDA .* pip install 'spec-core\[triton\]'"):
        rms_norm(torch.ones(2, 4).as_subclass(OnCuda), torch.ones(4), 0.0)
    dispatch.twin.cache_clear()


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_device_without_kernels_is_refused_before_a_weight_is_read(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "triton", None)

    with pytest.raises(UsageError, match="cuda needs triton kernels") as refused:
        load(tiny_hybrid(), device=device)

    assert "spec-core[triton]" in refused.value.hint
    assert "none (triton is not installed) on cuda" in dispatch.in_use()


@pytest.fixture
def twins_everywhere(monkeypatch):
    """Operators use triton on any device."""
    return lambda: monkeypatch.setattr(dispatch, "on_cuda", lambda arguments: True)


@pytest.mark.slow
@pytest.mark.parametrize("strategy, drafter", [("replay", RandomTrees), ("snapshot", Oracle)])
def test_a_hybrid_drafts_the_text_of_plain_decoding_through_the_twins(strategy, drafter, twins_everywhere):
    """Prompt, drafts, trees, traces and rollback of a whole model; the text is that of the references."""
    target, request = load(tiny_hybrid(), dtype="float32", device=DEVICE), Request([5, 9, 11], max_tokens=4, name="a")
    plain = Run(load(tiny_hybrid(), device="cpu")).generate(request).result.tokens
    method = drafter({"a": [*request.prompt, *plain]}, vocab=300)
    twins_everywhere()

    drafted = Run(target, [method], rollback=("gdn-rollback", {"strategy": strategy})).generate(request).result

    assert plain == drafted.tokens
    assert drafted.stats["tokens_per_step"] > 1


@pytest.mark.parametrize("rows", [2, 19])
def test_a_layer_of_experts_gives_the_same_through_the_twins(rows, monkeypatch, twins_everywhere):
    """The layer's own sums, for few rows and for many, against one operator."""
    normal = lambda *shape: torch.randn(shape, device=DEVICE)
    x, scores, weights = normal(rows, 12), normal(rows, 5), (normal(5, 12, 7), normal(5, 12, 7), normal(5, 7, 12))
    monkeypatch.setattr(layers, "on_cuda", lambda arguments: False)
    plain = layers.mixture(x, scores, Experts(5, 2), None, weights)
    twins_everywhere()
    monkeypatch.setattr(layers, "on_cuda", lambda arguments: True)

    assert_close("y", plain, layers.mixture(x, scores, Experts(5, 2), None, weights), 1e-5)


SMALL = kernels.Sizes(
    width=24, heads=4, kv_heads=2, head=16, rotated=8, key_heads=1, value_heads=2, key_dim=8, value_dim=8, window=4,
    experts=4, top=2, inner=8, vocab=30, context=40, layers=4,
)  # fmt: skip


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("at", range(len(kernels.items(SMALL, 1))))
def test_what_the_benchmark_would_time_is_right(at, rows):
    """Its calls are valid and agree with the references; in float32, for the interpreter's sake."""
    item = kernels.items(SMALL, rows)[at]
    given = move(item.make(), DEVICE)
    twin = attrs.evolve(item, op=dispatch.twin(item.reference) if item.reference else item.op)

    assert kernels.difference(twin, given) < 1e-5
    assert item.touched(given) > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, and the benchmark would run")
def test_the_benchmark_says_that_there_is_no_gpu(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["kernels.py"])

    kernels.main()

    assert capsys.readouterr().out.startswith("no GPU:")


@pytest.mark.slow
@pytest.mark.parametrize(
    "capability", ["90", pytest.param("89", marks=pytest.mark.release), pytest.param("80", marks=pytest.mark.release)]
)
def test_every_kernel_compiles_for_a_device_that_is_not_here(capability):
    """At the sizes of Qwen3-Next and Qwen3-8B: the types are right, and shared memory suffices."""
    script = Path(__file__).with_name("compile_for_gpu.py")
    environment = os.environ | {"TRITON_INTERPRET": "0"}

    done = subprocess.run([sys.executable, script, capability], env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-2000:]
    compiled = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert len(compiled) >= 20
    # 99 KiB: what a program may have on the smallest devices since 8.6.
    assert not {kernel: size for kernel, size in compiled.items() if int(size) > 101376}
