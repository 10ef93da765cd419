"""Hybrids under speculation: state and text with every rollback strategy, chains and trees, alone and together."""

from __future__ import annotations

import attrs
import pytest
import torch

from spec_core import Request, Run, RunSettings, Sampling, load
from spec_core.errors import Refused
from spec_core.testing import Oracle, RandomTrees
from tests.methods.heads import method as head
from tests.support.pairs import every_pair
from tests.support.small_models import tiny_gguf, tiny_hybrid, tiny_kimi, tiny_lfm2, tiny_scanned, tiny_streamed
from tests.targets.drive import forward, part, sequence
from tests.targets.gate import finish_checked

STRATEGIES = ("snapshot", "replay", "checkpoint")


SCANNED = ("granitehybrid", "falcon-h1", "nemotron_h_moe")
KINDS = {
    "hybrid": tiny_hybrid,
    "kimi-linear": tiny_kimi,
    "glm5-next": tiny_streamed,
    "lfm2": tiny_lfm2,
    "lfm2moe": lambda: tiny_lfm2(moe=True),
    **{family: lambda family=family: tiny_scanned(family) for family in SCANNED},
}
SLOW = ("lfm2moe", "falcon-h1", "granitehybrid")


@pytest.fixture(
    scope="module", params=[pytest.param(kind, marks=pytest.mark.slow if kind in SLOW else ()) for kind in KINDS]
)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def target(kind):
    torch.set_num_threads(1)
    return load(KINDS[kind]())


@pytest.fixture(scope="module")
def plain(target):
    """Requests of every temperature with their plain results, by temperature."""
    return {
        t: (own_requests := requests(t), [Run(target).generate(r).result for r in own_requests]) for t in (0.0, 0.8)
    }


def requests(temperature: float, n: int = 20) -> list[Request]:
    """Prompts of 1 token, of the convolution's width less 1, and longer; the last is cut into several chunks."""
    lengths = (1, 3, 6, 17, 80)
    return [
        Request(
            [(7 * i + j * j) % 299 for j in range(length)],
            max_tokens=n,
            name=f"{i}",
            seed=i,
            sampling=Sampling(temperature=temperature),
        )
        for i, length in enumerate(lengths)
    ]


def texts_by_name(requests_given, results) -> dict[str, list[int]]:
    return {r.name: [*r.prompt, *result.tokens] for r, result in zip(requests_given, results, strict=True)}


DRAFTERS = {
    "none-right": lambda texts: Oracle(texts, lambda i, seq: False, vocab=300),
    "all-right": lambda texts: Oracle(texts, vocab=300),
    "two-right": lambda texts: Oracle(texts, lambda i, seq: i < 2, length=5, vocab=300),
    "chains": lambda texts: RandomTrees(texts, trees=False, vocab=300),
    "trees": lambda texts: RandomTrees(texts, vocab=300),
}


@pytest.mark.repeats(20)
@every_pair(strategy=STRATEGIES, drafts=DRAFTERS, temperature=[0.0, 0.8], batch=[1, 5])
def test_state_and_text_after_every_step(target, plain, strategy, drafts, temperature, batch):
    sent, results = plain[temperature]
    rollback = ("gdn-rollback", {"strategy": strategy})
    run = Run(
        target,
        [DRAFTERS[drafts](texts_by_name(sent, results))],
        rollback=rollback,
        max_sequences=batch,
        prefill_chunk=32,
    )
    results_here = finish_checked(run, sent)
    assert [r.tokens for r in results_here] == [r.tokens for r in results]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_drafts_longer_than_the_snapshots(target, plain, n):
    sent, results = plain[0.8]
    for drafter in ("all-right", "trees"):
        method = DRAFTERS[drafter](texts_by_name(sent, results))
        run = Run(target, [method], rollback=("gdn-rollback", {"strategy": "snapshot", "n": n}), max_sequences=2)
        assert [r.tokens for r in finish_checked(run, sent)] == [r.tokens for r in results]


def test_a_restored_snapshot_is_no_copy(target):
    """The slot points at the traced state; the pool is neither grown nor written."""
    request = requests(0.0)[2]
    text = {"a": [*request.prompt, *Run(target).generate(request).result.tokens]}
    run = Run(target, [Oracle(text, vocab=300)], rollback=("gdn-rollback", {"strategy": "snapshot"}))
    seq = run.submit(Request(list(request.prompt), max_tokens=20, name="a"))
    places = []
    while run.busy:
        run.step()
        places.append(seq.slot.state.recurrent.current)
    assert len(set(places)) > 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_second_turn_evaluates_its_new_tokens_and_at_most_an_interval(target, strategy):
    target.every, before = 32, target.every
    first = requests(0.0, n=40)[3]
    run = Run(target, ["ngram"], rollback=("gdn-rollback", {"strategy": strategy}))
    answer = run.generate(first).result
    second = [*first.prompt, *answer.tokens, 5, 6, 7, 8]
    result = finish_checked(run, [Request(second, max_tokens=12, name="again")])[0]
    target.every = before
    assert len(second) - 5 - result.reused <= 32
    assert result.tokens == Run(target).generate(Request(second, max_tokens=12)).result.tokens


def test_a_turn_that_parts_from_the_last_behind_a_long_answer_goes_on_from_the_prompt(target):
    """Templates leave reasoning out of the next prompt, so rows of the answer cannot be reused."""
    target.every, before = 32, target.every
    first = attrs.evolve(requests(0.0, n=150)[4], ignore_eos=True)
    run = Run(target, ["ngram"], prefill_chunk=32)
    run.generate(first).result
    second = [*first.prompt, 9, 8, 7]
    result = finish_checked(run, [Request(second, max_tokens=12, name="again")])[0]
    target.every = before
    assert result.reused == 64
    assert result.tokens == Run(target).generate(Request(second, max_tokens=12)).result.tokens


def test_checkpoints_are_bounded(target):
    target.every, before = 4, target.every
    run = Run(target)
    seq = run.submit(Request([1, 2, 3], max_tokens=120, ignore_eos=True))
    while run.busy:
        run.step()
    target.every = before
    assert len(seq.slot.checkpoints) == target.checkpoints_max
    assert max(seq.slot.checkpoints) > 100


def test_rows_have_the_same_bits_alone_in_a_chain_and_beside_others(target):
    """Bit for bit, the recurrence included: speculation cannot flip a near tie."""
    tokens = [(3 * j) % 299 for j in range(24)]
    whole, single, other = (sequence(target, tokens) for _ in range(3))
    forward(target, part(whole, 0, tokens[:9]))
    chain = forward(target, part(whole, 9, tokens[9:])).logits
    forward(target, part(single, 0, tokens[:9]), part(other, 0, tokens))
    for i in range(9, 24):
        alone = forward(target, part(single, i, tokens[i : i + 1])).logits
        assert torch.equal(alone[0], chain[i - 9])


def test_drafting_without_an_owner_is_refused_before_loading(monkeypatch):
    monkeypatch.setattr("spec_core.assembly.assemble.discover_plugins", lambda kinds: [])
    bare = load(tiny_hybrid(), weights=False)
    assert bare.executor is None
    with pytest.raises(Refused, match="'recurrent' state; it needs one owner"):
        Run(bare, ["ngram"])


@pytest.mark.parametrize(
    ("kind", "need"),
    [("hybrid", "snapshot 0.6 MiB"), ("kimi-linear", "snapshot 0.1 MiB"), ("lfm2", "snapshot 0.0 MiB")],
    indirect=["kind"],
)
def test_memory_is_said_and_refused_before_it_is_taken(target, need):
    from spec_core.assembly.assemble import check_plugins

    chosen = check_plugins(target, ["ngram"], None, "gdn-rollback", {})
    (owner,) = (c for c in chosen if c.name == "gdn-rollback")
    assert need in owner.compat.notes[0]
    with pytest.raises(Refused, match="snapshot needs") as refused:
        check_plugins(target, ["ngram"], None, ("gdn-rollback", {"strategy": "snapshot", "n": 1_000_000_000}), {})
    assert "strategy=replay" in str(refused.value.hint)


METHODS = {
    "ngram": ("ngram", {"p_min": 0.0, "n_min": 1}),
    "suffix": ("suffix", {"p_min": 0.0, "draft_max": 5}),
    "suffix-tree": ("suffix", {"p_min": 0.0, "draft_max": 5, "width": 3}),
    "recycling": ("recycling", {"p_min": 0.0, "draft_max": 3, "width": 1}),
    "recycling-tree": ("recycling", {"p_min": 0.0, "draft_max": 3, "nodes_max": 7}),
    "draft-model": ("draft-model", {"file": str(tiny_gguf(1)), "p_min": 0.0, "draft_max": 3}),
    "mtp": ("mtp", {"p_min": 0.0, "draft_max": 3}),
}


HEADS = ("eagle3", "eagle3-tree", "dflash")


@pytest.mark.repeats(30)
@pytest.mark.slow
@every_pair(strategy=STRATEGIES, method=[*METHODS, *HEADS], temperature=[0.0, 0.8], batch=[1, 5])
def test_state_and_text_with_every_method(target, kind, repeated_texts, strategy, method, temperature, batch):
    if method == "mtp" and kind not in ("hybrid", "nemotron_h_moe"):
        pytest.skip("it has no layer that predicts further ahead")
    sent = repeating(temperature)
    rollback = ("gdn-rollback", {"strategy": strategy, "n": 5})
    drafter = head(method, kind) if method in HEADS else METHODS[method]
    checked = finish_checked(Run(target, [drafter], rollback=rollback, max_sequences=batch, prefill_chunk=32), sent)
    assert [r.tokens for r in checked] == repeated_texts[temperature]
    assert sum(r.stats["drafted"] for r in checked) > 0


@pytest.fixture(scope="module")
def repeated_texts(target):
    """Plain texts of ``repeating`` by temperature."""
    return {t: [Run(target).generate(r).result.tokens for r in repeating(t)] for t in (0.0, 0.8)}


def repeating(temperature: float, n: int = 24) -> list[Request]:
    """Prompts that say the same several times, for methods that look up."""
    sampling = Sampling(temperature=temperature, top_k=8)
    prompts = [[(5 * i + j % (3 + i)) % 299 for j in range(9 + 4 * i)] for i in range(5)]
    return [Request(p, max_tokens=n, name=f"{i}", seed=i, sampling=sampling) for i, p in enumerate(prompts)]


def test_states_of_kept_texts_count_as_rows():
    """A short text of a hybrid takes the memory of its states, whatever the number of its rows."""
    target = load(tiny_hybrid())
    run = Run(target, settings=RunSettings(max_sequences=1, cache_tokens=3 * target.state_rows))
    for first in range(12):
        run.generate([first, 3, 5], max_tokens=2).result
    kept = [slot for slot in run._scheduler.slots if slot.state is not None]

    assert target.state_rows > 64 and 1 < len(kept) <= 3 and all(slot.reserved > target.state_rows for slot in kept)
