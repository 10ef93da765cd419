"""The same request twice: what is sent, in which order, and the words about the texts and speeds."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from tests.support.chat_page import chat, click, count, put, reload, send, text_of, texts_of
from tests.support.page_server import ending, step

WORDS = [f"word{i} " for i in range(20)]
SKIPPED = "document.querySelector('.skip')?.disabled"
DONE = f"{SKIPPED} && /one run each|Too short/.test(document.querySelector('.verdict')?.textContent)"
FINISHED = "document.querySelectorAll('.lane.done').length"


def run(body, plain=50.0, drafted=100.0, words=WORDS, pause=0.0):
    """An answer of twenty tokens: two per step with drafts, one without."""
    is_plain = body["speculative"].get("method") == "none"
    for at in range(0, len(words), 1 if is_plain else 2):
        time.sleep(pause)
        yield step(words[at]) if is_plain else step((words[at], "ngram"), words[at + 1])
    yield from ending("length", len(words), speed=plain if is_plain else drafted)


def race(tab) -> str:
    """Start a race and skip its replay; returns the verdict."""
    click(tab, ".compare")
    tab.wait(f"document.querySelectorAll('.lane').length === 2 && ({DONE} || !{SKIPPED})")
    if not tab.ask(DONE):
        tab.ask("document.querySelector('.skip').click()")
    tab.wait(DONE)
    return text_of(tab, ".verdict")


def test_both_runs_are_the_same_request_one_after_the_other(tab, pages):
    pages.answer = run
    put(tab, temperature="0.8", system="Be brief.", top_p="0.9")
    chat(tab, "first")
    chat(tab, "second", 4)
    verdict = race(tab)
    first, other = pages.bodies[-2:]

    assert pages.most == 1
    assert {first["speculative"].get("method"), other["speculative"].get("method")} == {None, "none"}
    assert {**first, "speculative": 0} == {**other, "speculative": 0}
    assert first["seed"] == 7 and first["temperature"] == 0.8 and first["top_p"] == 0.9
    assert first["messages"][0]["content"] == "Be brief." and first["messages"][-1]["content"] == "second"
    speeds = "all methods 100 tokens/s, no drafts 50.0 tokens/s: 2.00 times as fast, one run each. "
    assert verdict == f"= Equal text: all 20 tokens. {speeds}"
    assert texts_of(tab, ".lane .speed") == ["100 tokens/s · 0.18 s", "50.0 tokens/s · 0.38 s"]
    assert count(tab, ".lane:first-child .drafted") == 10 and count(tab, ".lane:last-child .drafted") == 0


def test_the_order_is_random(tab, pages):
    pages.answer = run
    chat(tab)
    race(tab)
    for value in (0.1, 0.9, 0.1):
        tab.ask(f"Math.random = () => {value}")
        race(tab)
    firsts = [pages.bodies[at]["speculative"].get("method") for at in (3, 5, 7)]
    assert firsts == [None, "none", None]


def test_an_earlier_answer_runs_with_what_came_before_it(tab, pages):
    pages.answer = run
    chat(tab, "first")
    chat(tab, "second", 4)
    tab.ask("document.querySelector('.compare').click()")
    tab.wait(DONE)
    assert [m["content"] for m in pages.bodies[-1]["messages"]] == ["first"]


@pytest.mark.parametrize("may_differ", [False, True])
@pytest.mark.parametrize("temperature", ["0", "0.7", ""])
def test_other_texts_are_reported_or_excused_as_the_server_says(tab, pages, may_differ, temperature):
    """Where the temperature is the server's, so is the promise."""
    other = [*WORDS[:10], "else ", *WORDS[11:]]
    pages.answer = lambda body: run(body, words=other if body["speculative"].get("method") else WORDS)
    drawn = temperature != "0"
    pages.props["default_generation_settings"]["params"]["temperature"] = 0.7
    pages.props["speculative"]["may_differ"] = {"greedy": may_differ and not drawn, "sampled": may_differ and drawn}
    reload(tab)
    put(tab, temperature=temperature)
    chat(tab)
    verdict = race(tab)

    where = len("".join(WORDS[:10]))
    excuse = "as they may with this rule or engine" if may_differ else "which must not be: please report it"
    assert verdict.startswith(f"≠ The texts differ after {where} characters, {excuse}. ")
    assert "".join(texts_of(tab, ".lane:last-child .differs")) == "".join(other[10:]).rstrip()
    assert texts_of(tab, ".lane:first-child .differs")[0].startswith("word10")


def test_equal_text_that_is_not_promised_says_so(tab, pages):
    pages.answer = run
    pages.props["speculative"]["may_differ"] = {"greedy": True, "sampled": True}
    reload(tab)
    chat(tab)
    assert race(tab).startswith("= Equal text: all 20 tokens. With this rule or engine it may differ. ")


def test_a_longer_text_is_no_equal_text(tab, pages):
    pages.answer = lambda body: run(body, words=WORDS[:10] if body["speculative"].get("method") else WORDS)
    chat(tab)
    assert race(tab).startswith("≠ The texts differ after 60 characters")


def test_methods_that_learn_from_other_texts_do_not_learn_from_the_other_run(tab, pages):
    pages.answer = run
    pages.props["speculative"]["shares_learning"] = True
    reload(tab)
    chat(tab)
    race(tab)
    salts = [body.get("cache_salt") for body in pages.bodies]
    assert salts[0] is None and salts[1] and salts[2] and salts[1] != salts[2]


def test_two_methods_of_the_server_race(tab, pages):
    pages.answer = run
    chat(tab)
    race(tab)
    options = [["all methods", "ngram", "suffix", "no drafts"]] * 2
    lists = "[...document.querySelectorAll('.race select')].map(s => [...s.options].map(o => o.textContent))"
    assert tab.ask(lists) == options
    tab.ask("document.querySelectorAll('.race select').forEach((s, i) => (s.value = ['ngram', 'suffix'][i]))")
    click(tab, ".controls button", "Race")
    tab.wait("/ngram .* suffix .*one run each/.test(document.querySelector('.verdict').textContent)")
    assert {body["speculative"].get("method") for body in pages.bodies[-2:]} == {"ngram", "suffix"}


def test_more_races_of_the_same_two_give_medians(tab, pages):
    speeds = iter([100.0, 50.0, 300.0, 50.0, 200.0, 50.0])
    tab.ask("Math.random = () => 0.1")
    chat(tab)
    pages.answer = lambda body: [step("a"), step("b"), *ending("stop", speed=next(speeds))]
    race(tab)
    for count_of_runs in (2, 3):
        click(tab, ".controls button", "Race")
        tab.wait(f"/medians of {count_of_runs} runs each/.test(document.querySelector('.verdict').textContent)")
    assert "all methods 200 tokens/s, no drafts 50.0 tokens/s: 4.00 times as fast" in text_of(tab, ".verdict")


def test_no_text_is_drawn_while_a_run_is_measured_and_the_replay_takes_the_measured_time(tab, pages):
    pages.answer = lambda body: run(body, plain=20.0, drafted=40.0, pause=0.02)
    chat(tab)
    click(tab, ".compare")
    tab.wait("/Run 2 of 2/.test(document.querySelector('.verdict')?.textContent)")
    assert texts_of(tab, ".lane-text") == ["", ""]
    tab.wait("/Replayed/.test(document.querySelector('.verdict').textContent)")
    begun = time.monotonic()
    tab.wait(f"{FINISHED} === 1")
    assert tab.ask("document.querySelector('.lane:first-child').classList.contains('done')") is True
    shares = tab.ask("[...document.querySelectorAll('.lane progress')].map(p => p.value / p.max)")
    assert shares[0] == 1 and 0.3 < shares[1] < 0.9
    tab.wait(DONE)
    assert 0.4 < time.monotonic() - begun < 5
    click(tab, ".controls button", "Replay")
    assert tab.ask(FINISHED) < 2
    tab.wait(DONE)


def test_less_motion_shows_the_end_at_once(tab, pages):
    pages.answer = lambda body: run(body, plain=1.0, drafted=2.0)
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    chat(tab)
    click(tab, ".compare")
    tab.wait(DONE, 5)


def test_another_request_at_the_same_time_makes_speeds_unreliable(tab, pages):
    pages.answer, pages.is_busy = run, True
    chat(tab)
    assert race(tab).endswith("Another request ran at the same time: the speeds are unreliable.")


def test_a_race_can_be_stopped_and_failed_and_blocks_answers_meanwhile(tab, pages):
    pages.answer = run
    chat(tab)
    pages.answer = lambda body: run(body, pause=0.1)
    click(tab, ".compare")
    tab.wait("/Run/.test(document.querySelector('.verdict')?.textContent)")
    assert tab.ask("['send', 'stop'].map(id => document.getElementById(id).disabled)") == [True, False]
    send(tab, "two")
    assert count(tab, ".turn") == 2
    tab.press("Escape")
    tab.wait("document.querySelector('.verdict').textContent === 'The race was stopped.'")
    assert tab.ask("['send', 'stop'].map(id => document.getElementById(id).disabled)") == [False, True]

    pages.status = 429
    click(tab, ".controls button", "Race")
    tab.wait("document.querySelector('.verdict').textContent === 'The race failed: refused by the test'")
    pages.status, pages.answer = 200, lambda body: [step("a"), {"error": {"message": "boom"}}]
    click(tab, ".controls button", "Race")
    tab.wait("document.querySelector('.verdict').textContent === 'The race failed: boom'")
    pages.answer = lambda body: ending("stop", 0)
    click(tab, ".controls button", "Race")
    tab.wait("document.querySelector('.verdict').textContent === 'The race failed: the answer is empty.'")
    click(tab, ".controls button", "Close")
    assert count(tab, ".race") == 0


def test_a_stopped_answer_races_over_what_it_had(tab, pages):
    pages.answer = lambda body: run(body, pause=0.1)
    send(tab, "Hi")
    tab.wait("document.querySelector('.answer')?.textContent.includes('word3')")
    tab.press("Escape")
    tab.wait("document.querySelector('.compare') !== null")
    pages.answer = run
    race(tab)
    assert 4 <= pages.bodies[-1]["max_tokens"] <= 12


def test_a_plain_answer_races_against_all_methods(tab, pages):
    pages.answer = run
    put(tab, method="none")
    chat(tab)
    assert texts_of(tab, ".assistant .who") == ["model · no drafts, temperature 0"]
    assert race(tab).startswith("= Equal text: all 20 tokens. all methods 100 tokens/s, no drafts 50.0")


def test_a_single_token_is_too_short_to_be_timed(tab, pages):
    pages.answer = lambda body: [step("a"), *ending("length", 1, speed=0.0)]
    chat(tab)
    assert race(tab).endswith("Too short to be timed. ")


def test_a_server_without_methods_has_no_race(tab, pages):
    pages.props["speculative"]["types"] = []
    pages.answer = lambda body: [step("a"), *ending()]
    reload(tab)
    chat(tab)
    assert count(tab, ".compare") == 0 and "plain decoding" in text_of(tab, "#title")


def test_a_race_after_a_reload_is_of_the_same_answer(tab, pages):
    pages.answer = run
    put(tab, temperature="0.8")
    chat(tab)
    reload(tab)
    tab.wait("document.querySelector('.compare') !== null")
    race(tab)
    assert pages.bodies[-1]["seed"] == 7 and pages.bodies[-1]["temperature"] == 0.8
