"""The page with answers of every ending: what it says, follows, keeps and sends again."""

from __future__ import annotations

import time
from threading import Event as Flag

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from tests.support.chat_page import (
    chat,
    click,
    count,
    put,
    reload,
    send,
    text_of,
    texts_of,
    wait_for_answer,
)
from tests.support.page_server import ending, saying, step

ENDED, NUMBERS = ".turn:last-child .ended", ".turn:last-child .numbers"
STORED = "sessionStorage.getItem('spec-serve')"
DISABLED = "['send', 'stop'].map(id => document.getElementById(id).disabled)"
SCROLLED = "document.getElementById('log').scrollTop"


def slow(words=400, pause=0.005):
    """An answer that takes seconds, if it is not stopped."""
    for i in range(words):
        yield step(f"{i} ", ("line\n\n", "ngram"))
        time.sleep(pause)
    yield from ending(tokens=2 * words)


@pytest.mark.parametrize(
    ("events", "expected", "is_cut"),
    [
        ([step("a"), *ending("stop")], "Ended by the model", False),
        ([step("a"), *ending("length", 512)], "Cut at the limit of 512 tokens, “Max tokens”", True),
        ([step("a"), *ending("length", 100)], "Cut at the server's limit of 100 tokens", True),
        ([step("a"), *ending("length", 96, prompt=4000)], "Cut: the context of 4096 tokens is full", True),
        ([step("a"), *ending("cancelled")], "Cut by the server, which shuts down", True),
        ([step("a"), *ending("deadline")], "Cut at the server's time limit", True),
        ([step("a"), *ending("dead_end")], "Ended: dead_end", True),
        ([step("a"), {"error": {"message": "the engine failed"}}], "Failed: the engine failed", True),
    ],
)
def test_an_answer_says_how_it_ended(tab, pages, events, expected, is_cut):
    pages.answer = lambda body: events
    chat(tab)

    assert text_of(tab, ENDED) == expected
    assert (count(tab, f"{ENDED}.cut") == 1) is is_cut


def test_an_answer_that_breaks_off_keeps_what_came(tab, pages):
    def break_off(body):
        yield step("half")
        raise OSError

    pages.answer = break_off
    chat(tab)
    assert text_of(tab, ".answer") == "half"
    assert text_of(tab, ENDED) == "Failed: The connection broke off before the answer ended."


@pytest.mark.parametrize("way", ["Escape", "button"])
def test_a_stopped_answer_says_so_with_its_speed(tab, pages, way):
    pages.answer = lambda body: slow()
    send(tab, "Hi")
    tab.wait("document.querySelectorAll('.turn:last-child .block').length > 5")
    assert tab.ask("[document.getElementById('send').disabled, document.getElementById('stop').disabled]") == [
        True,
        False,
    ]
    tab.press("Escape") if way == "Escape" else click(tab, "#stop")
    wait_for_answer(tab)

    assert text_of(tab, ENDED) == "Stopped by you"
    assert " tokens/s · " in text_of(tab, NUMBERS)
    assert tab.ask("[document.getElementById('send').disabled, document.getElementById('stop').disabled]") == [
        False,
        True,
    ]


def test_statistics_say_what_was_cached(tab):
    chat(tab)
    numbers = text_of(tab, NUMBERS)
    assert "100 tokens/s · 6 tokens in" not in numbers and numbers.startswith("100 tokens/s · 2 tokens in 2 steps")
    assert "3 of 4 drafted accepted" in numbers
    assert "prompt 25 tokens, 20 of them cached, 5 evaluated in 13 ms" in numbers and "seed 7" in numbers


def test_the_text_is_followed_only_if_the_reader_is_at_its_end(tab, pages):
    tab.resize(800, 500)
    pages.answer = lambda body: slow(300)
    send(tab, "Hi")
    at_end = "(l => l.scrollHeight - l.scrollTop - l.clientHeight < 30)(document.getElementById('log'))"
    tab.wait("document.getElementById('log').scrollHeight > 1500")
    assert tab.ask(at_end)

    tab.ask("document.getElementById('log').scrollTop = 300")
    height = tab.ask("document.getElementById('log').scrollHeight")
    tab.wait(f"document.getElementById('log').scrollHeight > {height} + 600")
    assert tab.ask(SCROLLED) == 300
    wait_for_answer(tab)
    assert tab.ask(SCROLLED) == 300


def test_the_wheel_leaves_the_end_of_a_text_that_grows_and_comes_back(tab, pages):
    tab.resize(800, 500)
    pages.answer = lambda body: slow(600, 0.03)
    send(tab, "Hi")
    left = "(l => l.scrollHeight - l.scrollTop - l.clientHeight)(document.getElementById('log'))"
    tab.wait("document.getElementById('log').scrollHeight > 1500")
    wheel = {"type": "mouseWheel", "x": 400, "y": 150, "deltaX": 0}
    tab.call("Input.dispatchMouseEvent", **wheel, deltaY=-120)
    tab.wait(f"{left} > 400")
    tab.call("Input.dispatchMouseEvent", **wheel, deltaY=20000)
    tab.wait(f"{left} < 30")
    height = tab.ask("document.getElementById('log').scrollHeight")
    tab.wait(f"document.getElementById('log').scrollHeight > {height} + 200")
    assert tab.ask(left) < 100
    tab.press("Escape")
    wait_for_answer(tab)


def test_the_conversation_outlives_a_reload_and_the_key_does_not(tab, pages):
    pages.answer = lambda body: [step("Say **it**"), step((" again", "ngram"), rejected=["no"]), *ending("length", 512)]
    put(tab, key="secret-key", system="Be brief.", temperature="0.5")
    chat(tab, "first")
    tab.ask("document.getElementById('prompt').value = ''")
    before = tab.ask("document.getElementById('log').textContent")
    reload(tab)
    tab.wait("document.querySelectorAll('.turn').length === 2")

    assert tab.ask("document.getElementById('log').textContent") == before
    assert count(tab, ".answer strong") == 1 and count(tab, ".answer .drafted") == 1 and count(tab, ".rejected") == 2
    assert "secret-key" not in tab.ask("JSON.stringify(sessionStorage) + JSON.stringify(localStorage)")
    assert tab.ask("document.getElementById('key').value") == ""
    assert tab.ask("document.getElementById('system').value") == "Be brief."
    chat(tab, "second", 4)
    assert [m["content"] for m in pages.bodies[-1]["messages"]] == ["Be brief.", "first", "Say **it** again", "second"]
    assert pages.bodies[-1]["temperature"] == 0.5


def test_a_key_that_is_put_during_an_answer_leaves_the_answer_as_it_is(tab, pages):
    gate = Flag()

    def waiting(body):
        yield step("Say")
        gate.wait(20)
        yield step(" it")
        yield from ending("stop")

    pages.answer = waiting
    send(tab, "Hi")
    tab.wait("document.querySelector('.turn:last-child .answer')?.textContent === 'Say'")
    put(tab, key="secret-key")
    tab.wait("performance.getEntriesByName(new URL('props', location).href).length === 2")
    gate.set()
    wait_for_answer(tab)
    assert text_of(tab, ".turn:last-child .answer") == "Say it" and text_of(tab, ENDED) == "Ended by the model"


def test_a_message_that_the_reader_leaves_is_kept_before_its_answer_begins(tab, pages):
    def waiting(body):
        time.sleep(2)
        yield from ending()

    pages.answer = waiting
    send(tab, "Hi")
    tab.wait("!document.getElementById('stop').disabled")
    reload(tab)
    tab.wait("document.querySelectorAll('.turn').length === 2")
    assert texts_of(tab, ".message-text") == ["Hi"] and text_of(tab, ENDED) == "Cut when the page was left"


def test_an_answer_that_the_reader_leaves_is_kept_as_far_as_it_came(tab, pages):
    pages.answer = lambda body: slow()
    send(tab, "Hi")
    tab.wait("document.querySelectorAll('.turn:last-child .block').length > 5")
    reload(tab)
    tab.wait("document.querySelectorAll('.turn').length === 2")

    assert "line" in text_of(tab, ".answer") and text_of(tab, ENDED) == "Cut when the page was left"


@pytest.mark.parametrize("stored", ["{", "[]", "null", '"x"', '{"turns": 3}', '{"turns": [null, 7, {"role": "user"}]}'])
def test_a_strange_storage_is_ignored(tab, stored):
    tab.ask(f"addEventListener('pagehide', () => sessionStorage.setItem('spec-serve', {stored!r}))")
    reload(tab)
    chat(tab)
    assert text_of(tab, ".answer") == "Hello."


def test_a_conversation_that_is_too_large_is_kept_without_pictures(tab):
    filler = (
        "import('/page/conversation.js').then(m => { m.turns[0].pictures = [{ name: 'a', url: 'x'.repeat(6e6) }]; })"
    )
    chat(tab)
    tab.ask(filler)
    put(tab, temperature="1")

    assert "pictures will be lost" in text_of(tab, "#note")
    assert "Hello." in tab.ask(STORED)


def test_again_takes_the_place_of_the_last_answer(tab, pages):
    chat(tab, "first")
    chat(tab, "second", 4)
    assert count(tab, ".actions .again") == 1
    pages.answer = lambda body: saying("Other.")
    click(tab, ".again")
    tab.wait("document.querySelector('.turn:last-child .answer')?.textContent === 'Other.'")
    wait_for_answer(tab, 4)

    assert "seed" not in pages.bodies[-1]
    assert pages.bodies[-1]["messages"] == pages.bodies[-2]["messages"]
    put(tab, seed="5")
    click(tab, ".again")
    tab.wait("/Ended/.test(document.querySelector('.turn:last-child .ended')?.textContent)")
    tab.wait("document.querySelectorAll('.again').length === 1")
    assert pages.bodies[-1]["seed"] == 8


def test_again_that_is_refused_leaves_the_answer(tab, pages):
    chat(tab)
    pages.status = 503
    click(tab, ".again")
    assert tab.wait("document.getElementById('problem').textContent") == "refused by the test"
    assert texts_of(tab, ".answer") == ["Hello."]


def test_an_edited_message_replaces_what_follows(tab, pages):
    chat(tab, "first")
    chat(tab, "second", 4)
    click(tab, ".turn:first-of-type button", "Edit")
    assert tab.ask("document.getElementById('prompt').value") == "first"
    tab.press("Escape")
    assert tab.ask("document.getElementById('prompt').value") == "" and count(tab, ".turn") == 4
    click(tab, ".turn:first-of-type button", "Edit")
    tab.type(" changed")
    tab.press("Enter")
    wait_for_answer(tab)
    assert [m["content"] for m in pages.bodies[-1]["messages"]] == ["first changed"]
    assert texts_of(tab, ".message-text") == ["first changed"]


def test_an_edited_message_that_is_refused_changes_nothing(tab, pages):
    chat(tab, "first")
    chat(tab, "second", 4)
    pages.status = 400
    click(tab, ".turn:first-of-type button", "Edit")
    tab.press("Enter")
    tab.wait("document.getElementById('problem').textContent")
    assert texts_of(tab, ".message-text") == ["first", "second"] and count(tab, ".turn") == 4


def test_copy_gives_the_answer_without_rejected_drafts(tab, pages):
    pages.answer = lambda body: [
        step("a **b**\n\n```py\n"), step(("x = 1\n", "ngram"), "y\n", rejected=["no\n"]), step("```\n"), *ending(),
    ]  # fmt: skip
    chat(tab)
    copied = "navigator.clipboard.writeText = text => (window.copied = text, Promise.resolve())"
    tab.ask(copied)
    click(tab, ".turn:last-child .actions .copy")
    assert tab.ask("window.copied") == "a **b**\n\n```py\nx = 1\ny\n```\n"
    click(tab, ".code-head .copy")
    assert tab.ask("window.copied") == "x = 1\ny"
    click(tab, ".user .copy")
    assert tab.ask("window.copied") == "Hi"
    select = (
        "(getSelection().selectAllChildren(document.querySelector('.answer .code pre')), getSelection().toString())"
    )
    assert tab.ask(select) == "x = 1\ny"


def test_copy_works_where_the_browser_gives_no_clipboard(tab):
    """A page without TLS from another machine has none."""
    chat(tab)
    tab.ask("Object.defineProperty(window, 'isSecureContext', { value: false }) && 1")
    tab.ask("document.execCommand = () => (window.copied = getSelection().toString() || document.activeElement.value)")
    click(tab, ".turn:last-child .actions .copy")
    assert tab.ask("window.copied") == "Hello."


def test_settings_are_sent_and_unset_ones_are_left_to_the_server(tab, pages):
    put(tab, n_max="3", temperature="0.7", top_p="0.9", top_k="40", max_tokens="", seed="11", method="suffix")
    chat(tab)
    body = pages.bodies[-1]
    assert {name: body[name] for name in ("temperature", "top_p", "top_k", "seed")} == {
        "temperature": 0.7, "top_p": 0.9, "top_k": 40, "seed": 11,
    }  # fmt: skip
    assert "max_tokens" not in body
    assert body["speculative"] == {"trace": True, "method": "suffix", "n_max": 3}
    assert "model · suffix, temperature 0.7" in text_of(tab, ".assistant .who")


def test_without_chat_template_a_message_is_a_prompt(tab, pages):
    pages.answer = lambda body: [{"choices": [{**step("x")["choices"][0], "text": "x"}]}, *ending()]
    put(tab, chat=False)
    chat(tab, "once upon")
    assert pages.bodies[-1]["prompt"] == "once upon" and "messages" not in pages.bodies[-1]
    put(tab, chat=True)
    chat(tab, "and now", 4)
    assert [m["content"] for m in pages.bodies[-1]["messages"]] == ["and now"]


def test_thinking_is_folded_and_not_part_of_the_answer(tab, pages):
    pages.answer = lambda body: [
        step("<think>hm", kind="reasoning_content"),
        step(" well</think>\n\n", kind="reasoning_content"),
        step("**Yes.**"),
        *ending(),
    ]
    chat(tab)
    chat(tab, "more", 4)
    assert texts_of(tab, ".answer") == ["Yes.", "Yes."]
    assert "hm well" in text_of(tab, ".thought") and tab.ask("document.querySelector('.thought').open") is False
    assert pages.bodies[-1]["messages"][1] == {"role": "assistant", "content": "**Yes.**"}
    reload(tab)
    tab.wait("document.querySelectorAll('.turn').length === 4")
    assert texts_of(tab, ".answer") == ["Yes.", "Yes."]


def test_a_new_chat_forgets_the_old_one(tab, pages):
    chat(tab)
    click(tab, "#clear")
    assert count(tab, ".turn") == 0 and "Hello." not in tab.ask(STORED)
    chat(tab, "next")
    assert [m["content"] for m in pages.bodies[-1]["messages"]] == ["next"]


def test_only_one_answer_is_generated_at_a_time(tab, pages):
    gate = Flag()

    def waiting(body):
        yield step("a")
        gate.wait(20)
        yield from ending()

    chat(tab)
    pages.answer = waiting
    send(tab, "one")
    tab.wait("!document.getElementById('stop').disabled")
    send(tab, "two")
    assert tab.ask("[...document.querySelectorAll('.actions button:not(.copy)')].every(b => b.disabled)")
    gate.set()
    wait_for_answer(tab, 4)
    assert pages.most == 1 and len(pages.bodies) == 2
    assert tab.ask("document.getElementById('prompt').value") == "two"


def test_a_method_that_failed_is_named(tab, pages):
    pages.props["speculative"]["switched_off"] = {"suffix": "it raised"}
    reload(tab)
    assert tab.wait("document.getElementById('note').textContent") == "Switched off after a failure: suffix."


def test_a_server_that_is_gone_is_said_and_the_message_kept(tab):
    tab.ask("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
    send(tab, "hello")
    assert tab.wait("document.getElementById('problem').textContent") == "The server cannot be reached."
    assert tab.ask("document.getElementById('prompt').value") == "hello"
