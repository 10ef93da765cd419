"""A cache salt separates users: no request gets rows, or drafts, that come from a text with another salt.

``reused`` and the drafts of a request are what a user could notice; each test is about one place that compares salts.
"""

from __future__ import annotations

import pytest

from spec_core import Request, Run, load

PROMPT = [1 + i % 40 for i in range(200)]
OTHER = [41 + i % 40 for i in range(200)]
SALTS = ["a", "A", "a ", "", "\0", "b" * 64, "b" * 65, "b" * 66, "c" * 64 + "1", "c" * 64 + "2", "\ud800" * 100]


@pytest.fixture(scope="module", params=["zoo:pico", "zoo:pico-hybrid"])
def target(request):
    return load(request.param)


def finish(run, seq):
    while seq.finish is None:
        run.step()
    return run.take(seq)


def ask(run, prompt, salt, **more):
    return finish(run, run.submit(Request(prompt, max_tokens=2, cache_salt=salt, **more)))


@pytest.mark.parametrize("salt", ["", "b", "a" * 65])
def test_rows_of_a_running_text_are_copied_for_its_salt_alone(target, salt):
    with Run(target, max_sequences=3, prefill_chunk=300) as run:
        first = run.submit(Request(PROMPT, max_tokens=60, cache_salt="a", ignore_eos=True))
        while first.output_position < 3:
            run.step()
        other, own = (ask(run, PROMPT, one) for one in (salt, "a"))
        assert first.finish is None

    assert (other.reused, own.reused > 100) == (0, True)


@pytest.mark.parametrize("salt", ["", "b", "a" * 65])
def test_a_waiting_prompt_waits_for_its_salt_alone(target, salt):
    with Run(target, max_sequences=3, prefill_chunk=64) as run:
        first, other, own = (run.submit(Request(PROMPT, max_tokens=2, cache_salt=one)) for one in ("a", salt, "a"))
        run.step()
        assert run.running == [first, other]
        assert finish(run, other).reused == 0 and finish(run, own).reused > 100


@pytest.mark.parametrize("cache_tokens", [0, 4000])
def test_every_salt_has_free_slots_of_its_own(target, cache_tokens):
    with Run(target, max_sequences=len(SALTS), cache_tokens=cache_tokens) as run:
        first = [ask(run, PROMPT, salt).reused for salt in SALTS]
        again = [ask(run, PROMPT, salt).reused > 100 for salt in SALTS]

    assert (first, again) == ([0] * len(SALTS), [True] * len(SALTS))


def test_a_slot_that_another_salt_takes_belongs_to_that_salt(target):
    with Run(target, max_sequences=1) as run:
        ask(run, PROMPT, "a")
        ask(run, OTHER, "b")
        assert ask(run, OTHER, "a").reused == 0
        ask(run, OTHER, "b")
        assert ask(run, OTHER, "b").reused > 100


def test_a_slot_of_copied_rows_belongs_to_the_salt_of_its_text(target):
    """A text with the same beginning gets a copy of the rows; both slots are of its salt."""
    longer = [*PROMPT, *OTHER[:80]]
    with Run(target, max_sequences=4, cache_tokens=4000) as run:
        ask(run, longer, "a")
        ask(run, PROMPT, "a")
        assert {slot.salt for slot in run.free_slots} == {"a"}
        assert (ask(run, longer, "b").reused, ask(run, longer, "a").reused > 100) == (0, True)


METHODS = ["ngram:shared=true", "suffix:shared=true", "recycling:shared=true"]


TEXT = "def add(first, second):\n    return first + second\n\n\ndef add(fir"


def drafts_after(method, salt, *salts):
    """Drafts of a text with a salt, after the same text with these salts."""
    drafts = []
    with Run(load("zoo:pico"), method, max_sequences=1, reuse=False) as run:
        for before in salts:
            run.generate(TEXT, max_tokens=60, cache_salt=before, ignore_eos=True).result
        run.observe(lambda step: drafts.extend(part.draft and part.draft.ids for part in step.parts))
        run.generate(TEXT[-12:], max_tokens=60, cache_salt=salt, ignore_eos=True).result
    return drafts


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("salt", "other"), [("b", ""), ("b", "a"), ("", "a")])
def test_no_drafter_drafts_from_texts_of_another_salt(method, salt, other):
    """Drafts, which a request can trace, are those of a run without the other text."""
    alone = drafts_after(method, salt)

    assert drafts_after(method, salt, other) == alone and any(alone)


@pytest.mark.parametrize("method", METHODS)
def test_a_shared_memory_is_shared_without_a_salt(method):
    """Otherwise the test above could not fail."""
    assert drafts_after(method, "", "") != drafts_after(method, "")
