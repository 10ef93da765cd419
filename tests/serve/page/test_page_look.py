"""How the page looks and is used: contrast, marks, labels, a phone, and axe-core in both colour schemes."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from tests.support.browser import CHROMIUM
from tests.support.chat_page import chat, click, count, put, send, text_of
from tests.support.page_server import ending, step

PHONE, DESKTOP = (390, 780), (1280, 900)
METHODS = ["ngram", "suffix", "recycling", "draft-model", "mtp", "eagle3", "dflash", "dspark"]
CONTRAST = """
(selector => {
  const linear = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = colour => {
    const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map(v => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll(selector)].map(e => getComputedStyle(e)).map(s => {
    const mark = light(s.textDecorationLine === "none" ? s.borderTopColor : s.textDecorationColor);
    return (Math.max(mark, ground) + 0.05) / (Math.min(mark, ground) + 0.05);
  });
})
"""
"""Contrasts of underlines, or else of borders, with the page."""
FIELDS = "button:not(:disabled), textarea, input:not([type=file]), select"
BOX = "(r => [r.left, r.top, r.right, r.bottom])(document.querySelector('{}').getBoundingClientRect())"


def mark_parts(body):
    """An answer that every method has drafted a part of, with code, a list and a rejected draft."""
    yield step("**Answer**\n\n- item\n\n```py\n", rejected=["no\n"])
    for method in METHODS:
        yield step((f"{method} ", method), "own ")
    yield step("\n```\n")
    for method in METHODS:
        yield step((f"{method} ", method), "own\n\n")
    yield from ending("length", 512)


def set_scheme(tab, scheme: str) -> None:
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_differ_by_style_and_colour_and_stand_out(tab, pages, scheme):
    set_scheme(tab, scheme)
    pages.answer = mark_parts
    chat(tab)
    styles = "[...document.querySelectorAll('#sources .drafted')].map(e => getComputedStyle(e)).map(s => {})"
    lines = tab.ask(styles.format("s.textDecorationStyle"))
    patterns = tab.ask(styles.format("s.textDecorationStyle + s.textDecorationThickness"))

    assert len(lines) == len(METHODS) and len(set(lines[:5])) == 5
    assert len(set(patterns)) == len(METHODS)
    assert min(tab.ask(f"{CONTRAST}('.drafted, .rejected')")) >= 3
    assert min(tab.ask(f"{CONTRAST}('{FIELDS}')")) >= 3


def test_an_answer_that_is_followed_ends_in_view(tab, pages):
    pages.answer = mark_parts
    tab.resize(*DESKTOP)
    chat(tab)
    chat(tab, "more", 4)
    tab.ask("new Promise(done => setTimeout(() => done(1), 200))")
    left = "(l => l.scrollHeight - l.scrollTop - l.clientHeight)(document.getElementById('log'))"
    assert tab.ask(left) < 2


def test_a_disabled_button_looks_disabled(tab):
    look = "(s => s.opacity + s.borderStyle + s.cursor)(getComputedStyle(document.getElementById('{}')))"
    assert tab.ask(look.format("stop")) == "0.45dashednot-allowed"
    assert tab.ask(look.format("send")) != tab.ask(look.format("stop"))
    assert tab.ask(look.format("send")) == "1solidpointer"


@pytest.mark.parametrize("width", [360, 390, 800, 1000, 1280, 1920])
def test_fields_and_buttons_stand_in_rows(tab, width):
    """Nothing is outside of the form; labels of a row begin at one height, and so do their fields."""
    edges = "[...document.querySelectorAll('{}')].map(e => e.getBoundingClientRect()).map(r => Math.round(r.{}))"
    tab.resize(width, 800)
    tab.ask("document.getElementById('settings').open = true")
    right = tab.ask("document.getElementById('form').getBoundingClientRect().right")

    assert max(tab.ask(edges.format("label, label > *, form button", "right"))) <= right + 1
    assert tab.ask("document.documentElement.scrollWidth") <= width
    assert len(set(tab.ask(edges.format(".buttons button:not([hidden])", "width")))) == 1
    fields = "fieldset > label:not(.wide)"
    tops = list(zip(tab.ask(edges.format(fields, "top")), tab.ask(edges.format(f"{fields} > *", "top")), strict=True))
    assert {field - label for label, field in tops} <= {19, 20}
    if width >= 1280:
        assert len(tops) == 8 and len({label for label, _ in tops}) == 1


def test_a_phone_has_folded_settings_and_the_legend_in_view(chromium, pages):
    pages.answer = mark_parts
    chromium.open("about:blank")
    chromium.resize(*PHONE)
    chromium.call("Page.navigate", url=f"{pages.url}/")
    chromium.wait("document.body?.dataset.ready")
    assert chromium.ask("document.getElementById('settings').open") is False
    _, top, _, bottom = chromium.ask(BOX.format("#form"))
    assert (bottom - top) < 0.25 * PHONE[1]
    chat(chromium)
    chat(chromium, "more", 4)
    assert chromium.ask("document.getElementById('log').scrollTop") > 0
    legend, form = chromium.ask(BOX.format("#legend")), chromium.ask(BOX.format("#form"))
    assert legend[1] >= 0 and legend[3] < 200 and form[3] <= PHONE[1] + 1
    assert chromium.ask("document.documentElement.scrollWidth") <= PHONE[0]
    click(chromium, ".compare")
    chromium.wait("/one run each/.test(document.querySelector('.verdict')?.textContent)")
    assert chromium.ask("document.documentElement.scrollWidth") <= PHONE[0]
    lanes = chromium.ask("[...document.querySelectorAll('.lane')].map(e => e.getBoundingClientRect().width)")
    assert min(lanes) > 250
    assert chromium.errors == []
    chromium.close()


def test_every_answer_is_headed_by_what_made_it(tab, pages):
    pages.answer = mark_parts
    chat(tab)
    put(tab, method="ngram", temperature="0.5")
    chat(tab, "more", 4)
    put(tab, method="none")
    chat(tab, "more", 6)
    heads = tab.ask("[...document.querySelectorAll('.assistant .who')].map(e => e.textContent)")
    assert heads == [
        "model · ngram, suffix, temperature 0", "model · ngram, temperature 0.5", "model · no drafts, temperature 0.5",
    ]  # fmt: skip


def test_the_page_is_used_with_the_keyboard_alone(tab, pages):
    """Every control is reached by Tab."""
    pages.answer = mark_parts
    send(tab, "Hi")
    tab.wait("document.querySelector('.again') !== null")
    controls = "[...document.querySelectorAll('button, input, select, textarea, summary, main')]"
    assert tab.ask(f"{controls}.filter(e => e.offsetParent && !e.disabled && e.tabIndex < 0).length") == 0
    assert count(tab, "#log[tabindex='0']") == 1 and text_of(tab, "#log") != ""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_axe_finds_nothing(pages, tmp_path_factory):
    """At first, with an answer, with a race, with an error and with open settings, in both schemes and sizes."""
    playwright = pytest.importorskip("playwright.sync_api")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            for width, height in (PHONE, DESKTOP):
                pages.answer, pages.status = mark_parts, 200
                view = {"width": width, "height": height}
                page = browser.new_page(color_scheme=scheme, viewport=view, reduced_motion="reduce")
                page.set_default_timeout(120_000)  # milliseconds: others may run meanwhile
                page.goto(f"{pages.url}/")
                page.wait_for_selector("body[data-ready]")
                check(axe, page)
                page.fill("#prompt", "Hi")
                page.press("#prompt", "Enter")
                page.wait_for_selector(".again")
                check(axe, page)
                page.click(".compare")
                page.wait_for_selector(".verdict .ratio")
                page.evaluate("document.getElementById('settings').open = true")
                check(axe, page)
                pages.status = 401
                page.fill("#prompt", "Hi")
                page.press("#prompt", "Enter")
                page.wait_for_selector("[aria-invalid=true]")
                check(axe, page)
                page.close()
        browser.close()


def check(axe, page) -> None:
    results = axe.run(page)
    assert results.violations_count == 0, [
        (v["id"], v["nodes"][0]["html"][:200]) for v in results.response["violations"]
    ]
