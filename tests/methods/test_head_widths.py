"""Draft heads of other widths than the target, and with many inputs: native drafts equal the reference's."""

from __future__ import annotations

from functools import cache
from itertools import count

import attrs
import pytest
import torch
from spec_kernels import native

from spec_core import Request
from tests.native.programs import FAR, SHALLOW
from tests.native.random_heads import Case, case, far

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
KINDS = ("eagle3", "dflash", "dspark", "dflash2", "dspine", "lilicorr")


@cache
def make_case(kind: str, **changed: int | tuple[int, ...]) -> Case:
    """The first case of its kind whose head has an embedding and an output matrix of its own."""
    drawn = (case(seed) for seed in count())
    heads = (one for one in drawn if one.head.kind == kind and one.head.own_embedding and one.head.own_output)
    original = next(one for one in heads if one.made.config.layers <= SHALLOW)
    if original.head.confidence and "width" in changed:  # a confidence head reads a state of that width, and more
        more = original.head.confidence - original.head.width
        changed["confidence"] = changed["width"] + more
    return attrs.evolve(original, head=attrs.evolve(original.head, **changed))


@pytest.mark.repeats(6)
@pytest.mark.parametrize("width", [16, 40, 72, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_of_any_width_drafts_what_the_reference_drafts(kind, width):
    head = make_case(kind, width=width)

    assert far(head) <= FAR


@pytest.mark.repeats(8)
@pytest.mark.parametrize("inputs", [1, 5, 6, 12, 32])
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_reads_many_hidden_states_drafts_what_the_reference_drafts(kind, inputs):
    head = make_case(kind, inputs=inputs, ids=(1,) * inputs)

    assert far(head) <= FAR


@pytest.mark.repeats(9)
@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("width", [16, 40, 72])
@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_of_embeddings_is_drafted_by_a_head_of_another_width(kind, width, kernels):
    """Such a head cannot read embeddings: it drafts from hidden states alone, and the text stays plain."""
    head = make_case(kind, width=width)
    target = head.target(kernels)
    embeds = {at: torch.full((target.info.width,), 0.1 * at) for at in (1, 2, 5)}
    request = Request([3, 0, 0, 4, 5, 0], embeds=embeds, max_tokens=8, ignore_eos=True)
    text, drafted = head.generate(target, request, drafting=True)

    assert target.info.width != width
    assert drafted > 0
    assert text == head.generate(target, request, drafting=False)[0]
