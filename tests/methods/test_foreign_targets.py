"""Draft layers on targets that share no executor: they take the embedding and the output matrix by ``tensor(name)``."""

from __future__ import annotations

import attrs
import pytest
import torch
from spec_kernels.layer_executor import StandaloneExecutor, TargetTensors, executor_of
from spec_kernels.model.reference import Reference
from spec_kernels.native import problem
from spec_kernels.native.executor import Native

from spec_core import Draft, Run, Target, load
from tests.methods.heads import head_file, requests
from tests.support.small_models import tiny_gguf, tiny_hybrid


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def load_arch(of: str, **options) -> Target:
    path = tiny_hybrid(context=128) if of == "hybrid" else tiny_gguf(0, layers=4)
    return load(path, dtype="float32", device="cpu", **options)


def foreign(target: Target) -> Target:
    """The same target as another engine would offer it: without an executor for further layers."""
    target.layer_executor = None
    return target


def drafts(target: Target, method: tuple) -> tuple[list[Draft], list[list[int]]]:
    run, drafts = Run(target, [method], rollback="gdn-rollback" if "recurrent" in target.info.states else None), []
    run.observe(lambda step: drafts.extend(part.draft for part in step.parts if part.draft is not None))
    seqs = [run.submit(request) for request in requests(0.0)]
    while run.busy:
        run.step()
    return drafts, [run.take(seq).tokens for seq in seqs]


METHODS = {"eagle3": "dense", "dflash": "dense", "eagle3-of-a-hybrid": "hybrid", "mtp": "hybrid"}


def test_a_target_without_weights_shares_no_executor():
    """Its metadata may describe the model of another engine, whose matrices are then used."""
    assert isinstance(executor_of(load_arch("dense", weights=False)), StandaloneExecutor)


@pytest.mark.repeats(3)
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kernels", ["native", "reference"])
def test_a_head_drafts_the_same_beside_a_target_without_an_executor(name, kernels):
    if kernels == "native" and problem():
        pytest.skip(problem())
    of, kind = METHODS[name], name.split("-")[0]
    settings = {"p_min": 0.0} | ({} if kind == "mtp" else {"file": str(head_file(kind, of))})
    own, other = (drafts(make(load_arch(of, kernels=kernels)), (kind, settings)) for make in (lambda t: t, foreign))

    assert own[0]
    if kernels == "native":
        assert [d.ids for d in own[0]] == [d.ids for d in other[0]]
    assert own[1] == other[1]


def test_layers_run_natively_on_a_cpu_unless_the_target_computes_in_float64():
    target = foreign(load_arch("dense"))
    beside = executor_of(target)
    source = TargetTensors(target)
    model = load_arch("dense", kernels="reference").executor.model
    able = Native if problem() is None else Reference
    for dtype, kind in (("float32", able), ("bfloat16", able), ("float16", able), ("float64", Reference)):
        beside = executor_of(attrs.evolve(target, info=attrs.evolve(target.info, dtype=dtype)))
        executor = beside.with_layers(model, source)
        assert type(executor) is kind
        assert type(beside.with_layers(model, source)) is kind


def test_tensors_that_the_target_lacks_have_no_shape():
    source = TargetTensors(load_arch("dense"))

    assert source.shape("token_embd.weight") == (300, 32)
    assert source.shape("no.such.weight") is None
    assert torch.equal(source.load("token_embd.weight"), load_arch("dense").tensor("token_embd.weight"))
