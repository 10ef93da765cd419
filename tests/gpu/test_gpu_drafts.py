"""Chains of drafts on the device: each choice against the core's own, and whole methods against plain decoding."""

from __future__ import annotations

import math

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.gpu import drafting
from spec_kernels.gpu.drafting import CHAIN_FIELDS, DEPTH, ChainSize, DraftProgram, Following, Scores, choose_drafts

from spec_core import Request, Run, Sampling, load
from spec_core.sampling.choose import draw_token
from spec_core.sampling.noise import DOMAIN_TOKEN
from spec_core.toolkit.tree import DraftLimits, DraftNoise
from tests.support import deep_mtp
from tests.support.gpu_twins import naive_choose_drafts
from tests.support.small_models import tiny_gguf

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
OPTIONS = {"kernels": "gpu", "device": DEVICE.type, "dtype": "float32"}
VOCAB = 5000


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def integers(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_greedy_choice_describes_the_next_forward(depth, mapped):
    """The second of three rows ends here; the third has a logit that is NaN."""
    torch.manual_seed(0)
    logits = torch.randn(3, VOCAB, device=DEVICE)
    logits[2, 7] = math.nan
    ids = torch.randperm(VOCAB, device=DEVICE) if mapped else None
    results = []
    for choose in (choose_drafts, naive_choose_drafts):
        rows, tiles, chains = integers(3, 8) + 5, integers(3, 8) + 9, integers(3, CHAIN_FIELDS)
        chains[:, DEPTH] = torch.tensor([4, depth + 1, 4])
        tokens, certainty = integers(3), torch.zeros(3, device=DEVICE)
        following = Following(rows, tiles, chains, ids)
        choose(logits, Scores.empty(3, VOCAB, DEVICE), following, depth, tokens, certainty)
        results.append((tokens[:2], rows[:2], rows[2, 1:], tiles, certainty.isnan()))
        assert torch.allclose(certainty[:2], logits[:2].softmax(-1).amax(-1))

    assert all(torch.equal(kernel, twin) for kernel, twin in zip(*results, strict=True))


@pytest.mark.parametrize("mapped", [False, True])
def test_drawn_tokens_are_those_of_the_core(mapped):
    """mapped: rows of logits are of other tokens of the target, whose noise they have."""
    torch.manual_seed(0)
    logits = torch.randn(6, VOCAB, device=DEVICE) * 2
    sampling = [Sampling(temperature=t) for t in (0.3, 0.8, 1.0, 1.5, 4.0)]
    noises = [
        DraftNoise(s.temperature, (91 << 33, i, DOMAIN_TOKEN), 7 * i, (1, 0), float) for i, s in enumerate(sampling)
    ]
    limits = [DraftLimits(2, 2, 1, 0.0, noise=noise) for noise in noises]
    program = DraftProgram.__new__(DraftProgram)
    program.size, program._device = ChainSize(6, 2, None, False), integers(6 * (CHAIN_FIELDS + 1))
    program._host, program._integers = program._device.clone().cpu(), program._device[:-6].view(6, -1)
    program.fill([*limits, DraftLimits(2, 2, 1, 0.0)], range(6))
    ids = torch.randperm(VOCAB, device=DEVICE) if mapped else None
    following = Following(integers(6, 8), integers(0, 8), program._integers, ids)
    of_target = logits if ids is None else torch.empty_like(logits).index_copy_(1, ids, logits)
    tokens, gaps = integers(6), torch.zeros(6, device=DEVICE)
    for step in range(2):
        choose_drafts(logits, Scores.empty(6, VOCAB, DEVICE), following, step, tokens, gaps)
        for i, (s, noise) in enumerate(zip(sampling, noises, strict=True)):
            token, _, apart = draw_token(of_target[i].cpu(), s, noise.source, noise.position + step, ([], 0, ()))
            assert tokens[i] == token
            assert gaps[i].item() == pytest.approx(apart, abs=1e-4)
        assert tokens[5] == of_target[5].argmax()


SAMPLINGS = (Sampling(), Sampling(temperature=0.8), Sampling(temperature=0.9, top_k=5))


def test_chains_of_the_same_model_are_always_right(monkeypatch):
    """Greedy and coupled chains are one call; with cuts they are chosen on the host. Texts end at several depths."""
    calls = []
    whole = drafting.cut_chain
    monkeypatch.setattr(drafting, "cut_chain", lambda *args: calls.append(1) or whole(*args))
    target = load(tiny_gguf(0, layers=1), **OPTIONS)
    settings = {"draft-model": {"file": str(tiny_gguf(0, layers=1)), "p_min": 0.0, "draft_max": 3}}
    requests = [Request([1, 2, i], max_tokens=3 + i, seed=i, sampling=s) for i, s in enumerate(SAMPLINGS)]
    plain = [Run(target).generate(request).result.tokens for request in requests]
    results = [
        g.result for g in Run(target, ["draft-model"], plugin_settings=settings, max_sequences=3).generate(requests)
    ]

    assert [r.tokens for r in results] == plain
    assert all(r.stats["accepted"] == r.stats["drafted"] > 0 for r in results)
    assert calls


def test_rows_that_a_rule_reads_are_kept():
    target = load(tiny_gguf(0, layers=1), **OPTIONS)
    settings = {"draft-model": {"file": str(tiny_gguf(0, layers=1)), "p_min": 0.0, "draft_max": 3}}
    run = Run(target, ["draft-model"], rule="rejection", plugin_settings=settings)
    result = run.generate(Request([1, 2, 3], max_tokens=4, seed=1, sampling=Sampling(temperature=0.8))).result

    assert result.stats["accepted"] == result.stats["drafted"] > 0


@pytest.mark.repeats(1)
@pytest.mark.parametrize("depths", [1, 2, 3])
def test_next_token_layers_draft_as_in_plain_torch(depths):
    """Greedy, drawn, and chosen on the host; of several layers each has a call of its own."""
    drafts, texts = {}, {}
    requests = [Request([1, 2, i], max_tokens=6, seed=i, sampling=s, name=f"{i}") for i, s in enumerate(SAMPLINGS)]
    for kernels in ("gpu", "reference"):
        target = load(deep_mtp.dense(depths), **OPTIONS | {"kernels": kernels})
        run, offers = Run(target, [("mtp", {"p_min": 0.0, "draft_max": 4})], max_sequences=3), []
        run.observe(
            lambda step, offers=offers: offers.extend((p.seq.name, p.start, p.draft.ids) for p in step.parts if p.draft)
        )
        texts[kernels] = [text.result.tokens for text in run.generate(requests)]
        drafts[kernels] = offers

    assert texts["gpu"] == texts["reference"]
    assert sorted(drafts["gpu"]) == sorted(drafts["reference"])
    assert {len(ids) for _, _, ids in drafts["gpu"]} >= {4}
