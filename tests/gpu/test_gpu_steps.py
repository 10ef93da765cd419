"""Whole models on GPU kernels: against the reference, golden vectors, and rows against themselves in other batches.

In triton's interpreter where there is no device, in float32. ``tests/campaigns/gpu_models.py`` has all golden vectors
and more texts.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.executors import ExecutorMisfit, choose_executor
from spec_kernels.gpu import executor as executors
from spec_kernels.gpu import graphs, support
from spec_kernels.gpu.executor import Gpu
from spec_kernels.gpu.pages import PagedCache
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.executor import ExecutorRequest
from spec_kernels.native.native_cache import NativeCache

from spec_core import Request, Run, Sampling, UsageError, load
from spec_core.errors import TargetError
from spec_core.testing import Oracle, RandomTrees
from tests.support.golden import golden
from tests.support.small_models import tiny_gguf, tiny_streamed
from tests.targets import tiny
from tests.targets.drive import fresh

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "phi3", "gemma2", "gemma3", "ministral3")
MORE = {
    "mistral": {"sliding_window": 9, "head_dim": 8},
    "phi3": {"sliding_window": 9, "pad_token_id": 0},
    "gemma2": {"head_dim": 24, "sliding_window": 9, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 20.0},
    "gemma3": {"head_dim": 24, "sliding_window": 9, "query_pre_attn_scalar": 24, "num_hidden_layers": 6},
}
OPTIONS = {"kernels": "gpu", "device": DEVICE, "dtype": "float32"}
RATIO = 3e-6
"""Max root mean square difference from the reference, relative to the logits."""


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class Pair:
    """A model on GPU kernels and on the reference, each with caches of its own."""

    def __init__(self, path, **options):
        self.reference = load(path, kernels="reference", device="cpu", dtype="float32", threads=1, **options).executor
        device = torch.device(DEVICE)
        self.gpu = Gpu(self.reference.model, self.reference.source, torch.float32, device, 512)
        self.vocab = self.reference.model.ops[0].table.n

    def tokens(self, count):
        return torch.randint(self.vocab, (count,), generator=torch.Generator().manual_seed(1)).tolist()


def batch(caches, *spans):
    """spans: (start, tokens, parents) of each cache."""
    tokens, positions, sequences = [], [], []
    for cache, (start, some, parents) in zip(caches, spans, strict=True):
        sequences.append(SequenceRows(cache, len(tokens), len(some), start, parents))
        depths = []
        for parent in parents or ():
            depths.append(1 + (depths[parent] if parent >= 0 else 0))
        chain = len(some) - len(depths)
        positions += [*range(start, start + chain), *(start + chain - 1 + depth for depth in depths)]
        tokens += some
    return ForwardBatch(torch.tensor(tokens), torch.tensor(positions), sequences, taps=("logits", "final", "hidden.1"))


def run(executor, *arguments):
    return {name: rows.clone() for name, rows in executor.run(batch(*arguments)).items()}


def difference(a, b):
    return ((a.cpu() - b.cpu()).norm() / a.norm().cpu()).item()


@pytest.mark.parametrize("arch", FAMILIES)
def test_a_prompt_and_a_step_of_every_family(arch, tmp_path):
    """Two sequences: a prompt longer than a window, then a row beside a draft of three."""
    pair = Pair(tiny.save(tiny.model(arch, **MORE.get(arch, {})), tmp_path))
    tokens = pair.tokens(24)
    results = []
    for executor in (pair.reference, pair.gpu):
        caches = [executor.cache(40) for _ in range(2)]
        prompts = run(executor, caches, (0, tokens[:14], None), (0, tokens[14:16], None))
        results.append((prompts, run(executor, caches, (14, tokens[14:15], None), (2, tokens[16:20], None))))

    for expected, rows in zip(*results, strict=True):
        for name, values in expected.items():
            assert difference(values, rows[name]) < RATIO, name


def test_golden_logits():
    folder = golden("qwen3")
    target = load(folder / "model-f32.gguf", **OPTIONS)
    tensors, facts = load_file(folder / "golden.safetensors"), json.loads((folder / "golden.json").read_text())
    rows = fresh(target, tensors["prompt_37"].tolist()).logits.cpu()

    assert (tensors["logits_37"] - rows).abs().max() <= 4 * facts["rounding_floor"]["logits_37"]
    assert target.info.exact == "rows"


def test_a_row_has_the_same_bits_alone_in_a_batch_in_a_tree_and_in_chunks(monkeypatch):
    """The text of 131 tokens ends in a second piece; a path of the tree is moved to its place afterwards."""
    pair = Pair(tiny_gguf(0, layers=2))
    gpu, tokens = pair.gpu, pair.tokens(140)
    cache, other = gpu.cache(200), gpu.cache(200)
    chain = run(gpu, [cache], (0, tokens[:134], None))
    for i in (126, 130, 133):
        assert torch.equal(run(gpu, [cache], (i, tokens[i : i + 1], None))["logits"][0], chain["logits"][i])
    both = run(gpu, [other, cache], (0, tokens[5:8], None), (130, tokens[130:134], None))
    assert torch.equal(both["logits"][3:], chain["logits"][130:])

    tree = [tokens[126], tokens[127], 5, tokens[128], 7, tokens[129]], [-1, -1, 0, 1, 2]
    grown = run(gpu, [cache], (126, *tree))
    for row, place in ((0, 126), (1, 127), (3, 128), (5, 129)):
        assert torch.equal(grown["logits"][row], chain["logits"][place])
        assert torch.equal(grown["hidden.1"][row], chain["hidden.1"][place])
    cache.compact(127, [127, 129, 131])
    assert torch.equal(run(gpu, [cache], (130, tokens[130:131], None))["logits"][0], chain["logits"][130])

    monkeypatch.setattr(executors, "rows_max", lambda pieces, heads: 50)
    again = run(gpu, [gpu.cache(200)], (0, tokens[:134], None))
    assert all(torch.equal(again[name], rows) for name, rows in chain.items())


def test_rows_of_a_heading_are_those_of_all():
    pair = Pair(tiny_gguf(0, layers=2))
    gpu, tokens = pair.gpu, pair.tokens(8)
    whole = run(gpu, [gpu.cache(20)], (0, tokens, None))
    for final, logits in (([2, 5, 7], [5, 7]), ([7], [7]), ([], []), (None, [1]), (list(range(8)), [3])):
        asked = batch([gpu.cache(20)], (0, tokens, None))
        asked.final, asked.logits = final, logits
        rows = gpu.run(asked)
        assert torch.equal(rows["logits"], whole["logits"][logits])
        assert torch.equal(rows["final"], whole["final"] if final is None else whole["final"][final])


@pytest.mark.repeats(1)
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.9)], ids=["greedy", "sampled"])
def test_drafts_and_trees_change_no_text(sampling):
    """Two sequences at a time, right and wrong drafts, trees."""
    target = load(tiny_gguf(0, layers=2), **OPTIONS)
    requests = [
        Request(prompt, max_tokens=7, seed=5, sampling=sampling, name=str(i))
        for i, prompt in enumerate(([1, 2, 3], [4, 5]))
    ]
    texts = lambda methods: [g.result.tokens for g in Run(target, methods, max_sequences=2).generate(requests)]
    plain = texts([])
    whole = {r.name: [*r.prompt, *text] for r, text in zip(requests, plain, strict=True)}

    assert texts([RandomTrees(whole, vocab=target.info.vocab)]) == plain
    assert texts([Oracle(whole, lambda i, seq: i < 2, vocab=target.info.vocab)]) == plain


def test_buckets_are_bounded(monkeypatch):
    monkeypatch.setattr(graphs, "BUCKETS_MAX", 3)
    pair = Pair(tiny_gguf(0, layers=2))
    for count in range(1, 6):
        run(pair.gpu, [pair.gpu.cache(20)], (0, pair.tokens(count), None))

    assert len(pair.gpu.buckets) == 3


def test_what_has_no_kernel_is_refused_by_name_before_weights_are_read(monkeypatch):
    with pytest.raises(UsageError, match=r"kernels=gpu was requested, but hyper-connections, .*, have no GPU kernel"):
        load(tiny_streamed(), **OPTIONS, weights=False)
    monkeypatch.setattr(support, "tile_of", lambda shape, dtype: (1, shape.group))
    with pytest.raises(UsageError, match="2 query heads share a key head of 32, GPU kernels run at most 1"):
        load(tiny_gguf(0), **OPTIONS, weights=False)


def test_a_model_that_has_no_kernel_is_refused_on_a_device_by_name():
    """Plain torch runs it there if it is asked for."""
    model = load(tiny_streamed(), device="cpu", weights=False).plan.model
    request = ExecutorRequest(torch.device("cuda"), torch.float32, positions=8)
    reason = r"hyper-connections, .*, have no GPU kernel; plain torch, which runs"
    with pytest.raises(ExecutorMisfit, match=reason) as error:
        choose_executor(model, request)

    assert error.value.hint == "use kernels=reference, or change that"
    assert choose_executor(model, replace(request, kernels="reference"))[0].name == "reference"


def test_a_device_without_triton_is_refused_with_a_hint(monkeypatch):
    monkeypatch.setattr(support.importlib.util, "find_spec", lambda name: None)

    assert "pip install 'spec-core[triton]'" in support.problem(torch.device("cuda"), torch.float32)


def test_settings_of_native_kernels_are_refused():
    with pytest.raises(UsageError, match="activations=int8 is for native kernels"):
        load(tiny_gguf(0), **OPTIONS, activations="int8")


@pytest.mark.parametrize("kernels", ["gpu", "native"])
def test_a_text_whose_cache_cannot_grow_ends_alone(kernels, monkeypatch):
    """The longest of three needs memory that is not there."""
    options = OPTIONS if kernels == "gpu" else {"kernels": "native", "device": "cpu"}
    target = load(tiny_gguf(0, layers=2), **options)
    monkeypatch.setattr("spec_targets.runtime.torch_target.FIRST_ROWS", 1)
    prompts = [[1, 2, 3], list(range(126)), [4, 5]]
    run = Run(target, reuse=False)
    plain = [g.result.tokens for g in run.generate(prompts, max_tokens=5, ignore_eos=True)]
    seqs = [run.submit(prompt, max_tokens=100 if len(prompt) > 9 else 5, ignore_eos=True) for prompt in prompts]
    cache = PagedCache if kernels == "gpu" else NativeCache

    def grow(self, length):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much\nmore words")

    run.step()
    monkeypatch.setattr(cache, "grow", grow)
    while run.busy:
        run.step()

    assert [run.take(seqs[i]).tokens for i in (0, 2)] == [plain[i] for i in (0, 2)]
    with pytest.raises(TargetError, match=r"no memory is left on \w+ for keys and values \(CUDA out of memory. Tried"):
        run.take(seqs[1])
