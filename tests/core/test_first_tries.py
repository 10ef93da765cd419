"""First attempts of new users work, or the error says what to write."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
import torch
from toys import DENSE, finish

from spec_core import Compat, Request, Run, Sampling, UsageError, hookimpl
from spec_core.assembly import description, loading
from spec_core.commands import prepare
from spec_core.testing import ToyTarget
from spec_core.testing.toy import ToyTokenizer

HI = [{"role": "user", "content": "HI"}]


@pytest.fixture
def run():
    return Run(ToyTarget(**DENSE))


class Chatting(ToyTokenizer):
    """A template that joins the contents of messages, each after a space."""

    chat_template = "{{ messages }}"

    def encode_chat(self, messages):
        return self.encode("".join(" " + m["content"] for m in messages))


@pytest.fixture
def chatting(run):
    run.target.tokenizer = Chatting(run.target.info.vocab, run.target.info.eog)
    return run


def test_a_run_loads_a_location_with_the_options_of_loading():
    run = Run("zoo:pico", methods=["ngram"], threads=1, context=64, max_sequences=2)

    assert run.target.info.context == 64 and run.settings.max_sequences == 2
    assert run.generate("def add(a, b):", max_tokens=4).result.tokens


def test_a_run_reads_no_weights_before_its_methods_agree(monkeypatch):
    asked = []
    real = ToyTarget(**DENSE)
    monkeypatch.setattr("spec_core.assembly.description.load", lambda place, **options: asked.append(options) or real)
    with pytest.raises(UsageError, match="no method or control named 'ngrm'"):
        Run("toy", methods=["ngrm"], weights="q8_0")

    assert asked == [{"weights": False}]


class Answers:
    """A method that counts how often its ``compat`` is called, and with which facts."""

    def __init__(self):
        self.facts = []

    @hookimpl
    def compat(self, target):
        self.facts.append((target.info.trees, target.info.exact))
        return Compat()

    @hookimpl
    def draft(self, step):
        """Nothing."""


@pytest.mark.parametrize("trees", [True, False])
def test_plugins_are_asked_once_unless_other_facts_are_found(monkeypatch, trees):
    """Facts that weights alone tell, such as ``exact``, are no other facts."""
    described, complete = ToyTarget(**DENSE), ToyTarget(**DENSE)
    complete.info = attrs.evolve(complete.info, exact="rows", trees=trees)
    targets = {False: described, "auto": complete}
    for module in (description, loading):
        monkeypatch.setattr(module, "load", lambda place, weights="auto", **options: targets[weights])
    method = Answers()
    prepared = prepare("toy", [method])
    assert len(method.facts) == 1

    run = prepared.load(max_sequences=2)
    assert run.target is complete and run.settings.max_sequences == 2
    with pytest.raises(UsageError, match="loaded already"):
        prepared.load()
    with pytest.raises(UsageError, match="takes no plugins"):
        Run(prepare("toy"), ["ngram"])
    assert len(method.facts) == (1 if trees == described.info.trees else 2)


def test_sampling_may_be_given_by_keyword(run):
    """Beside the keywords of Request; of a Request with a Sampling of its own, one field is replaced."""
    expected = run.generate([1, 2], max_tokens=8, sampling=Sampling(temperature=0.9, top_k=5), seed=3).result.tokens
    request = Request([1, 2], max_tokens=8, sampling=Sampling(temperature=0.1, top_k=5), seed=3)

    assert run.generate([1, 2], max_tokens=8, temperature=0.9, top_k=5, seed=3).result.tokens == expected
    assert run.generate(request, temperature=0.9).result.tokens == expected


def test_messages_go_through_the_chat_template(chatting):
    expected = chatting.generate(" HI", max_tokens=6).result.tokens

    assert chatting.generate(HI, max_tokens=6).result.tokens == expected
    assert chatting.generate(Request(HI, max_tokens=6)).result.tokens == expected


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([{"role": "user"}], "message 1 is {'role': 'user'}"),
        ([*HI, "HO"], "message 2 is 'HO'"),
        ([*HI, 3], "message 2 is 3"),
    ],
    ids=["no-content", "text-inside", "id-inside"],
)
def test_what_is_no_message_is_named(chatting, messages, message):
    with pytest.raises(UsageError, match=message) as error:
        chatting.generate(messages)

    assert '{"role": "user", "content": "..."}' in error.value.hint


def test_messages_without_a_template_say_what_to_give(run):
    with pytest.raises(UsageError, match="has no chat template") as error:
        run.generate(HI)

    assert "one text" in error.value.hint


def prompts():
    return {
        "texts": ["AB", "BA"],
        "ids": [[1, 2], (2, 1)],
        "arrays": [np.array([1, 2]), torch.tensor([2, 1])],
        "requests": [Request([1, 2]), Request("AB")],
        "messages": [HI, HI],
        "mixed": ["AB", [1, 2], HI],
    }


@pytest.mark.parametrize("kind", prompts())
def test_several_prompts_run_together_and_come_in_order(chatting, kind):
    """Each text is that of its prompt alone."""
    inputs = prompts()[kind]
    alone = [chatting.generate(p, max_tokens=6, temperature=0.8).result.tokens for p in inputs]
    together = []
    chatting.observe(lambda step: together.append(len(step.parts)))
    generation = chatting.generate(inputs, max_tokens=6, temperature=0.8)

    assert [g.result.tokens for g in generation] == alone
    assert max(together) == len(inputs)


@pytest.mark.parametrize("prompt", [[1, 2], [np.int64(1), np.int64(2)], [torch.tensor(1), torch.tensor(2)]])
def test_a_list_of_ids_is_one_prompt(run, prompt):
    assert len(run.generate(prompt, max_tokens=3).result.tokens) == 3


def test_a_wrong_prompt_of_several_is_numbered_and_nothing_runs(run):
    with pytest.raises(UsageError, match="prompt 2 of 2: prompt token -5"):
        run.generate([[1, 2], [-5]])

    assert not run.busy


def test_the_prompt_may_be_given_by_its_name(run):
    assert run.generate(prompt=[1, 2], max_tokens=3).result.tokens == run.generate([1, 2], max_tokens=3).result.tokens


WRONG = {
    "max_new_tokens": (lambda run: run.generate([1], max_new_tokens=3), "use max_tokens"),
    "n": (lambda run: run.generate([1], n=3), "use max_tokens"),
    "submit-n": (lambda run: run.submit([1], n=3), "use max_tokens"),
    "misspelt": (lambda run: run.generate([1], temprature=1), "keywords: temperature,"),
    "given-twice": (lambda run: run.generate([1], temperature=1, sampling=Sampling()), "set it once"),
    "nothing": (lambda run: run.generate(), "give a text, or its token ids"),
    "prompt-twice": (lambda run: run.generate([1], prompt=[2]), "give the prompt once"),
    "loaded-already": (lambda run: Run(run.target, device="cpu"), "pass it to load\\(\\)"),
    "misspelt-setting": (lambda run: Run(run.target, max_sequence=2), "keywords: max_sequences,"),
    "setting-of-no-number": (lambda run: Run(run.target, draft_max="x"), "spec settings"),
    "setting-too-low": (lambda run: Run(run.target, max_sequences=0), "spec settings"),
    "no-model": (lambda run: Run(None), "pass the location of a model"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_work_says_what_does(run, name):
    call, hint = WRONG[name]
    with pytest.raises(UsageError) as error:
        call(run)

    assert error.match(hint) and not run.busy
    finish(run)
