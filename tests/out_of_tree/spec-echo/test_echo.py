"""Tests of spec-echo: the kit's promises, and the method itself."""

from spec_echo import Echo

from spec_core import Run
from spec_core.testing import DrafterConformance, ToyTarget


class TestEcho(DrafterConformance):
    def make(self):
        return Echo()


def test_a_repeated_token_is_drafted_as_often_as_asked():
    """Four tokens at the end, four drafted, as far as the budget goes."""
    run = Run(ToyTarget(recurrent=False), [Echo(length=4)])
    drafts = []
    run.observe(lambda step: drafts.extend(part.draft for part in step.parts if part.draft))
    run.generate([7, 7, 7, 7], max_tokens=6).result

    assert max(len(draft) for draft in drafts) == 4
    assert len(drafts[-1]) <= 2
