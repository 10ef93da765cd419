"""Lossy rules: they accept as declared, and every output is labelled."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sampler import SAMPLED, Sampler, near
from spec_cli.main import run_command as spec
from spec_rules.distributions import Case
from spec_rules.synthetic import Synthetic, kept_count, rates_of_length
from spec_rules.typical import Typical, threshold

from spec_core import Compat, Draft, Needs, Run, Sampling, Sequence, UsageError, Verdict, hookimpl
from spec_core.testing import ToyTarget
from tests.core.toys import dense, finish, plain, requests
from tests.support.toy_plugins import install

RATES = (0.9, 0.6, 0.6, 0.15)
LOSSY = {
    "synthetic": "synthetic acceptance at rates 0.8, 0.6, 0.4, 0.2: the text is meaningless",
    "typical": "typical acceptance keeps drafts that the target would not have drawn",
}
TINY = {"vocab": 8, "width": 4, "recurrent": False}
CHAIN = Draft([1, 2, 3, 4, 5])
TREE = Draft([6, 1, 2, 3, 7, 4, 5], parents=[-1, -1, 1, 2, 2, 3, 5])
"""A tree whose longest path has nodes that are not first children."""

lossy = pytest.mark.parametrize("rule", LOSSY)


class Says:
    """Drafts the same tokens in every step, if they fit."""

    def __init__(self, draft):
        self.said = draft

    @hookimpl
    def compat(self):
        return Compat(needs=Needs(trees=True))

    @hookimpl
    def draft(self, step):
        for seq, budget in step.undrafted:
            if budget >= self.said.depth:
                step.propose(seq, self.said)


# synthetic


@pytest.mark.slow
@pytest.mark.parametrize("draft, temperature", [(CHAIN, 1.0), (TREE, 0.0)], ids=["chain", "tree"])
def test_synthetic_accepts_at_the_given_rates(draft, temperature):
    """Each position within four standard deviations; nothing after the last rate, whatever the target thinks."""
    run = Run(ToyTarget(**TINY), [Says(draft)], rule=("synthetic", Synthetic(RATES)), max_sequences=32)
    for i in range(64):
        run.submit([i % 8, i // 8], max_tokens=40, sampling=Sampling(temperature=temperature))
    finish(run)
    stats = run.stats.report()
    rates = np.array(RATES)

    assert stats["drafts"] > 500
    assert np.all(abs(np.array(stats["marginal"][:4]) - rates) < 4 * np.sqrt(rates * (1 - rates) / stats["drafts"]))
    assert not any(stats["marginal"][4:])


@pytest.mark.slow
def test_rates_over_many_coins():
    """8,000 steps: at least i + 1 are kept as often as the i-th rate says."""
    rule = Synthetic(RATES)
    lengths = [kept_count(RATES, rule.coin(Sequence([7, i], 1, 9, SAMPLED, None, offset=i))) for i in range(8000)]
    seen = [np.mean([n > i for n in lengths]) for i in range(4)]

    assert seen == pytest.approx(RATES, abs=4 * 0.5 / np.sqrt(8000))


def test_the_pattern_is_the_settings_seed_and_not_the_requests():
    """Acceptance is the same in repeated measurements and for other drafters."""

    def pattern(seed: int, of_request: int, temperature: float = 0.0) -> list[int]:
        lengths: list[int] = []
        run = Run(ToyTarget(**TINY), [Says(CHAIN)], rule=("synthetic", Synthetic(RATES, seed)))
        run.observe(lambda step: lengths.extend(len(part.full_verdict.path) for part in step.parts))
        run.generate([1, 2], max_tokens=60, seed=of_request, sampling=Sampling(temperature=temperature)).result
        return lengths

    assert pattern(0, 1) == pattern(0, 2) == pattern(0, 3, temperature=1.0)
    assert pattern(0, 1) != pattern(1, 1)


def test_rate_0_is_plain_decoding_and_rate_1_keeps_everything():
    """The token after the kept drafts is the target's own choice."""
    none = dense([Says(CHAIN)], rule=("synthetic", Synthetic((0.0,))))
    for request in requests(3):
        assert plain(request, recurrent=False).tokens == none.generate(request).result.tokens

    every = dense([Says(CHAIN)], rule=("synthetic", Synthetic((1.0,) * 5)))
    assert every.generate([1, 2], max_tokens=13).result.tokens[1:6] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("rates", [(), (0.5, 0.6), (1.2,), (0.5, -0.1)], ids=str)
def test_rates_that_cannot_be_are_refused(rates):
    with pytest.raises(UsageError, match="give numbers from 1 down to 0"):
        Synthetic(rates)


def kept_lengths(rule: Synthetic, drafts: Draft = CHAIN) -> list[int]:
    """The kept lengths of every step of a text that no limit cuts."""
    lengths: list[int] = []
    run = Run(ToyTarget(**TINY), [Says(drafts)], rule=("synthetic", rule))
    run.observe(lambda step: lengths.extend(len(p.full_verdict.path) for p in step.parts if p.draft is not None))
    for i in range(4):
        run.generate([1 + i, 2], max_tokens=200, seed=i).result
    return lengths


@pytest.mark.repeats(2)
@pytest.mark.parametrize("length", [1.0, 1.25, 2.6, 4.0, 5.9])
def test_a_length_is_reached_by_its_two_neighbours_alone(length):
    """The mean of tokens per step is the length, within four standard deviations of its one coin."""
    kept = kept_lengths(Synthetic(length=length))
    rest = length % 1

    assert set(kept) <= {int(length) - 1, int(np.ceil(length)) - 1}
    assert 1 + np.mean(kept) == pytest.approx(length, abs=4 * np.sqrt(rest * (1 - rest) / len(kept)) + 1e-9)


def test_the_rates_of_a_length_sum_to_the_kept_tokens():
    assert rates_of_length(3.0) == (1.0, 1.0)
    assert rates_of_length(2.6) == (1.0, pytest.approx(0.6))
    assert rates_of_length(1.0) == ()


def test_a_draft_shorter_than_the_length_is_kept_whole():
    assert set(kept_lengths(Synthetic(length=9.5), Draft([1, 2]))) == {2}


@pytest.mark.parametrize("length", [0.9, 0.0, -1.0, float("nan"), float("inf"), 2000.0])
def test_a_length_that_cannot_be_is_refused(length):
    with pytest.raises(UsageError, match="at least the target's own token"):
        Synthetic(length=length)


def test_a_length_and_rates_exclude_each_other():
    with pytest.raises(UsageError, match="both set"):
        Synthetic((0.5,), length=2.0)


# typical


ROWS = [[0.5, 0.25, 0.125, 0.125], [0.97, 0.03, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4]]


def verdict_of(rule: Typical, draft: Draft, rows: list[list[float]] = ROWS, u: float = 0.5) -> Verdict:
    p = torch.tensor(rows, dtype=torch.float64)
    return rule.verify(Case(draft, p.__getitem__, None), np.array([u]))


def test_typical_keeps_what_is_above_its_threshold():
    """Medusa's condition, by hand: min(0.09, 0.3 exp(-H)); the token after it is the likeliest."""
    bars = [threshold(torch.tensor(row, dtype=torch.float64), 0.09, 0.3) for row in ROWS]

    assert bars[0] == pytest.approx(min(0.09, 0.3 * 2**-1.75))
    assert bars[1] == 0.09
    assert verdict_of(Typical(), Draft([2, 0])).path == (0, 1)
    assert verdict_of(Typical(), Draft([2, 1])).path == (0,), "0.03 is less than 0.09, however sure the target is"
    assert verdict_of(Typical(), Draft([3, 0])).next_token == 3


def test_typical_keeps_the_longest_path_and_of_equal_ones_the_likeliest():
    rows = [[0.4, 0.6, 0.0], [0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    both = Draft([0, 1, 0, 1], parents=[-1, -1, 0, 1])
    longer = Draft([0, 1, 0, 2], parents=[-1, -1, 0, 2])

    assert verdict_of(Typical(), both, rows).path == (1, 3), "0.6 times 0.8 is more than 0.4 times 0.5"
    assert verdict_of(Typical(), longer, rows).path == (0, 2, 3)


def test_a_typical_token_may_be_drawn():
    """Then only accepted drafts change the distribution: without one the token has the target's."""
    rule = Typical(epsilon=0.2, delta=1.0, token="sampled")
    verdicts = [verdict_of(rule, Draft([3]), u=(2 * i + 1) / 16) for i in range(8)]

    assert {verdict.path for verdict in verdicts} == {()}
    assert [verdict.next_token for verdict in verdicts] == [0, 0, 0, 0, 1, 1, 2, 3]


@pytest.mark.parametrize("token, spent", [("greedy", 0.875 + 0.03 + 0.6), ("sampled", 0.875 + 0.03)])
def test_typical_says_what_it_spends(token, spent):
    """1 - p(x) for a token that is kept whatever the target draws; drawing costs nothing, the likeliest 1 - max p."""
    assert verdict_of(Typical(token=token), Draft([2, 0])).tv_distance == pytest.approx(spent)


@pytest.mark.parametrize("rule, spends", [("typical", True), ("block", False)])
def test_what_is_spent_is_summed_over_the_run(rule, spends):
    target = ToyTarget(**TINY)
    run = Run(target, [Sampler(near(target))], rule=rule)
    results = [run.generate([1, 2], max_tokens=8, sampling=SAMPLED, seed=seed).result for seed in range(3)]

    assert all((r.stats["tv_distance"] > 0) == spends for r in results)
    assert run.stats.report()["tv_distance"] == pytest.approx(sum(r.stats["tv_distance"] for r in results))


@pytest.mark.parametrize("settings", ["epsilon=1.5", "delta=-0.1", "token=best"])
def test_typical_settings_are_checked(settings, capsys):
    assert spec(["settings", "--rule", "typical", "-o", f"typical.{settings}"]) == 2
    assert "typical." in capsys.readouterr().err


# labels


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    """``spec`` on the toy target; returns exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)
    install(monkeypatch)
    (tmp_path / "prompts.jsonl").write_text('{"id": "a", "family": "one", "prompt": "HELLO"}')

    def call(name: str, *arguments: str) -> tuple[int, str, str]:
        code = spec([name, "-m", "toy:dense", "--method", "repeat", *arguments])
        return code, *capsys.readouterr()

    return call


PROMPT = ("-p", "HELLO", "-n", "12", "--temperature", "0.7")


@lossy
def test_a_result_says_that_it_is_lossy(rule):
    run = Run(ToyTarget(**TINY), [Sampler(near(ToyTarget(**TINY)))], rule=rule)

    assert run.generate([1, 2], max_tokens=5).result.stats["lossy"] == LOSSY[rule]
    assert run.stats.report()["lossy"] == LOSSY[rule]


def test_a_lossless_result_says_nothing():
    assert dense([Says(CHAIN)], rule="block").generate([1, 2], max_tokens=5).result.stats["lossy"] is None


@lossy
def test_generate_says_that_its_text_is_lossy(rule, command):
    _, _, err = command("generate", *PROMPT, "--rule", rule)
    _, out, with_json = command("generate", *PROMPT, "--rule", rule, "--json")

    assert f"LOSSY: {LOSSY[rule]}" in err
    assert f"LOSSY: {LOSSY[rule]}" in with_json
    assert json.loads(out)["stats"]["lossy"] == LOSSY[rule]


def test_generate_says_nothing_of_a_lossless_rule(command):
    _, out, err = command("generate", *PROMPT, "--rule", "block", "--json")

    assert "LOSSY" not in err
    assert json.loads(out)["stats"]["lossy"] is None


@lossy
def test_compat_says_that_a_rule_is_lossy(rule, command):
    assert f"{rule}: lossy: {LOSSY[rule]}" in command("compat", "--rule", rule)[1]


@lossy
def test_compare_labels_the_method_and_leaves_plain_decoding_alone(rule, command):
    """Plain decoding, the baseline, runs without the rule."""
    code, out, _ = command("compare", "--prompts", "prompts.jsonl", "-n", "12", "--rule", rule, "--json")
    rows = {row["contender"]: row for row in json.loads(out)["rows"]}

    assert code == 0
    assert rows["repeat"]["label"] == f"LOSSY: {LOSSY[rule]}"
    assert rows["plain"]["label"] is None


def test_compare_does_not_demand_equal_tokens_of_a_rule_with_coins_of_its_own(command):
    code, out, _ = command(
        "compare", "--prompts", "prompts.jsonl", "-n", "12", "--temperature", "1", "--rule", "block", "--json"
    )
    rows = {row["contender"]: row for row in json.loads(out)["rows"]}

    assert code == 0
    assert rows["repeat"]["label"] == "equal in distribution, not in tokens"


def test_settings_of_a_rule_are_given_by_name(command):
    _, out, _ = command("generate", *PROMPT, "--rule", "synthetic", "-o", "synthetic.rates=1,1", "--json")
    body = json.loads(out)

    assert body["stats"]["draft_acceptance"] == pytest.approx(2 / 3, abs=0.1), "two of three drafted tokens"
    assert body["stats"]["lossy"] == "synthetic acceptance at rates 1, 1: the text is meaningless"
