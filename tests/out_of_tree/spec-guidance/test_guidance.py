"""Tests of spec-guidance: the kit's promises, guided texts with and without drafts, and the server."""

import pytest
from spec_guidance import Guidance

from spec_core import Refused, Run, Sampling, UsageError, load
from spec_core.testing import RuleConformance, ToyTarget

PROMPTS = ["def add(a, b):\n", "x = [1, 1, 1, 1, "]
WISHES = [
    {"negative_prompt": "import os\n", "scale": 9.0}, {"negative_prompt": "class A:\n    x = 1\n", "scale": 20}, {},
    {"negative_prompt": [5, 6, 7], "scale": 0.0},
]  # fmt: skip


class TestGuidance(RuleConformance):
    def make(self):
        return Guidance(scale=3.0)

    def target(self):
        return ToyTarget(context=128, recurrent=False)

    def requests(self, *args, **more):
        values = {"rule": {"negative_prompt": [3, 1, 2]}}
        return super().requests(*args, plugin_values=values, **more)


def texts(methods, temperature, at_once=8, **options):
    run = Run(load("zoo:pico", threads=1, **options), methods, rule=("guidance", Guidance()), max_sequences=at_once)
    seqs = [
        run.submit(
            PROMPTS[i % 2], max_tokens=24, sampling=Sampling(temperature=temperature), seed=i,
            plugin_values={"guidance": WISHES[i % 4]},
        )
        for i in range(8)
    ]  # fmt: skip
    while run.busy:
        run.step()
    results = [run.take(seq) for seq in seqs]
    return [one.tokens for one in results], sum(one.stats["accepted"] for one in results)


def plain(i, temperature):
    run = Run(load("zoo:pico", threads=1))
    return run.generate(PROMPTS[i % 2], max_tokens=24, temperature=temperature, seed=i).result.tokens


@pytest.mark.repeats(2)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("options", [{}, {"kernels": "reference"}])
@pytest.mark.parametrize("methods", [["ngram"], ["draft-model"]])
def test_texts_with_drafts_are_those_without(temperature, options, methods):
    guided, _ = texts([], temperature, **options)
    for at_once in (1, 8):
        drafted, accepted = texts(methods, temperature, at_once, **options)
        assert drafted == guided
    assert accepted > 0


def test_only_requests_with_a_negative_prompt_are_guided():
    guided, _ = texts([], 0.0)
    same = [guided[i] == plain(i, 0.0) for i in range(8)]

    assert same[2] and same[6]
    assert not same[0] and not same[1] and not same[3]


def test_the_text_is_that_of_the_formula():
    """Greedy, by whole forwards of both texts."""
    from spec_core.toolkit import evaluate

    target = load("zoo:pico", threads=1, kernels="reference")
    run = Run(target, rule=("guidance", Guidance(negative_prompt="import os\n", scale=9.0)))
    prompt, negative = (target.tokenizer.encode(text) for text in (PROMPTS[0], "import os\n"))
    tokens, output = run.generate(PROMPTS[0], max_tokens=8).result.tokens, []
    for _ in tokens:
        with_prompt = evaluate(target, prompt + output).logits[-1].double().clone()
        without = evaluate(target, negative + output).logits[-1].double().clone()
        output.append(int((without + 9.0 * (with_prompt - without)).argmax()))

    assert tokens == output


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"negative_prompt": 3}, "give a text, or a list of token ids"),
        ({"negative_prompt": [1 << 40]}, "give token ids from 0 to"),
        ({"negative_prompt": [True]}, "give a text, or a list of token ids"),
        ({"negative_prompt": [1] * 5000}, "tokens, the context is"),
        ({"scale": -1}, "give a number from 0 to 100"),
        ({"scale": "2"}, "give a number from 0 to 100"),
        ({"negative": "x"}, "reads no value 'negative'"),
    ],
)
def test_wrong_values_are_refused(value, message):
    run = Run("zoo:pico", rule=("guidance", Guidance()), threads=1)
    with pytest.raises(UsageError, match=message):
        run.submit("x", plugin_values={"guidance": value})


def test_a_negative_text_that_grows_beyond_the_context_ends_with_an_error():
    run = Run(ToyTarget(context=24, recurrent=False), rule=("guidance", Guidance()))
    with pytest.raises(UsageError, match="longer than the context"):
        run.generate([1], max_tokens=12, plugin_values={"guidance": {"negative_prompt": [2] * 20}}).result


def test_recurrent_targets_are_refused():
    with pytest.raises(Refused, match="recurrent layers"):
        Run(ToyTarget(), rule=("guidance", Guidance()))
