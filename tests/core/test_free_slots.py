"""Free slots are found by the beginning of a prompt, dropped oldest first, and count as what is reserved for them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from spec_core import Request, Run, load
from spec_core.contract.sequence import Slot
from spec_core.loop.free_slots import ROWS_MIN, FreeSlots, common_prefix


def slot(tokens, salt="", reserved=0):
    return Slot(tokens=list(tokens), evaluated=len(tokens), salt=salt, reserved=reserved)


def naive(slots, salt, tokens):
    """{slot: length of the common prefix}, where there is one."""
    by_length = {}
    for one in slots:
        n = 0
        for a, b in zip(one.tokens, tokens, strict=False):
            if a != b:
                break
            n += 1
        if n and one.salt == salt:
            by_length[one] = n
    return by_length


def test_prefixes_are_those_of_a_search_through_all():
    rng = random.Random(0)
    free, slots = FreeSlots(), []
    for _ in range(600):
        action = rng.random()
        if action < 0.5 or not slots:
            tokens = [rng.choice([-1, 0, 1, 2]) for _ in range(rng.randrange(9))]
            slots.append(slot(tokens, rng.choice("ab"), rng.choice([0, 100])))
            free.add(slots[-1])
        elif action < 0.7:
            free.remove(slots.pop(rng.randrange(len(slots))))
        query, salt = [rng.choice([-1, 0, 1, 2]) for _ in range(rng.randrange(9))], rng.choice("abc")
        order = list(free.by_prefix(salt, query))

        assert {one: length for length, one in order} == naive(slots, salt, query)
        assert [length for length, _ in order] == sorted((length for length, _ in order), reverse=True)
        assert list(free) == slots and len(free) == len(slots)
        assert free.rows == sum(max(one.evaluated, one.reserved, ROWS_MIN) for one in slots)


def test_a_search_looks_at_the_slots_that_share_something():
    """Not at the thousands that do not."""
    free = FreeSlots()
    for i in range(5_000):
        free.add(slot([i, 1, 2]))

    assert [one.tokens for _, one in free.by_prefix("", [77, 1, 9])] == [[77, 1, 2]]


def test_rows_are_counted_as_they_were_when_the_slot_came():
    free, one = FreeSlots(), slot([1, 2], reserved=128)
    free.add(one)
    one.reserved = 256
    free.remove(one)

    assert free.rows == 0


@pytest.mark.parametrize("n", [0, 1, 7, 64, 1000])
def test_common_prefix_of_any_length(n):
    one = [*range(n), 5, 6]

    assert common_prefix(one, [*range(n), 7, 6]) == n
    assert common_prefix(one, one) == common_prefix(one, [*one, 1]) == len(one)


@pytest.mark.parametrize("model", ["zoo:pico", "zoo:pico-hybrid"])
def test_many_short_texts_of_their_own_salts_take_what_the_cache_may_have(model):
    """A slot counts with the rows reserved for it, not with its evaluated rows; of a hybrid its states count too."""
    target: Any = load(model)
    room = 2_000 + 30 * target.state_rows
    with Run(target, max_sequences=1, cache_tokens=room) as run:
        for i in range(60):
            run.generate(Request([5, 6, 7], max_tokens=1, cache_salt=f"user {i}")).result
        reserved = [one.reserved for one in run.free_slots]

    assert sum(reserved) <= room and min(reserved) > 3 + target.state_rows
    assert len(reserved) > 20


def test_a_long_salt_is_kept_as_its_hash():
    with Run(load("zoo:pico"), max_sequences=2) as run:
        reused = [
            run.generate(Request([5, 6, 7, 8], max_tokens=2, cache_salt=salt)).result.reused
            for salt in ("x" * 100_000, "x" * 99_999, "x" * 100_000, "\ud800" * 100)
        ]
        salts = {one.salt for one in run.free_slots}

    assert reused == [0, 0, 3, 0] and {len(salt) for salt in salts} == {64}
