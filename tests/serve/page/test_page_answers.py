"""Answers in the page: simple Markdown, marks of drafts, and answers that are hostile."""

from __future__ import annotations

import json
import random

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from tests.support.chat_page import chat, count, put, send, text_of, texts_of
from tests.support.page_server import ending, saying, step

BLOCKS = "[...document.querySelectorAll('.answer > *')].map(e => [e.className, e.textContent])"
NODES = "document.querySelectorAll('.answer *').length"
DEPTH = """
(parent => {
  let most = 0;
  const visit = (e, depth) => { most = Math.max(most, depth); [...e.children].forEach(c => visit(c, depth + 1)); };
  visit(parent, 0);
  return most;
})(document.querySelector('.answer'))
"""
LETTERS = "abcdefghijklmnopqrstuvwx😀"
WATCH_FRAMES = """
(() => { window.worst = 0; let last = performance.now();
  const look = now => { window.worst = Math.max(window.worst, now - last); last = now; requestAnimationFrame(look); };
  requestAnimationFrame(look); return 1; })()
"""


def say(tab, pages, text: str, size: int = 3) -> None:
    pages.answer = lambda body: saying(text, size)
    chat(tab)


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_simple_markdown_is_shown_whatever_the_steps_are(tab, pages, size):
    text = (
        "# Title\n\nSome **bold**, *italic*, ***both***, __bold__, _it_ and `co*de*`.\nNext line\n\n"
        "- one\n- two **b**\n  more\n    - deep\n1. first\n2) second\n\n> quoted\n> more\n\n---\n"
        "```python\nx = [1]  # *no*\n\n# y\n```\nafter\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nend"
    )
    say(tab, pages, text, size)
    tab.ask("document.querySelectorAll('.sign').forEach(e => e.remove())")

    assert tab.ask(BLOCKS) == [
        ["block heading level-1", "Title"],
        ["block paragraph", "Some bold, italic, both, bold, it and co*de*.\nNext line"],
        ["block item", "• one"],
        ["block item", "• two b\nmore"],
        ["block item level-2", "• deep"],
        ["block item", "1. first"],
        ["block item", "2) second"],
        ["block quote", "quoted\nmore"],
        ["block rule", ""],
        ["block code", "pythonCopyx = [1]  # *no*\n\n# y"],
        ["block paragraph", "after"],
        ["block table", "| a | b |\n|---|---|\n| 1 | 2 |"],
        ["block paragraph", "end"],
    ]
    assert "bold" in "".join(texts_of(tab, ".answer strong")) and "italic" in "".join(texts_of(tab, ".answer em"))


PLAIN = (
    "2 * 3 * 4",
    "snake_case_name",
    "a ** b",
    "**open",
    "`tick",
    "*",
    "\\*not\\*",
    "[x](javascript:x)",
    "#tag",
    "1.5 x",
)


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_markdown_is_shown_as_it_is(tab, pages, text):
    say(tab, pages, text)
    assert text_of(tab, ".answer") == text.replace("\\*", "*")
    assert count(tab, ".answer :is(a, em, strong, code)") == 0


def test_markdown_can_be_switched_off(tab, pages):
    put(tab, markdown=False)
    say(tab, pages, "# a **b**\n\n\n- c")
    tab.ask("document.querySelectorAll('.sign').forEach(e => e.remove())")
    assert text_of(tab, ".answer") == "# a **b**\n\n\n- c"


def test_drafts_are_marked_in_their_places(tab, pages):
    """Marks survive Markdown; rejected drafts break no line, are short, and stand before what took their place."""
    pages.answer = lambda body: [
        step(("one ", "ngram"), "two", rejected=["\n\n", "\tx\r\n"]),
        step(("\n\n", "suffix"), "**th", rejected=[" " * 40]),
        step(("ree** four", "ngram"), rejected=["  "]),
        step(" end", rejected=["z" * 500]),
        *ending(),
    ]
    chat(tab)
    texts = texts_of(tab, ".answer .rejected")
    assert texts[:3] == ["↵↵⇥x↵", "␣×40", "␣␣"] and texts[3] == "z" * 80 + "…"
    assert text_of(tab, ".answer") == f"one ↵↵⇥x↵two↵↵␣×40three four␣␣{texts[3]} end"
    assert texts_of(tab, ".answer .drafted:not(.sign)") == ["one ", "ree", " four"]
    assert texts_of(tab, ".answer .sign.drafted") == ["↵↵"]
    assert tab.ask("document.querySelector('.answer .sign').title") == "drafted by suffix"
    tab.ask("getSelection().selectAllChildren(document.querySelector('.answer'))")
    assert tab.ask("getSelection().toString()").split("\n") == ["one two", "", "three four end"]
    assert tab.ask("[...document.querySelectorAll('.rejected')].every(e => e.getClientRects().length === 1)")
    put(tab, rejected=False)
    assert tab.ask("getComputedStyle(document.querySelector('.answer .rejected')).display") == "none"


@pytest.mark.parametrize("markdown", [True, False])
def test_html_of_an_answer_is_text(tab, pages, markdown):
    html = (
        "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script><svg onload='window.hacked=1'>"
        "<iframe src='javascript:parent.hacked=1'></iframe><style>*{display:none}</style></div></main><h1>x</h1>"
        "```\n</code></pre><script>window.hacked=1</script>\n```\n"
        "![x](http://evil.example/a.png) [y](javascript:hacked=1)\n"
        "<a href=http://evil.example>z</a> &lt;b&gt; <!-- c -->"
    )
    put(tab, markdown=markdown)
    pages.props["model_alias"] = "<b>x</b>"
    pages.answer = lambda body: [
        step(html, (html, "<img src=x onerror=hacked=1>"), rejected=[html]), *ending("<b>reason</b>"),
    ]  # fmt: skip
    chat(tab, html)
    put(tab, system=html)
    assert "<script>" in text_of(tab, ".answer") and "&lt;b&gt;" in text_of(tab, ".answer")
    assert count(tab, "main :is(script, iframe, svg, style, img, a, h1, b)") == 0
    assert "<img src=x" in text_of(tab, "#legend") and count(tab, "#legend img") == 0
    assert text_of(tab, ".ended") == "Ended: <b>reason</b>"
    assert tab.ask("window.hacked") is None
    assert not [url for url in tab.requests if "evil" in url or url.endswith("/x")]


BOMBS = {
    "stars": "*" * 20000,
    "open stars": "**a *b " * 5000,
    "nested": "*a **b " * 3000 + "** *" * 3000,
    "ticks": "".join("`" * (1 + i % 90) + "a" for i in range(600)),
    "quotes": ">" * 5000 + " deep\n" + "> " * 5000 + "x",
    "lists": "".join("  " * i + "- a\n" for i in range(200)),
    "headings": "# a\n" * 20000,
    "fences": "```\n" * 10000,
    "open fence": "```" + "a" * 30 + "\n" + "x\n" * 30000,
    "blank lines": "a" + "\n" * 50000 + "b",
    "one line": "word " * 20000,
    "no space": "x" * 60000,
    "spaces": " " * 50000 + "x",
    "brackets": "[" * 20000 + "](" * 20000,
    "escapes": "\\*" * 20000,
    "pipes": "|a" * 20000 + "\n" + "|---" * 20000,
    "rules": "- " * 20000 + "\n" + "-" * 20000,
    "digits": "1" * 20000 + ". x",
    "surrogates": "😀" * 20000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_of_markdown_is_shown_in_time_and_bounds(tab, pages, name):
    """Neither deep nor wide; all of its letters are shown."""
    text = BOMBS[name]
    pages.answer = lambda body: saying(text, 997)
    tab.ask("window.begun = performance.now()")
    chat(tab)

    assert tab.ask("performance.now() - window.begun") < 10000
    assert tab.ask(DEPTH) <= 6 and tab.ask(NODES) < 62000
    letters = "document.querySelector('.answer').textContent.replace(/[^a-wx😀]/gu, '').length"
    ours = sum(letter in LETTERS for letter in text)
    if name not in ("fences", "open fence"):  # their names are letters of the page
        assert tab.ask(letters.replace("length", "match(/./gu)?.length ?? 0")) == ours
    assert "�" not in text_of(tab, ".answer")


@pytest.mark.parametrize("kind", ["one paragraph", "paragraphs", "code"])
def test_a_hundred_thousand_tokens_stay_fluent(tab, pages, kind):
    """The page answers to its reader while they come, and its nodes are bounded; the text is whole."""
    rng = random.Random(7)
    gap = {"one paragraph": " ", "paragraphs": "\n\n", "code": "\n"}[kind]
    words = [f"w{i}{gap if i % 12 == 11 else ' '}" for i in range(100_000)]
    first = "```\n" if kind == "code" else ""

    def events(body):
        yield step(first) if first else step("")
        for at in range(0, len(words), 4):
            drafted = [(word, "ngram") for word in words[at : at + 3]]
            yield step(*drafted, words[at + 3], rejected=["no"] if rng.random() < 0.3 else [])
        yield from ending(tokens=100_000)

    pages.answer = events
    tab.ask(WATCH_FRAMES)
    send(tab, "Hi")
    tab.wait("document.querySelectorAll('.turn').length === 2")
    tab.wait("document.querySelector('.turn:last-child .ended')?.textContent", 60)

    assert tab.ask(NODES) < 62000
    worst = tab.ask("window.worst")
    assert worst < 2000, worst
    whole = "document.querySelector('.answer').textContent.replace(/no(?=w)|no$|Copy|code|[^w0-9]/g, '')"
    assert tab.ask(whole) == "".join(words).replace("\n", "").replace(" ", "")
    tab.ask("window.begun = performance.now()")
    assert tab.ask("document.getElementById('log').scrollTop = 5e5, performance.now() - window.begun") < 2000


IS_ORDERED = """
(element => {
  const range = document.createRange(), text = element.firstChild;
  const left = i => (range.setStart(text, i), range.setEnd(text, i + 1), range.getBoundingClientRect().left);
  return left(0) < left(1);
})
"""
"""Whether the first letter of an element stands before the second."""
DIRECTIONS = "\u202e\u2066\u202b\u200f"


def test_marks_of_direction_stay_in_their_block(tab, pages):
    """What follows an answer, a draft or a line of code is written as without them."""
    pages.answer = lambda body: [
        step(f"abc {DIRECTIONS}def\n\nplain text\n\n", rejected=[f"{DIRECTIONS}zzz"]),
        step(f"```\nif ok: {DIRECTIONS}# end\n```\n"),
        step("last words"),
        *ending(),
    ]
    chat(tab, f"mine {DIRECTIONS}abc")
    for selector in (".block.paragraph:nth-of-type(2)", ".turn:last-child .ended", ".numbers:not(:empty)", ".who bdi"):
        assert tab.ask(f"{IS_ORDERED}(document.querySelector({json.dumps(selector)}))") is True, selector
    signs = texts_of(tab, ".answer pre .sign")
    assert [sign for sign in signs if sign.startswith("U+")] == ["U+202E", "U+2066", "U+202B", "U+200F"]
    assert tab.ask("getComputedStyle(document.querySelector('.rejected')).unicodeBidi") == "isolate"


def test_right_to_left_paragraphs_begin_at_the_right(tab, pages):
    say(tab, pages, "שלום עולם\n\nhello")
    directions = "[...document.querySelectorAll('.answer .block')].map(e => getComputedStyle(e).direction)"
    assert tab.ask(directions) == ["rtl", "ltr"]


@pytest.mark.parametrize("text", ["", "\x00\x01\x1b[31m", "\ud83d", "\u2028\u2029", "​"])
def test_strange_characters_are_harmless(tab, pages, text):
    pages.answer = lambda body: [step(text), step("."), *ending()]
    chat(tab)
    assert text_of(tab, ".answer").endswith(".")
