"""Random models on the native program: see programs.py."""

from __future__ import annotations

from types import NoneType
from typing import get_args

import attrs
import pytest
import torch
from spec_kernels import native
from spec_kernels.model import ops
from spec_kernels.model.shapes import ConvShape, DeltaShape, ScanShape
from spec_targets.architectures.decoder import decoder

from spec_core import Needs
from tests.native.programs import FAR, HEADS, KINDS, OPTIONAL, SHALLOW, Drawn, Program, bare, differences, program
from tests.targets.drive import fresh

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
ELSEWHERE = {ops.Input, ops.BlockConv, ops.Clusters, ops.AddRows, ops.AddRelative}
"""Operations of draft heads, and of models that read pictures."""
SEEDS = (3, 5, 7, 16, 32, 38, 39, 43, 45, 54, 119, 174, 177, 298, 304)
LONG = 1024
"""The seed of a model so large that it takes half a minute."""
BLOCKS = 600
"""The max number of outputs of a random model, which was once too many for a program."""


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("seed", [*SEEDS, pytest.param(LONG, marks=pytest.mark.release)])
def test_rows_of_a_random_model_depend_on_nothing_but_their_path(seed):
    assert differences(seed) == []


def test_the_seeds_of_the_suite_meet_what_models_can_be():
    drawn = [program(seed) for seed in SEEDS]
    types = {one.weights.type(name) for one in drawn for name in one.weights.shapes if "norm" not in name}

    assert {one.options["cache_dtype"] for one in drawn} == set(native.CACHES)
    assert {one.config.experts is None for one in drawn} == {True, False}
    assert any(one.config.experts and one.config.experts.count == 1 and is_compared(one) for one in drawn)
    assert any(one.config.width % 16 for one in drawn)
    assert any(one.config.layers > SHALLOW for one in drawn)
    assert {type(one.config.state) for one in drawn} == {DeltaShape, ConvShape, ScanShape, NoneType}
    assert types == set(KINDS)
    has = [set(map(bare, one.weights.shapes)) for one in drawn]
    for optional in OPTIONAL:  # attn_v.weight is also missing where q, k and v are one tensor
        assert {optional in names for names in has} == {True, False}, optional


def test_the_seeds_of_the_suite_meet_every_operation():
    """And every option of one that is not in all models."""
    drawn = [op for case in map(program, SEEDS) for op in decoder(case.config, case.weights, case.weights.interleaved)]
    by = {kind: [op for op in drawn if isinstance(op, kind)] for kind in get_args(ops.Op)}

    assert {kind for kind, members in by.items() if not members} == ELSEWHERE
    assert {op.act for op in by[ops.GLU]} == {"silu", "gelu", "relu"}
    mixtures = {(op.act, op.biases is None, op.gate is None) for op in by[ops.Mixture]}
    assert mixtures == {("silu", True, False), ("clamped", False, False), ("gelu", True, False), ("relu", True, True)}
    assert {op.groups > 1 for op in by[ops.Norm]} == {True, False}
    assert {op.add is None for op in by[ops.Mixture]} == {op.factors is None for op in by[ops.Mixture]} == {True, False}
    assert {op.scale == 1.0 for op in by[ops.Add]} == {op.given for op in by[ops.Embed]} == {True, False}
    assert {op.sinks is None for op in by[ops.Attend]} == {op.pools is None for op in by[ops.Attend]} == {True, False}
    assert {bool(op.floor) for op in by[ops.Delta]} == {op.bias is None for op in by[ops.Norm]} == {True, False}
    assert {bool(op.limit) for op in by[ops.GLU]} == {bool(op.limit) for op in by[ops.Mixture]} == {True, False}
    assert {op.weights is None for op in by[ops.StreamSum]} == {True, False}
    assert {op.scale == 1.0 for op in by[ops.Embed]} == {True, False}
    assert {op.shape.by_channel for op in by[ops.Delta]} == {op.kept == 0 for op in by[ops.HeadLinear]} == {True, False}
    for field in ("window", "cap", "table", "latent"):
        assert {bool(getattr(op.shape, field)) for op in by[ops.Attend]} == {True, False}, field


def test_the_seeds_of_the_suite_meet_blocks_of_different_sizes():
    """Several shapes in one cache, heads wider than those of other models, and blocks that store nothing."""
    drawn = [program(seed).config for seed in SEEDS]

    assert {len(set(config.cached)) > 1 for config in drawn} == {True, False}
    assert any(config.heads_of(i).dim > max(HEADS) for config in drawn for i in range(config.layers))
    assert any(config.sharing and config.layers - config.sharing for config in drawn)
    assert any(len(set(config.ffs)) > 1 for config in drawn)
    assert {config.scaling.kind for config in drawn} == {"none", "proportional"}


def is_compared(program: Program) -> bool:
    """Whether a random model is compared with the reference too."""
    return program.options["cache_dtype"] == "float32"


def test_a_model_of_hundreds_of_blocks_runs_and_gives_every_hidden_state():
    drawn = program(144).config
    config = attrs.evolve(drawn, layers=BLOCKS, windows=(drawn.windows * BLOCKS)[:BLOCKS])
    tested = Program(config, Drawn(config, 0), {})
    needs = Needs(hidden=set(range(BLOCKS)), final=True, all_logits=True)
    native, exact = (fresh(tested.target(kernels=kernels), [3, 1, 2], needs) for kernels in ("native", "reference"))

    assert set(native.hidden) == set(range(BLOCKS))
    for ours, theirs in ((native.logits, exact.logits), (native.hidden[BLOCKS - 1], exact.hidden[BLOCKS - 1])):
        assert (ours - theirs).square().mean().sqrt() <= FAR * (theirs.max() - theirs.min())
