"""prediction beyond the contract: drafts follow the predicted text, and find their place again after a difference."""

from __future__ import annotations

import pytest
from spec_methods.prediction import Place, Prediction

from spec_core import Refused, Run, UsageError, load
from spec_core.testing import DrafterConformance, ToyTarget


class TestPrediction(DrafterConformance):
    def make(self):
        return Repeating()


class Repeating(Prediction):
    """Predicts, for requests of the kit, that the output repeats a few tokens."""

    def _load(self, target):
        self.usual = [0, 1, 2, 3, 4, 5, 6, 7] * 8


def alone(target, prompt, **keywords):
    with Run(target) as run:
        return run.generate(prompt, **keywords).result


def generate(target, prompt, prediction, **keywords):
    with Run(target, ["prediction"]) as run:
        return run.generate(prompt, prediction=prediction, **keywords).result


@pytest.fixture(scope="module")
def pico():
    return load("zoo:pico")


PROMPT = "def add(a, b):\n"


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_right_prediction_is_accepted_whole(temperature, pico):
    asked = {"max_tokens": 40, "temperature": temperature, "seed": 3}
    plain = alone(pico, PROMPT, **asked)
    result = generate(pico, PROMPT, plain.tokens, **asked)

    assert result.tokens == plain.tokens
    assert result.stats["accepted"] == result.stats["drafted"] > 0
    assert result.stats["steps"] < 12 < plain.stats["steps"]


def test_the_place_is_found_again_after_tokens_that_differ(pico):
    """A wrong token, one that is left out, one too many: each costs few steps, and the text is that without it."""
    plain = alone(pico, PROMPT, max_tokens=60)
    right = plain.tokens
    for changed in (
        [*right[:20], 7, *right[21:]],
        [*right[:20], *right[21:]],
        [*right[:20], 7, 8, *right[20:]],
    ):
        result = generate(pico, PROMPT, changed, max_tokens=60)
        assert result.tokens == right
        assert result.stats["accepted"] >= 40


def test_a_wrong_prediction_is_given_up(pico):
    """Nothing of it is in the output: after the first drafts none follows."""
    result = generate(pico, PROMPT, [5, 6, 7] * 30, max_tokens=40)

    assert result.tokens == alone(pico, PROMPT, max_tokens=40).tokens
    assert result.stats["drafted"] <= 40


def test_a_request_that_continues_rows_follows_its_own_prediction(pico):
    """Not that of the request before it, which was wrong."""
    right = alone(pico, PROMPT, max_tokens=40).tokens
    with Run(pico, ["prediction"]) as run:
        run.generate(PROMPT, prediction=[5, 6, 7] * 30, max_tokens=40).result
        result = run.generate(PROMPT, prediction=right, max_tokens=40).result

    assert result.stats["accepted"] == result.stats["drafted"] > 0


def test_without_a_prediction_nothing_is_drafted(pico):
    assert generate(pico, PROMPT, "", max_tokens=20).stats["drafted"] == 0


def test_a_text_is_a_prediction_too_and_the_next_request_of_a_slot_has_its_own(pico):
    plain = alone(pico, PROMPT, max_tokens=30)
    with Run(pico, ["prediction"], max_sequences=1) as run:
        first = run.generate(PROMPT, prediction=plain.text, max_tokens=30).result
        second = run.generate(PROMPT, max_tokens=30).result

    assert first.tokens == second.tokens == plain.tokens
    assert first.stats["accepted"] > 20 and second.stats["drafted"] == 0


@pytest.mark.parametrize(("prediction", "message"), [(5, "the prediction is"), ([99], "outside the vocabulary")])
def test_a_prediction_that_is_none_is_refused(prediction, message):
    target = ToyTarget(vocab=12, recurrent=False)
    with Run(target, ["prediction"]) as run, pytest.raises(UsageError, match=message):
        run.generate([1, 2], prediction=prediction)


def test_a_file_is_the_prediction_of_requests_without_one(tmp_path, pico):
    plain = alone(pico, PROMPT, max_tokens=30)
    file = tmp_path / "text.txt"
    file.write_text(plain.text, "utf-8")
    with Run(pico, [f"prediction={file}"]) as run:
        result = run.generate(PROMPT, max_tokens=30).result
    with pytest.raises(Refused, match="cannot be read"):
        Run(pico, [f"prediction={tmp_path / 'none'}"])

    assert result.tokens == plain.tokens and result.stats["accepted"] > 20


def test_of_several_places_the_nearest_after_the_lost_one_is_taken():
    place = Place(0, [1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 5], n_min=2)
    place.follow([1, 2, 8])
    assert place.at == -1
    place.follow([1, 2, 8, 1, 2])

    assert place.ahead(2, 0.0) == [4, 9]
