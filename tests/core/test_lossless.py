"""The text is the target's own: equal to plain decoding, token for token, whatever is drafted and however it is run.

The reference of every sequence is that sequence alone, in a fresh run, without a method.
"""

from __future__ import annotations

import random

import pytest
from toys import DRAFTERS, STRATEGIES, WARPERS, Watcher, drafter, finish_checked, plain, texts, together, toy_run

from spec_core import Request, Run, Sampling
from spec_core.testing import ToyRollback, ToyTarget
from tests.support.pairs import every_pair

TEMPERATURES = (0.0, 0.8, 1.5)
CUTS = {
    "one-row-at-a-time": {"max_batched_tokens": 1, "prefill_chunk": 1},
    "few-rows": {"max_batched_tokens": 5, "prefill_chunk": 3},
    "short-drafts": {"draft_max": 2, "prefill_chunk": 2},
    "two-slots": {"max_sequences": 2, "prefill_chunk": 4, "draft_max": 3},
    "small-trees": {"nodes_max": 3, "max_batched_tokens": 9},
    "no-reuse": {"reuse": False, "max_sequences": 3},
}


def ragged_requests(seed: int, temperature: float, count: int = 5) -> list[Request]:
    """Requests of different prompt lengths, output lengths, seeds and warpers."""
    rng = random.Random(seed)
    warpers = list(WARPERS.values())
    return [
        Request(
            [rng.randrange(48) for _ in range(rng.choice([1, 2, 4, 5, 9, 17]))],
            max_tokens=rng.randint(1, 22),
            seed=rng.randrange(2**64),
            sampling=Sampling(temperature=temperature, **warpers[(seed + i) % len(warpers)]),
            name=f"{seed}-{i}",
        )
        for i in range(count)
    ]


@pytest.mark.repeats(15)
@pytest.mark.parametrize("temperature", TEMPERATURES, ids=lambda t: f"T{t}")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_batch_gives_each_sequence_its_plain_text(kind, strategy, temperature):
    """Five sequences of different lengths and warpers, drafted together: each text equals that of the request alone."""
    for seed in range(2):
        requests = ragged_requests(seed, temperature)
        known = texts(requests)

        results = together(toy_run(drafter(kind, known, seed), strategy), requests)

        assert [known[r.name][len(r.prompt) :] for r in requests] == [r.tokens for r in results]


@every_pair(warper=WARPERS, kind=DRAFTERS, temperature=TEMPERATURES)
def test_every_warper_sees_the_drafted_prefix_of_its_row(temperature, kind, warper):
    """One sequence: penalties count the tokens that the draft assumes, so the choice is that of plain decoding."""
    for seed in range(2):
        request = Request(
            [5, seed, 8],
            max_tokens=24,
            seed=seed,
            sampling=Sampling(temperature=temperature, **WARPERS[warper]),
            name="a",
        )
        known = texts([request])

        result = together(toy_run(drafter(kind, known, seed)), [request])[0]

        assert known["a"][3:] == result.tokens


@every_pair(kind=DRAFTERS, cut=CUTS, strategy=STRATEGIES)
def test_the_shape_of_a_step_changes_no_text(kind, cut, strategy):
    """Chunked prompts, few rows, few slots, short drafts: the division of work does not change the text."""
    requests = ragged_requests(11, 0.9)
    known = texts(requests)

    results = together(toy_run(drafter(kind, known), strategy, **CUTS[cut]), requests)

    assert [known[r.name][len(r.prompt) :] for r in requests] == [r.tokens for r in results]


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_late_joiners_and_cancellations_change_nobody_elses_text(strategy, kind):
    """Sequences join and leave during the run; the others get their plain text, cancelled ones a prefix of it."""
    for seed in range(3):
        rng = random.Random(seed)
        requests = ragged_requests(100 + seed, 0.8 * (seed % 2), count=8)
        known = texts(requests)
        run = toy_run(drafter(kind, known, seed), strategy, prefill_chunk=3, max_batched_tokens=24, max_sequences=4)
        waiting, seqs = list(requests), []
        while run.busy or waiting:
            if waiting and rng.random() < 0.5:
                seqs.append(run.submit(waiting.pop()))
            if seqs and rng.random() < 0.08:
                run.cancel(rng.choice(seqs))
            run.step()
        for seq in seqs:
            result = run.take(seq)
            expected = known[seq.name][seq.prompt_len :]
            assert expected[: len(result.tokens)] == result.tokens
            assert len(result.tokens) == len(expected) or result.finish_reason == "cancelled"


@pytest.mark.repeats(10)
@pytest.mark.parametrize("seed", range(40))
def test_random_schedules_keep_text_state_and_rows(seed):
    """Everything at once, at random; after every step all states equal fresh forwards, all rows come once."""
    rng = random.Random(seed)
    temperature = rng.choice(TEMPERATURES)
    requests = ragged_requests(1000 + seed, temperature, count=rng.choice([1, 5]))
    known = texts(requests)
    watcher = Watcher(hidden=(0, 1, 2))
    settings = {
        "draft_max": rng.choice([1, 2, 5, 16]),
        "nodes_max": rng.choice([2, 8, 64]),
        "prefill_chunk": rng.choice([1, 3, 256]),
        "max_batched_tokens": rng.choice([2, 7, 1024]),
        "max_sequences": rng.choice([1, 2, 8]),
    }
    methods = [drafter(rng.choice(DRAFTERS), known, seed), watcher]
    run = toy_run(methods, rng.choice(STRATEGIES), **settings)
    seqs = [run.submit(r) for r in requests]

    finish_checked(run)

    for seq in seqs:
        assert known[seq.name] == seq.tokens
        watcher.check(run.target, seq)


@pytest.mark.parametrize("seed", range(60))
def test_many_seeds_of_one_prompt(seed):
    """Seed-coupled sampling: the text of a seed is the same with trees as without anything."""
    request = Request([9, 9, 4], max_tokens=16, seed=seed * 7919, sampling=Sampling(temperature=1.0), name="a")
    known = texts([request])

    result = together(toy_run(drafter("trees", known, seed), STRATEGIES[seed % 3]), [request])[0]

    assert known["a"][3:] == result.tokens


def test_every_right_draft_is_accepted():
    """A perfect drafter loses nothing: K drafts and the target's own token, in every full step."""
    request = Request([1, 2, 3], max_tokens=21, sampling=Sampling(temperature=0.8), name="a")
    run = toy_run(drafter("all-right", texts([request])))

    stats = run.generate(request).result.stats

    # the first token comes from the prompt; then 4 steps of 4 drafts and one more
    assert (stats["steps"], stats["emitted"], stats["drafted"], stats["accepted"]) == (4, 20, 16, 16)


def test_no_wrong_draft_is_accepted_and_every_step_emits_one():
    """A step always makes progress: with nothing accepted, the target's own token is emitted."""
    request = Request([1, 2, 3], max_tokens=9, name="a")
    run = toy_run(drafter("none-right", texts([request])))

    stats = run.generate(request).result.stats

    assert (stats["steps"], stats["emitted"], stats["accepted"]) == (8, 8, 0)


def test_the_order_of_registration_changes_no_text():
    """The order of rollback plugins and learners does not change text and state."""
    requests = ragged_requests(5, 0.8)
    known = texts(requests)
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        plugins = [drafter("trees", known), ("chain", drafter("chains", known)), ("owner", ToyRollback("replay"))]
        run = Run(ToyTarget(), methods=[plugins[i] for i in order])
        assert [known[r.name][len(r.prompt) :] for r in requests] == [r.tokens for r in together(run, requests)]


def test_parallel_samples_of_one_seed_differ_by_stream():
    """Streams index parallel samples: same seed and prompt, other noise."""
    results = [
        plain(Request([1, 2, 3], max_tokens=12, noise_stream=s, sampling=Sampling(temperature=1.5))).tokens
        for s in (0, 1, 0)
    ]

    assert results[0] == results[2] != results[1]


def test_a_continued_generation_goes_on_with_the_noise():
    """``offset`` continues the count of output positions: the second half of a text can be generated later."""
    sampling = Sampling(temperature=1.2)
    whole = plain(Request([4, 4, 4], max_tokens=20, seed=3, sampling=sampling)).tokens

    rest = plain(Request([4, 4, 4, *whole[:8]], max_tokens=12, seed=3, sampling=sampling, offset=8)).tokens

    assert whole[8:] == rest


@pytest.mark.parametrize("temperature", [1e-310, 1e-30, 1e-6])
def test_the_smallest_temperatures_are_greedy(temperature):
    """Dividing by a tiny temperature must not make two logits infinite."""
    greedy = plain(Request([1, 2, 3], max_tokens=12)).tokens

    for cut in ({}, {"top_p": 0.9}, {"top_k": 3, "min_p": 0.1}):
        sampling = Sampling(temperature=temperature, **cut)
        assert greedy == plain(Request([1, 2, 3], max_tokens=12, sampling=sampling)).tokens
