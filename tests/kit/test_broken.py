"""The kit can fail: for every promise there is a plugin that breaks it, and the check of this promise fails."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from spec_core import Compat, hookimpl
from spec_core.testing import DrafterConformance
from spec_core.testing.conformance.promise import promises
from spec_core.testing.conformance.report import check_conformance, outcome
from tests.kit.broken_drafters import Lookup
from tests.kit.promises import PAGE, page
from tests.support.broken_plugins import CASES, KITS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_kit_catches_the_broken_plugin_and_passes_its_healthy_twin(case):
    """The failure quotes the promise and tells how to see it alone; the twin differs in that alone."""
    caught = outcome(case.kit, case.check, case.broken, **case.declared)
    healthy = outcome(case.kit, case.check, case.healthy, **case.declared)

    assert (caught.result, healthy.result) == ("broken", "kept"), f"{caught.found}\n{healthy.found}"
    assert f"promise broken: {caught.promise}\n" in caught.found
    assert f'alone: pytest -k "Test{case.broken.__name__} and {case.check}"' in caught.found


@attrs.define(eq=False)
class Pools(Lookup):
    """Draws on one pool of all texts with a cache salt, on purpose."""

    is_declared: bool = False
    pool: dict[tuple[object, ...], int] = attrs.field(factory=dict, init=False)

    @hookimpl
    def compat(self):
        return Compat(drafts={"deterministic"}, shares_learning=self.is_declared)

    def ahead(self, seq, count):
        token = self.pool.get((seq.cache_salt, *seq.tokens[-2:]), -1)
        return [token] if token >= 0 else []

    @hookimpl
    def process(self, rows):
        for seq, span in rows.by_sequence():
            for end in range(max(span.start, 1), span.end):
                self.pool[(seq.cache_salt, *seq.tokens[end - 1 : end + 1])] = seq.tokens[end + 1]


def test_what_a_deliberately_shared_pool_breaks_is_what_its_author_may_declare():
    """Every broken promise of such a method names the attribute, and with it none is broken."""
    broken = [one for one in check_conformance(DrafterConformance, Pools) if one.result == "broken"]
    declared = check_conformance(DrafterConformance, lambda: Pools(is_declared=True))

    assert broken
    assert [one.check for one in broken if "Compat(shares_learning=True)" not in one.found] == []
    assert [one.found for one in declared if one.result == "broken"] == []


@pytest.mark.parametrize("kit", KITS.values(), ids=KITS)
def test_every_promise_has_one_plugin_that_breaks_it(kit):
    """Every check has a plugin that fails it."""
    assert {name for name, _ in promises(kit)} == {case.check for case in CASES if case.kit is kit}


def test_the_page_of_promises_is_up_to_date():
    """Regenerate with ``python -m tests.kit.promises docs``."""
    assert page() == (DOCS / PAGE).read_text("utf-8")
