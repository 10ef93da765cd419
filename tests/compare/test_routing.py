"""The bound over methods, and prompts for a model that has none."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from spec_compare.figures.routing import count_steps, routing_bounds
from spec_compare.inputs.sources import source
from spec_compare.measuring.experiment import from_flags
from spec_compare.measuring.prompt_source import shipped_file
from spec_compare.records.record import Steps

from spec_core import load
from spec_core.errors import UsageError
from tests.compare.test_compare import begin
from tests.compare.test_summary import lap

BASELINES = {"plain": "plain", "A": "plain", "B": "plain"}
TEN = list(range(11))


def step_lap(name, emitted, tokens=TEN, prompt="p"):
    """A lap of one text. emitted: tokens of each step."""
    one = lap(name, prompt, 1.0, tokens)
    steps = Steps(emitted=emitted)
    return attrs.evolve(one, records=[attrs.evolve(record, steps=steps) for record in one.records])


@pytest.mark.parametrize(
    ("ends", "steps"),
    [
        ([[10], [1, 2, 3, 10]], 1),
        ([[5, 6, 7, 8, 9, 10], [1, 2, 3, 4, 5, 10]], 2),
        ([[4, 8, 10], [2, 6, 10]], 3),
        ([[1, 2], [1, 2]], 2),
    ],
)
def test_the_step_that_ends_last_is_taken(ends, steps):
    assert count_steps(ends) == steps


def test_the_bound_is_on_equal_texts_alone():
    laps = [step_lap("plain", [1] * 10), step_lap("A", [5, 1, 1, 1, 1, 1]), step_lap("B", [1, 1, 1, 1, 1, 5])]
    other = [
        step_lap("plain", [1] * 10, prompt="q"),
        step_lap("A", [10], prompt="q"),
        step_lap("B", [10], TEN[:-1], "q"),
    ]
    (bound,) = routing_bounds(laps + other, BASELINES)

    assert (bound.baseline, bound.texts, bound.tokens_per_step) == ("plain", 1, 5)
    assert bound.own == {"A": pytest.approx(10 / 6), "B": pytest.approx(10 / 6)}
    assert "the best of 2 methods at each position: 5.00" in bound.text


def test_one_method_has_no_bound_over_methods():
    assert routing_bounds([step_lap("plain", [1] * 10), step_lap("A", [10])], {"plain": "plain", "A": "plain"}) == []


def test_a_contender_that_knows_the_text_is_no_method_of_the_bound(tmp_path, monkeypatch):
    from spec_compare import compare

    monkeypatch.chdir(begin(monkeypatch, tmp_path))
    outcome = compare("toy:dense", ["repeat", "mute"], "prompts.jsonl", n=8, bounds=False, oracle=[4])

    assert [set(bound.own) for bound in outcome.routing] == [{"repeat", "mute"}]


class Nameless:
    """A target without prompts. template: of chats."""

    def __init__(self, template):
        self.info = attrs.evolve(load("zoo:pico", weights=False).info, prompts=None, name="nameless")
        self.tokenizer = type("T", (), {"chat_template": template})()


@pytest.mark.parametrize(("templates", "kind"), [(["x"], "chats"), ([None], "texts"), (["x", None], "texts")])
def test_a_model_without_prompts_gets_built_in_ones(templates, kind, capsys):
    file = shipped_file([Nameless(template) for template in templates])
    prompts = source(Path(file), chat=False).prompts

    assert file.name == f"built-in-{kind}.jsonl" and "no prompts come with nameless" in capsys.readouterr().err
    assert {p.family for p in prompts} == {"edit", "summarise", "question", "code", "list"} and len(prompts) == 15
    assert len({p.id for p in prompts}) == 15


def test_a_wrong_file_of_prompts_is_refused_before_a_model_is_looked_for(tmp_path):
    from spec_compare.python import flags_of

    words = ["-m", "nowhere.gguf", "--prompts", str(tmp_path / "missing.jsonl")]
    with pytest.raises(UsageError, match=r"missing\.jsonl"):
        from_flags(flags_of(words))
