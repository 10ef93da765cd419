"""Texts of every method are plain decoding's, on a dense, a mixture-of-experts and a hybrid model: see texts.py."""

from __future__ import annotations

import pytest
import torch

from tests.support.texts import METHODS, differing, prompts

PARTS = 200


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("kind, method", [(kind, method) for kind, methods in METHODS.items() for method in methods])
def test_texts_of_a_method_are_those_of_plain_decoding(kind, method):
    assert differing(kind, method, 7, PARTS) == 0


def test_there_are_four_hundred_prompts():
    assert len(prompts()) == 400
