"""Properties of whole forwards that only a device shows: captured graphs, races, memory, threads, sizes of real layers.

On a machine without one these are skipped, and untested there.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from threading import Thread

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.gpu.executor import Gpu
from spec_kernels.model.batch import ForwardBatch, SequenceRows

from benchmarks.dense_shapes import Q4_K_M, QWEN3_06B, QWEN3_8B, RandomBlocks, RandomWeights, dense_model
from spec_core import Run, Sampling, load
from tests.support.gpu_twins import naive_weights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: torch sees none"),
]
LAYERS = 2


SHAPES = {
    "8B": (QWEN3_8B, None), "0.6B": (QWEN3_06B, None), "8B-Q8_0": (QWEN3_8B, {"": "Q8_0"}),
    "8B-Q4_K_M": (QWEN3_8B, Q4_K_M),
}  # fmt: skip


@pytest.fixture(scope="module", params=SHAPES)
def executor(request):
    shape, types = SHAPES[request.param]
    shape = replace(shape, layers=LAYERS)
    source = RandomWeights(shape, torch.bfloat16, "cuda") if types is None else RandomBlocks(shape, types, "cuda")
    return Gpu(dense_model(shape, source), source, torch.bfloat16, torch.device("cuda"), 4096)


def batch(cache, start, tokens, parents=None):
    count = len(tokens)
    positions = torch.arange(start, start + count)
    if parents is not None:
        depths = []
        for parent in parents:
            depths.append(1 + (depths[parent] if parent >= 0 else 0))
        chain = count - len(parents)
        positions[chain:] = start + chain - 1 + torch.tensor(depths)
    return ForwardBatch(torch.tensor(tokens), positions, [SequenceRows(cache, 0, count, start, parents)])


def tokens(count):
    return torch.randint(1000, (count,), generator=torch.Generator().manual_seed(0)).tolist()


def test_a_captured_step_gives_the_bits_of_its_launches_fifty_times(executor):
    """The first run launches, the second captures, the others replay; a race moves bits now and then."""
    cache, text = executor.cache(900), tokens(700)
    executor.run(batch(cache, 0, text))
    for count in (1, 5, 16):
        first = executor.run(batch(cache, 650, text[650 : 650 + count]))["logits"].clone()
        for _ in range(50):
            assert torch.equal(executor.run(batch(cache, 650, text[650 : 650 + count]))["logits"], first)
    assert executor.buckets.captured >= 3


def test_rows_of_a_prompt_a_step_and_a_tree_are_equal_at_real_sizes(executor):
    cache, text = executor.cache(900), tokens(700)
    prompt = executor.run(batch(cache, 0, text))["logits"].clone()
    for first, count in ((640, 1), (640, 8), (640, 33), (512, 64), (127, 3)):
        rows = executor.run(batch(cache, first, text[first : first + count]))["logits"]
        assert torch.equal(rows, prompt[first : first + count]), (first, count)
    tree = [text[640], text[641], 5, text[642], 7, text[643]]
    rows = executor.run(batch(cache, 640, tree, [-1, -1, 0, 1, 2]))["logits"]
    assert all(torch.equal(rows[row], prompt[place]) for row, place in ((0, 640), (1, 641), (3, 642), (5, 643)))


def test_products_at_real_sizes_are_those_of_torch(executor):
    """Logits of the last norm's rows, in bfloat16."""
    cache, text = executor.cache(100), tokens(40)
    asked = batch(cache, 0, text)
    asked.taps = ("logits", "final")
    outputs = executor.run(asked)
    (head,) = executor.shared.matrices[(executor.model.ops[-2].weights)]
    expected = outputs["final"].float() @ naive_weights(head).bfloat16().float().T

    assert (outputs["logits"] - expected).norm() / expected.norm() < 1e-3


def test_memory_of_closed_texts_is_used_again(executor):
    caches = [executor.cache(1500) for _ in range(20)]
    del caches
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        executor.cache(1500)
    assert torch.cuda.memory_allocated() == before


def test_two_threads_do_not_share_outputs(executor):
    text, failures = tokens(80), []

    def check(first):
        cache = executor.cache(200)
        alone = executor.run(batch(cache, 0, text[first:]))["logits"].clone()
        for i in range(60 - first):
            row = executor.run(batch(cache, i, text[first + i : first + i + 1]))["logits"]
            if not torch.equal(row[0], alone[i]):
                failures.append((first, i))

    threads = [Thread(target=check, args=[first]) for first in (0, 3, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("method", ["ngram", "draft-model", "eagle3"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_texts_with_drafts_are_plain_ones(method, temperature):
    target = load("zoo:pico", device="cuda", kernels="gpu")
    prompts = ["def fibonacci(n):", "The quick brown", "x = [1, 2, 3]\n"] * 2
    texts = lambda methods: [
        g.result.tokens for g in Run(target, methods).generate(prompts, max_tokens=40, sampling=Sampling(temperature))
    ]

    assert texts([method]) == texts([])
