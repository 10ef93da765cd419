"""The report in headless Chromium: both colour schemes, phone and desktop, keyboard only, and axe-core."""

from __future__ import annotations

import pytest
from spec_cli.main import run_command

from tests.compare.test_compare import begin, words
from tests.support.browser import CHROMIUM

pytest.importorskip("matplotlib")
playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
PHONE, DESKTOP = {"width": 390, "height": 740}, {"width": 1280, "height": 900}
SWEEPS = ["--sweep", "repeat.length=1,2,3,4,5,6,7,8,9,10", "--sweep", "temperature=0,0.9"]
READABLE = 11
"""Min pixels of the height of a line of text in a figure."""


def write(folder, *options: str) -> str:
    """Write a report; returns its address."""
    with pytest.MonkeyPatch.context() as patch:
        begin(patch, folder)
        assert run_command(words(*options, "--report", "report.html")) == 0
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The address of a report of three contenders."""
    return write(tmp_path_factory.mktemp("report"), "--method", "repeat", "--method", "mute")


@pytest.fixture(scope="module")
def large_report(tmp_path_factory):
    """The address of a report of twenty contenders."""
    return write(tmp_path_factory.mktemp("large"), "--method", "repeat", *SWEEPS, "--limit", "1")


WAIT = 120_000
"""Milliseconds for every wait of a page: other programs may run meanwhile."""


def open_page(browser, **options):
    page = browser.new_page(**options)
    page.set_default_timeout(WAIT)
    return page


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report", "large_report"])
def test_the_report_is_accessible_at_every_size_and_colour_scheme(name, request, browser):
    """No violation of axe-core with everything unfolded, nothing wider than the page, no request, no message."""
    report = request.getfixturevalue(name)
    for scheme in ("light", "dark"):
        for size in (PHONE, DESKTOP):
            context = browser.new_context(color_scheme=scheme, viewport=size)
            context.set_default_timeout(WAIT)
            page, seen = context.new_page(), []
            page.on("request", lambda request, seen=seen: seen.append(request.url))
            page.on("console", lambda message, seen=seen: seen.append(message.text))
            page.goto(report)
            page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            violations = axe.Axe().run(page)
            wide = page.evaluate("document.documentElement.scrollWidth")
            context.close()

            assert violations.violations_count == 0, [v["id"] for v in violations.response["violations"]]
            assert wide <= size["width"]
            assert seen == [report]


SHOWN = "[...document.querySelectorAll('summary')].filter(s => s.checkVisibility()).length"


@pytest.mark.slow
def test_the_report_can_be_read_with_the_keyboard_alone(report, browser):
    """The first stop skips to the results; every stop is visible or the skip link; a text opens with Enter."""
    page = open_page(browser, viewport=DESKTOP)
    page.goto(report)
    stops = []
    while len(stops) < 200:
        page.keyboard.press("Tab")
        stops.append(page.evaluate("(e => [e.tagName, e.textContent.trim().slice(0, 30)])(document.activeElement)"))
        if stops[-1][0] == "BODY":
            break
        if stops[-1] == ["SUMMARY", "first: a HELLO"]:
            page.keyboard.press("Enter")
            assert page.evaluate("document.activeElement.parentElement.open")

    assert stops[0] == ["A", "Skip to the results"]
    assert ["SUMMARY", "first: a HELLO"] in stops
    assert len([s for s in stops if s[0] == "SUMMARY"]) == page.evaluate(SHOWN)


TEXT = "[...document.querySelectorAll('figure svg text')].map(t => t.getBoundingClientRect().height).filter(h => h)"


@pytest.mark.slow
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("name", ["report", "large_report"])
def test_the_first_table_is_on_the_first_screen_and_figures_can_be_read(name, size, request, browser):
    """However many contenders there are; a table shows whether texts are identical without scrolling on a desktop."""
    page = open_page(browser, viewport=size)
    page.goto(request.getfixturevalue(name))
    top = page.evaluate("document.querySelector('.results tbody').getBoundingClientRect().top")
    heading = page.get_by_role("link", name="identical").first.bounding_box()
    heights = page.evaluate(TEXT)
    page.close()

    assert top < size["height"] - 100
    assert heading["x"] + heading["width"] < size["width"]
    assert heights and min(heights) >= READABLE


@pytest.mark.slow
def test_long_words_do_not_widen_the_page_of_a_phone(report, browser):
    """Names of methods, families and prompts are the user's: one may be a single long word."""
    page = open_page(browser, viewport=PHONE)
    page.goto(report)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.evaluate(
        "document.querySelectorAll('h2, h3, p, li, figcaption, dt, dd').forEach(e => e.append('w'.repeat(90)))"
    )
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.close()

    assert wide <= PHONE["width"]


FITTING = """[...document.querySelectorAll('.results')].filter(t => t.closest('details') === null)
    .map(t => t.scrollWidth <= t.parentElement.clientWidth)"""
ROWS = "[...new Set([...document.querySelectorAll('.results tbody tr')].map(r => r.getBoundingClientRect().height))]"
HEADING = """async () => {
    const scroll = [...document.querySelectorAll('.tall')].find(e => e.scrollWidth > e.clientWidth);
    const column = scroll.querySelector('thead th:nth-child(14)'), name = scroll.querySelector('thead th');
    const last = [...scroll.querySelectorAll('tbody tr:not(.group)')].pop();
    scroll.scrollTop = scroll.scrollHeight;
    scroll.scrollLeft = column.offsetLeft - 400;
    await new Promise(requestAnimationFrame);
    const box = e => e.getBoundingClientRect(), top = box(scroll).top;
    return {
        heading: box(column).top - top,
        name: box(name).left - box(scroll).left,
        row: box(last.children[0]).left - box(scroll).left,
        apart: box(column).left - box(last.children[13]).left,
    };
}"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report", "large_report"])
def test_the_main_tables_fit_a_desktop_and_rows_are_equally_high(name, request, browser):
    page = open_page(browser, viewport=DESKTOP)
    page.goto(request.getfixturevalue(name))
    fitting = page.evaluate(FITTING)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    heights = page.evaluate(ROWS)
    page.close()

    assert fitting and all(fitting)
    assert max(heights) - min(heights) < 1


@pytest.mark.slow
def test_a_table_that_scrolls_keeps_its_headings_and_its_names(large_report, browser):
    page = open_page(browser, viewport={"width": 1280, "height": 500})
    page.goto(large_report)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    places = page.evaluate(HEADING)
    hints = page.locator(".hint").first.text_content()
    page.close()

    assert abs(places["heading"]) < 2 and abs(places["name"]) < 2 and abs(places["row"]) < 2
    assert abs(places["apart"]) < 1, "the heading stands above its column"
    assert "columns; the table goes on to the right" in hints


PRINTED_MAX = 2_000_000
"""Max bytes of a printed report."""


@pytest.mark.slow
def test_a_printed_report_is_small_and_has_every_table(large_report, browser, tmp_path):
    """Tables of families are unfolded on paper; folded texts and data are left out, with a note."""
    page = open_page(browser)
    page.goto(large_report)
    data = page.pdf(format="A4")
    page.emulate_media(media="print")
    note = page.get_by_text("Texts that are folded are not printed.").is_visible()
    tables = page.locator("details.printed table.results").first.is_visible()
    folded = page.locator("details:not(.printed) > summary").first.is_visible()
    page.close()

    assert len(data) < PRINTED_MAX
    assert note and tables and not folded
