"""Several sequences begin with the rows of one, and rows of ended sequences stay under their bound."""

from __future__ import annotations

import pytest

from spec_core import Request, Run, Sampling, load

PROMPT = list(range(300, 560))
METHODS = {
    "zoo:pico": ([], ["ngram"], ["suffix"], ["recycling"], ["draft-model"], ["eagle3"], ["dflash"]),
    "zoo:pico-hybrid": ([], ["ngram"], ["mtp"], ["draft-model"]),
}


@pytest.fixture(scope="module", params=METHODS)
def model(request):
    return request.param, load(request.param)


def ask(run, prompt, **more):
    return run.generate(Request(prompt, max_tokens=12, ignore_eos=True, **more))


def alone(target, prompt):
    with Run(target) as run:
        return ask(run, prompt).result.tokens


def test_a_prefix_that_is_in_use_is_shared_and_texts_are_those_of_a_run_alone(model):
    """The second begins while the first runs, and a third while both do; then the first conversation goes on."""
    name, target = model
    prompts = [[*PROMPT, *end] for end in ([7, 8, 9], [10, 11], [12])]
    for methods in METHODS[name]:
        with Run(target, methods, max_sequences=3) as run:
            first = ask(run, prompts[0])
            next(first)
            others = [ask(run, prompt) for prompt in prompts[1:]]
            results = [generation.result for generation in (first, *others)]
            again = ask(run, [*prompts[0], *results[0].tokens, 20, 21]).result

        assert [r.tokens for r in results] == [alone(target, prompt) for prompt in prompts], methods
        assert again.tokens == alone(target, [*prompts[0], *results[0].tokens, 20, 21]), methods
        assert [r.reused > 150 for r in results] == [False, True, True], methods
        assert again.reused > 190, methods


def test_another_conversation_does_not_take_the_rows_of_one_that_there_is_room_for(model):
    """A, B with the same beginning, A again: with room for both, both conversations are found whole."""
    _, target = model
    a, b = [*PROMPT, *range(600, 700)], [*PROMPT, *range(800, 900)]
    for kept, whole in ((0, False), (2000 + 4 * target.state_rows, True)):
        with Run(target, ["ngram"], max_sequences=1, cache_tokens=kept) as run:
            texts = [ask(run, prompt).result for prompt in (a, b, a, b)]

        assert [r.tokens for r in texts] == 2 * [alone(target, a), alone(target, b)]
        assert [r.reused > 340 for r in texts] == [False, False, whole, whole]
        assert texts[1].reused > 190


def test_rows_beyond_the_bound_are_dropped_oldest_first(model):
    _, target = model
    prompts = [[900 + i, *PROMPT[i:]] for i in range(4)]
    with Run(target, max_sequences=1, cache_tokens=700 + 2 * target.state_rows) as run:
        for prompt in prompts:
            ask(run, prompt).result
        slots = list(run._scheduler.slots)
        kept = [slot.tokens[0] for slot in slots]
        again = [ask(run, prompt).result.reused > 150 for prompt in (prompts[3], prompts[0])]

    assert kept == [902, 903]
    assert again == [True, False]


def test_requests_of_another_salt_share_nothing(model):
    _, target = model
    with Run(target, max_sequences=2) as run:
        results = [ask(run, PROMPT, cache_salt=salt).result for salt in ("a", "b", "a")]

    assert [r.reused > 150 for r in results] == [False, False, True]
    assert len({tuple(r.tokens) for r in results}) == 1


def test_a_prompt_that_is_asked_for_several_times_at_once_is_evaluated_once(model):
    """The first evaluates it, in several steps; the others wait for its rows, and their texts are their own."""
    name, target = model
    for methods in METHODS[name]:
        keywords = [{"seed": i, "sampling": Sampling(temperature=0.8)} for i in range(4)]
        with Run(target, methods, max_sequences=3, prefill_chunk=64) as run:
            results = [g.result for g in [ask(run, PROMPT, **more) for more in keywords]]
        with Run(target, reuse=False) as plain:
            assert [r.tokens for r in results] == [ask(plain, PROMPT, **more).result.tokens for more in keywords], (
                methods
            )
        assert [r.reused >= 256 for r in results] == [False, True, True, True], methods


@pytest.mark.parametrize("other", [{"cache_salt": "b"}, {"reuse": False}, {"prompt": [8, *PROMPT]}], ids=str)
def test_a_prompt_waits_only_for_rows_that_it_can_use(model, other):
    _, target = model
    with Run(target, max_sequences=2, prefill_chunk=64) as run:
        seqs = [run.submit(Request(PROMPT, max_tokens=2)), run.submit(Request(**{"prompt": PROMPT, **other}))]
        run.step()
        assert run.running == seqs


def test_a_prompt_does_not_wait_for_one_whose_rows_its_method_does_not_get():
    with Run(load("zoo:pico"), "ngram", max_sequences=2, prefill_chunk=64) as run:
        plain, drafted = run.submit(Request(PROMPT, methods=())), run.submit(Request(PROMPT))
        run.step()
        assert run.running == [plain, drafted]


def test_a_prompt_whose_first_request_is_cancelled_is_evaluated_by_the_next(model):
    _, target = model
    with Run(target, max_sequences=2, prefill_chunk=64) as run:
        first, second = (run.submit(Request(PROMPT, max_tokens=12, ignore_eos=True)) for _ in range(2))
        run.step()
        assert (run.running, run.waiting) == ([first], [second])
        run.cancel(first)
        while run.busy:
            run.step()
        assert run.take(second).tokens == alone(target, PROMPT)


def test_a_head_drafts_from_copied_rows_as_from_its_own():
    """DFlash keeps keys and values of its own; texts that begin alike and differ later write to different rows."""
    target, prompts = load("zoo:pico"), [[*PROMPT, *end] for end in ([7, 8, 9], [10, 11])]
    lengths = []
    for reuse in (True, False):
        with Run(target, "dflash", max_sequences=2, reuse=reuse, plugin_settings={"dflash": {"p_min": 0.0}}) as run:
            first = ask(run, prompts[0])
            next(first)
            both = [ask(run, prompts[1]), first]
            lengths.append([(g.result.stats["drafted"], g.result.stats["accepted"]) for g in both])
    assert lengths[0] == lengths[1]
