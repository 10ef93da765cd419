"""Tests of spec-lens: the kit's promises, and that fitted maps draft the target's tokens."""

import pytest
from safetensors.torch import save_file
from spec_lens import Lens, fit

from spec_core import Refused, Run
from spec_core.testing import DrafterConformance, ToyTarget


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Maps fitted to the kit's target, on its own greedy texts."""
    run = Run(ToyTarget())
    texts = [[i, *run.generate([i, 5, i], max_tokens=60).result.tokens] for i in range(24)]
    path = tmp_path_factory.mktemp("lens") / "toy.safetensors"
    save_file({"maps": fit(ToyTarget(), texts)}, path)
    return path


class TestLens(DrafterConformance):
    @pytest.fixture(autouse=True)
    def _file(self, file):
        self.file = file

    def make(self):
        return Lens(file=self.file)


def test_what_it_drafts_is_kept_and_changes_no_text(file):
    """More tokens than steps, and the text of plain decoding."""
    plain = Run(ToyTarget(recurrent=False)).generate([3, 1, 4], max_tokens=60).result
    drafted = Run(ToyTarget(recurrent=False), [Lens(file=file)]).generate([3, 1, 4], max_tokens=60).result

    assert drafted.tokens == plain.tokens
    assert drafted.stats["accepted"] > 0


def test_another_width_is_refused_from_the_header(file):
    """Before a weight is read, with both numbers."""
    with pytest.raises(Refused, match=r"maps \[4, 12, 12\], the target's width is 16"):
        Run(ToyTarget(width=16, recurrent=False), [Lens(file=file)])
