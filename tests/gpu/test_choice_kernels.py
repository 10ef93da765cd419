"""The choice of tokens on a device equals the core's, token by token.

Without a CUDA device the kernels run in triton's interpreter, and are compiled for three kinds of device without being
run. Not tested without one: that compiled kernels give these tokens, and captured launches.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np
import pytest
import torch

from spec_core import Request, Run, Sampling
from spec_core.sampling.device import difference, examples
from spec_core.sampling.draws import Draw, pack_draws
from spec_core.testing import Oracle, ToyConstraint, ToyTarget
from tests.support import choices

pytest.importorskip("triton", reason="triton is not installed: its kernels cannot be read, let alone run")

from spec_kernels.gpu.choice.chooser import GRAPHS_MAX, DeviceChoice
from spec_kernels.gpu.choice.description import COPY, ROW, describe
from spec_kernels.gpu.choice.kernels import TILE

from tests.support import choice_reference as reference

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TWINS = {"kernels": DeviceChoice(DEVICE), "reference": reference.choose_tokens}
SHORT = {"kernels": 12, "reference": 400}
"""Numbers of random choices that the interpreter, and numpy, make in a second or two."""


def check(choose, logits: torch.Tensor, draws: list[Draw]) -> None:
    """Tokens and largest logits equal the core's; a token beside a largest logit of NaN or -inf has no meaning."""
    tokens, largest = choose(logits, pack_draws(draws, logits.shape[1]))
    for draw, token, value in zip(draws, tokens.tolist(), largest.tolist(), strict=True):
        expected, expected_value = draw.choose(logits.cpu())
        assert value == expected_value or (math.isnan(value) and math.isnan(expected_value)), draw
        assert not expected_value > -math.inf or token == expected, draw


def random_draws(count: int, vocab: int) -> tuple[torch.Tensor, list[Draw]]:
    """Rows of the tests of the core's own choice, with its temperatures down to 1e-320, seeds and histories."""
    cases = list(choices.cases(vocab, count, (vocab,)))
    draws = []
    for i, case in enumerate(cases):
        sampling = attrs.evolve(case.sampling, top_k=0, top_p=1.0, min_p=0.0)
        draws.append(Draw(i, sampling, case.source, case.t, (case.tokens, case.prompt, case.drafted)))
    return torch.stack([case.row.float() for case in cases]), draws


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("form", TWINS)
def test_random_choices_are_the_cores(form):
    logits, draws = random_draws(SHORT[form], 1000)

    check(TWINS[form], logits.to(DEVICE), draws)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("form", TWINS)
def test_the_comparison_of_the_core_finds_no_difference(form):
    """Temperatures, ties, rows of -inf and NaN, masks, biases and penalties, of bfloat16, beyond one tile."""
    device = DEVICE if form == "kernels" else torch.device("cpu")

    assert difference(TWINS[form], device, torch.bfloat16, TILE + 21) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rows_with_a_stride_are_read_where_they_lie(dtype):
    """A part of a wider matrix, three draws of two rows, and one of the four places for draws stays empty."""
    logits = torch.randn(4, 100, generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype)[1:3, 7:77]
    draws = [Draw(i % 2, Sampling(0.8, logit_bias={3: 1.0} if i == 1 else {}), (i << 33, 0, 0), i) for i in range(3)]
    check(TWINS["kernels"], logits, draws)


def test_the_first_of_equal_scores_is_chosen_across_tiles():
    """The largest logit in two tiles, at temperature 0; and a draw that no noise changes."""
    logits = torch.zeros(1, 2 * TILE + 5)
    logits[0, [TILE + 3, 2 * TILE + 1]] = 9.0

    tokens, largest = TWINS["kernels"](logits.to(DEVICE), pack_draws([Draw(0, Sampling(), (1, 0, 0), 0)], 2 * TILE + 5))

    assert (tokens.tolist(), largest.tolist()) == ([TILE + 3], [9.0])


def test_tiles_that_cannot_win_are_spared_and_others_are_not():
    """A tile with almost the best score is computed exactly; the winner lies in the last, incomplete one."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(1, 2 * TILE + 100, generator=generator)
    logits[0, 2 * TILE :] += 6.0

    check(TWINS["kernels"], logits.to(DEVICE), [Draw(0, Sampling(1.0), (9, 0, 0), 4)])


def test_a_description_larger_than_its_buffer_gets_a_new_one():
    """Many changed logits, then few again."""
    choose = DeviceChoice(DEVICE)
    logits = torch.zeros(1, 1500)
    biased = Sampling(logit_bias={i: i % 7 / 8 for i in range(1200)})

    for sampling in (Sampling(), biased, Sampling()):
        check(choose, logits.to(DEVICE), [Draw(0, sampling, (1, 0, 0), 0)])


def test_only_rows_that_change_are_copied():
    draws = [Draw(5, Sampling(), (1, 0, 0), 0), Draw(6, Sampling(logit_bias={2: 1.0}), (1, 0, 0), 0)]
    draws += [Draw(7, Sampling(), (1, 0, 0), 0, mask=np.array([5], np.uint32))]

    description = describe(pack_draws(draws, 30))

    assert description.draws[:, ROW].tolist() == [5, 6, 7, -1]
    assert description.draws[:, COPY].tolist() == [-1, 0, 1, -1]
    assert description.copies.tolist() == [[6, -1], [7, 0]]
    assert description.masks.tolist() == [[5]]


def test_the_least_recently_used_launches_are_dropped():
    """One for each place of logits; a tensor is not kept, only its address."""
    choose = DeviceChoice(DEVICE)
    integers = torch.zeros((1, 10), dtype=torch.int32, device=DEVICE)
    logits = torch.zeros(GRAPHS_MAX + 2, 9, device=DEVICE)
    first = choose._find_launches(logits[:1], integers)
    rest = [choose._find_launches(logits[i : i + 1], integers) for i in range(1, GRAPHS_MAX)]

    assert first is choose._launches[next(iter(choose._launches))]
    choose._launches.move_to_end(next(iter(choose._launches)))  # it is used again
    choose._find_launches(logits[GRAPHS_MAX:], integers)

    assert len(choose._launches) == GRAPHS_MAX
    assert first in choose._launches.values() and rest[0] not in choose._launches.values()


class Rounded(ToyTarget):
    """A target whose logits have a type that only choosers take without a copy."""

    def forward(self, batch, needs):
        output = super().forward(batch, needs)
        return attrs.evolve(output, logits=output.logits.bfloat16().to(DEVICE))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_text_through_the_kernels_is_the_plain_text(monkeypatch):
    """With drafts, penalties and a mask."""
    penalised = Sampling(1.0, repetition_penalty=1.5, frequency_penalty=0.4, logit_bias={4: 1.0})
    request = Request([1, 2, 5], max_tokens=6, name="a", seed=1 << 40, sampling=penalised, constraint=ToyConstraint(1))
    plain = Run(Rounded(recurrent=False)).generate(request).result
    calls = []

    def choose(logits, draws):
        calls.append(len(draws))
        return TWINS["kernels"](logits, draws)

    monkeypatch.setattr("spec_core.toolkit.choosing.device_chooser", lambda logits: choose)
    method = Oracle({"a": [*request.prompt, *plain.tokens]}, lambda i, seq: i != 2)
    drafted = Run(Rounded(recurrent=False), [method], draft_max=3).generate(request).result

    assert plain.tokens == drafted.tokens
    assert drafted.stats["tokens_per_step"] > 1 and max(calls) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "capability", [90, pytest.param(89, marks=pytest.mark.release), pytest.param(80, marks=pytest.mark.release)]
)
def test_kernels_compile_for_a_device_that_is_not_here(capability):
    """For a vocabulary of 151,936; exact kernels round every product and sum."""
    script = Path(__file__).parent.parent / "kernels" / "compile_for_gpu.py"
    environment = os.environ | {"TRITON_INTERPRET": "0"}

    process = subprocess.run(
        [sys.executable, script, str(capability), "choices"], env=environment, capture_output=True, text=True
    )

    assert process.returncode == 0, process.stderr[-2000:]
    sizes = [int(line.split()[-1]) for line in process.stdout.splitlines()]
    assert len(sizes) == 10
    assert max(sizes) <= 99 * 1024, "what a program may have on the smallest devices since 8.6"


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a CUDA device: torch sees none")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_captured_launches_give_the_same_tokens_fifty_times(dtype):
    """The first call is not captured. The logits move between the calls, and change in place."""
    choose = DeviceChoice(DEVICE)
    logits, draws = examples(dtype, 151936)
    buffers = [torch.empty_like(logits, device=DEVICE) for _ in range(2)]

    for i in range(50):
        buffer = buffers[i % 2]
        buffer.copy_(logits.roll(i // 10, 0))
        check(choose, buffer, draws[: 16 - i % 3])
    assert all(launches.graph is not None for launches in choose._launches.values())
