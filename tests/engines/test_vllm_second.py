"""Methods in a stand-in for vLLM's second model runner: texts, drafts of any length, filler, ranks, its interface."""

from __future__ import annotations

from types import SimpleNamespace

import attrs
import pytest
import torch

from spec_core import Needs, Sampling, UsageError, hookimpl
from spec_core.host import sample_then_match
from tests.support import fake_second_runner, fake_vllm
from tests.support.fake_engine import Recorder
from tests.support.hugging_face import directory

VOCAB = 12
PROMPTS = {"a": [1, 2, 3, 4, 1, 2, 3, 4, 1, 2], "b": [5, 6, 7], "c": [3, 3, 3, 3, 3]}


def table_of(noise: float = 0.0, period: int = 7):
    """Logits after each token: texts go round, in this many tokens, with noise."""
    torch.manual_seed(0)
    rows = noise * torch.randn(VOCAB, VOCAB)
    for token in range(VOCAB):
        rows[token, (token + 1) % period] += 3.0
    return rows


@pytest.fixture
def second(monkeypatch):
    fake_vllm.install(monkeypatch, pico=fake_vllm.Tapped)
    from spec_engines.vllm import second

    return second


@pytest.fixture
def runner(second):
    """Makes a runner with methods."""

    def create_runner(methods, filler=False, table=None, coupled=False, **settings):
        config = fake_vllm.config(str(directory("zoo:pico")), ["ngram"], second=True)
        config.additional_config["spec"] |= {"coupled": coupled, "settings": settings}
        speculator = second.Speculator(config, torch.device("cpu"), fake_second_runner.states(4))
        speculator.asked = methods
        engine = fake_second_runner.StandIn(speculator, table_of() if table is None else table, filler)
        second.attach_drafter(engine)
        return engine

    return create_runner


@pytest.mark.parametrize("filler", [False, True])
@pytest.mark.parametrize("methods", [["ngram"], ["suffix"], ["recycling"], ["ngram", "suffix"]], ids="+".join)
def test_texts_equal_those_without_drafts(runner, methods, filler):
    off = runner(["ngram"]).run(PROMPTS, 40, extra_args={"spec_draft_max": 0})
    drafting = runner(methods, filler)
    assert drafting.run(PROMPTS, 40) == off
    assert drafting.speculator.report()["accepted"] > 40


def test_without_filler_no_row_is_evaluated_beside_drafts(runner):
    short, whole = runner(["ngram"]), runner(["ngram"], filler=True)
    assert short.run(PROMPTS, 12) == whole.run(PROMPTS, 12)
    assert whole.evaluated > short.evaluated


def test_filler_that_is_accepted_is_dropped_and_its_token_kept(second):
    """Request 0 drafted one token of three rows and all are accepted; request 1 drafted all of its rows."""
    batch = SimpleNamespace(cu_num_logits_np=[0, 4, 6])
    verdict = SimpleNamespace(
        num_sampled=torch.tensor([4, 1], dtype=torch.int32), num_rejected=torch.tensor([0, 1], dtype=torch.int32)
    )
    second.drop_filler(batch, verdict, [1, 1])
    assert (verdict.num_sampled.tolist(), verdict.num_rejected.tolist()) == ([2, 1], [2, 1])


def test_rows_of_hidden_states_are_those_of_committed_tokens(runner):
    recorder = Recorder(Needs(final=True, hidden=frozenset({1})))
    engine = runner([recorder])
    [text] = engine.run({"a": PROMPTS["a"]}, 12).values()
    [(_, spans)] = recorder.rows.items()
    tokens = [*PROMPTS["a"], *text]
    rows = torch.cat([span.final for span in spans])[:, 0].tolist()
    assert rows == [float(token) for token in tokens[: len(rows)]]
    assert torch.cat([span.hidden[1] for span in spans])[:, 0].tolist() == [10 * row for row in rows]
    assert len(rows) >= len(tokens) - 1


@pytest.mark.parametrize("filler", [False, True])
def test_requests_with_a_seed_get_the_tokens_of_the_seed(runner, filler):
    table = table_of(noise=0.5)
    engine = runner(["ngram"], filler, table=table, coupled=True)
    texts = engine.run(PROMPTS, 30, temperature=0.8, seed=5)
    for key, prompt in PROMPTS.items():
        text = list(prompt)
        while len(text) < len(prompt) + 30:
            row = table[text[-1]].view(1, -1)
            text += sample_then_match(row, [], text, len(prompt), Sampling(temperature=0.8), 5)
        assert texts[key] == text[len(prompt) :]
    assert engine.speculator.report()["accepted"] > 0


def test_a_method_that_fails_is_switched_off_and_texts_go_on(runner):
    @attrs.define(eq=False)
    class Broken:
        @hookimpl
        def draft(self, step):
            raise RuntimeError("broken")

    off = runner(["ngram"]).run(PROMPTS, 20, extra_args={"spec_draft_max": 0})
    engine = runner([Broken()])
    assert engine.run(PROMPTS, 20) == off
    assert list(engine.speculator.report()["switched_off"].values()) == [
        "plugin 'broken' failed in draft: RuntimeError: broken"
    ]


def test_requests_of_one_batch_have_their_own_switches(runner):
    engine = runner(["ngram"])
    taken: list[dict[str, list[int]]] = []
    take = engine.take_draft_token_ids
    engine.take_draft_token_ids = lambda: taken.append(dict(engine.speculator.drafts)) or take()
    engine.speculator.update([], [engine.admit("off", PROMPTS["a"], 20, {"extra_args": {"spec_draft_max": 0}})])
    engine.run(PROMPTS, 20)
    assert any(drafts["a"] for drafts in taken)
    assert not any(drafts["off"] for drafts in taken)


def test_a_rank_that_does_not_lead_takes_the_drafts_of_the_one_that_does(second, monkeypatch):
    ranks = fake_vllm.Ranks(torch.tensor([[2, 7, 8, 0], [0, 0, 0, 0]]))
    monkeypatch.setattr(second, "get_tp_group", lambda: ranks)
    assert second.share_drafts({}, ["a", "b"], 3, torch.device("cpu")) == {"a": [7, 8], "b": []}


def test_requests_of_vllm_that_warm_kernels_up_are_not_drafted_for(runner):
    engine = runner(["ngram"])
    engine.speculator.warming = True
    engine.run(PROMPTS, 12)
    assert engine.speculator.report()["requests"] == 0


def test_a_request_that_vllm_takes_up_again_has_no_draft(runner):
    engine = runner(["ngram"])
    engine.speculator.drafts["a"] = [1, 2]
    engine.speculator.update([], [SimpleNamespace(req_id="a")])
    assert "a" not in engine.speculator.drafts


def test_the_runner_makes_this_drafter_and_later_its_own(second):
    theirs = second.model_runner.init_speculator
    with second.replace_drafter():
        assert second.model_runner.init_speculator is second.Speculator
    assert second.model_runner.init_speculator is theirs


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("BaseSpeculator.propose(aux_hidden_states)", "base"),
        ("GPUModelRunner.take_draft_token_ids", "runner"),
        ("model_runner.init_speculator", "name"),
    ],
)
def test_another_interface_is_refused_with_what_it_lacks(second, monkeypatch, name, change):
    def propose(self, input_batch, attn_metadata, slot_mappings, last_hidden_states, num_sampled, dummy_run,
                num_speculative_tokens):  # fmt: skip
        """Without the tapped states."""

    if change == "base":
        monkeypatch.setattr(fake_vllm.BaseSpeculator, "propose", propose)
    elif change == "runner":
        monkeypatch.delattr(fake_vllm.GPUModelRunner, "take_draft_token_ids")
    else:
        monkeypatch.delattr(second.model_runner, "init_speculator")
    with (
        pytest.raises(UsageError, match="second model runner has another interface") as refused,
        second.replace_drafter(),
    ):
        pass
    assert name in str(refused.value)
