"""The report in headless Chromium: both colour schemes, phone and desktop, keyboard only, and axe-core."""

from __future__ import annotations

import pytest
from spec_cli.main import run

from tests.compare.test_compare import begin, words
from tests.support.browser import CHROMIUM

pytest.importorskip("matplotlib")
playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
PHONE, DESKTOP = {"width": 360, "height": 740}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The address of a report."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        begin(patch, folder)
        assert run(words("--method", "repeat", "--method", "mute", "--report", "report.html")) == 0
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.slow
def test_the_report_is_accessible_at_every_size_and_colour_scheme(report, browser):
    """No violation of axe-core with everything unfolded, nothing wider than the page, no request, no message."""
    for scheme in ("light", "dark"):
        for size in (PHONE, DESKTOP):
            context = browser.new_context(color_scheme=scheme, viewport=size)
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


@pytest.mark.slow
def test_the_report_can_be_read_with_the_keyboard_alone(report, browser):
    """The first stop skips to the results; every stop is visible or the skip link; a text opens with Enter."""
    page = browser.new_page(viewport=DESKTOP)
    page.goto(report)
    stops = []
    while len(stops) < 200:
        page.keyboard.press("Tab")
        stops.append(page.evaluate("(e => [e.tagName, e.textContent.trim().slice(0, 30)])(document.activeElement)"))
        if stops[-1][0] == "BODY":
            break
        if stops[-1] == ["SUMMARY", "first: a"]:
            page.keyboard.press("Enter")
            assert page.evaluate("document.activeElement.parentElement.open")

    assert stops[0] == ["A", "Skip to the results"]
    assert ["SUMMARY", "first: a"] in stops
    assert len([s for s in stops if s[0] == "SUMMARY"]) == page.locator("summary").count()
