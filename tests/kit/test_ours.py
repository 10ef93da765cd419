"""Every plugin of this project passes the conformance class of its kind."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from spec_methods.ngram import Ngram

from spec_core import load
from spec_core.loop.coupled import Coupled
from spec_core.testing import (
    DrafterConformance,
    QuickTarget,
    RollbackConformance,
    RuleConformance,
    TargetConformance,
    ToyRollback,
    ToyTarget,
)
from tests.kit.fading import Fades, Fading, FadingAlone
from tests.support.small_models import tiny_gguf
from tests.targets.tiny import model, save


class TestCoupled(RuleConformance):
    def make(self):
        return Coupled()


@pytest.mark.parametrize("strategy", ["snapshot", "replay", "checkpoint"])
class TestToyRollback(RollbackConformance):
    @pytest.fixture(autouse=True)
    def choose_strategy(self, strategy):
        self.strategy = strategy

    def make(self):
        return ToyRollback(self.strategy)


class TestToyTarget(TargetConformance):
    batch_tolerance = 1e-12

    def make(self):
        return ToyTarget(context=128)


def test_the_kits_targets_have_one_tokenizer():
    """A method that reads it in short checks can read it in long ones, with the same tokens."""
    short, long = ToyTarget(), QuickTarget()

    assert short.tokenizer.identity == long.tokenizer.identity == long.info.vocab_id
    assert long.tokenizer.encode("spec") == short.tokenizer.encode("spec")


@cache
def directory(arch: str) -> Path:
    """A tiny random model as a Hugging Face directory."""
    return save(model(arch, vocab_size=64, max_position_embeddings=128), Path(mkdtemp()))


class TestGgufTarget(TargetConformance):
    def make(self):
        return load(tiny_gguf(context=128), dtype="float32", device="cpu")


class TestHuggingFaceTarget(TargetConformance):
    def make(self):
        return load(directory("qwen3moe"), dtype="float32", device="cpu")


class TestTargetWithoutRows(TargetConformance):
    """A target whose only state is recurrent; its owner is another plugin."""

    def make(self):
        return Fading()

    def owner(self):
        return Fades()


class TestTargetThatOwnsItsOnlyState(TargetConformance):
    """The same target, which rolls its state back itself."""

    def make(self):
        return FadingAlone()


class TestOwnerOfTheOnlyState(RollbackConformance):
    def make(self):
        return Fades()

    def target(self):
        return Fading()


class TestExtendingNgram(DrafterConformance):
    """It drafts as without ``extend`` where no other method drafts before it."""

    def make(self):
        return Ngram(extend=True)
