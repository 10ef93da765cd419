"""Methods inside SGLang, without SGLang: what drafts do in its loop, and what is refused before weights are read."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError

import pytest
import spec_engines.sglang as adapter
import torch
from click.testing import CliRunner
from spec_engines.hosted.requests import Requests
from spec_engines.sglang import ALGORITHM, VARIABLE, check_installed, entry, options
from spec_engines.sglang.chains import FILLER, Chains, Text
from spec_engines.sglang.command import sglang
from spec_engines.sglang.model import SERVES

from spec_core import Needs, Refused, Request, Run, UsageError, load
from spec_core.host import EngineModel, Host
from spec_core.testing import ToyTarget
from spec_core.toolkit import evaluate
from tests.support import fake_sglang
from tests.support.hugging_face import directory

PROMPTS = [[5, 9, 11, 2, 5, 9, 11, 2, 5, 9], [300, 301, 302, 300, 301], [7] * 6]
METHODS = ["ngram", "suffix", "recycling", "draft-model=zoo:pico-draft"]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def target():
    return load("zoo:pico", device="cpu")


def start(monkeypatch, target, methods, draft_max=4, **more):
    """The worker that SGLang makes."""
    server_options = options(methods, draft_max, **more)
    fake_sglang.install(monkeypatch, server_options["speculative_num_draft_tokens"])
    from spec_engines.sglang.interface import Worker

    args = fake_sglang.server_args(str(directory("zoo:pico")), **server_options)
    return Worker(args, 0, 0, fake_sglang.TargetWorker(target))


def requests(tokens=24, **more):
    return [fake_sglang.request(f"{i}", prompt, tokens + i, **more) for i, prompt in enumerate(PROMPTS)]


@pytest.mark.parametrize("method", METHODS)
def test_texts_are_those_of_plain_decoding_and_acceptance_that_of_this_projects_loop(monkeypatch, target, method):
    worker = start(monkeypatch, target, [method])
    texts = fake_sglang.serve(worker, requests())
    own = Run(target, [method], draft_max=4, nodes_max=4)
    plain = [own.generate(p, max_tokens=24 + i, ignore_eos=True).result.tokens for i, p in enumerate(PROMPTS)]

    assert texts == plain
    report, expected = worker.spec_report(), own.stats.report()
    assert report["accepted"] > 0 and report["switched_off"] == {}
    assert report["accepted"] == pytest.approx(expected["accepted"], rel=0.2)


def test_a_method_reads_the_logits_of_rows_that_a_sampler_has_overwritten(monkeypatch, target):
    worker = start(monkeypatch, target, ["recycling"])
    seen = []
    worker.chains.requests.host.observe(lambda step: seen.append(step.output.logits) if step.output else None)
    (text,) = fake_sglang.serve(worker, requests()[:1])
    rows = torch.cat([rows for rows in seen if len(rows)])

    assert rows.isfinite().all()
    whole = evaluate(target, [*PROMPTS[0], *text], Needs(all_logits=True)).logits
    assert torch.allclose(rows[0], whole[len(PROMPTS[0]) - 1], atol=1e-4)


def test_requests_of_a_batch_join_and_end_at_any_time(monkeypatch, target):
    worker = start(monkeypatch, target, ["ngram"])
    first, second = requests()[:2]
    fake_sglang.serve(worker, [first])
    texts = fake_sglang.serve(worker, [second])
    assert worker.chains.requests.running == {"1"}
    worker.clear_cache_pool()

    assert worker.chains.requests.running == set()
    assert texts == [Run(target).generate(PROMPTS[1], max_tokens=25, ignore_eos=True).result.tokens]


@pytest.mark.parametrize("switch", [{"spec_draft_max": 0}, {"spec_methods": ""}])
def test_a_request_can_switch_drafts_off(monkeypatch, target, switch):
    worker = start(monkeypatch, target, ["ngram"])
    fake_sglang.serve(worker, requests(custom_params=switch))
    assert worker.spec_report()["drafted"] == 0


# chains of fixed width


def chains_of(methods, width=4, **settings):
    return Chains(Requests(Host(EngineModel(ToyTarget().info), methods, SERVES, **settings)), width)


def text(tokens, rows=None):
    return Text(tokens, lambda prompt: Request(prompt, max_tokens=40, ignore_eos=True), rows)


def committed_tokens(chains):
    """Tokens that the host was told."""
    return sum(len(seq.tokens) - seq.prompt_len for seq in chains.requests.host._sequences.values())


LOOP = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]


def test_a_row_is_the_last_token_its_draft_and_filler():
    chains = chains_of(["ngram"])
    rows = chains.step({"a": text([*LOOP, 3]), "b": text([5, 6, 7])}, 100)
    assert rows.tolist() == [[3, 4, 1, 2], [7, FILLER, FILLER, FILLER]]


def test_filler_that_was_accepted_is_told_as_tokens_of_their_own():
    chains = chains_of(["ngram"])
    chains.step({"a": text([5, 6, 7])}, 100)
    chains.step({"a": text([5, 6, 7, FILLER, FILLER, 9])}, 100)

    assert committed_tokens(chains) == 4
    assert chains.requests.report()["drafted"] == 0
    assert not chains.requests.host.stats.switched_off


def test_filler_behind_an_accepted_draft_is_told_behind_it():
    chains = chains_of(["ngram"], width=6, draft_max=2)
    rows = chains.step({"a": text([*LOOP, 3])}, 100)
    assert rows.tolist() == [[3, 4, 1, FILLER, FILLER, FILLER]]
    chains.step({"a": text([*LOOP, 3, 4, 1, FILLER, 8])}, 100)

    report = chains.requests.report()
    assert (report["drafted"], report["accepted"], committed_tokens(chains)) == (2, 2, 5)


def test_a_request_that_comes_back_begins_anew():
    """SGLang takes a request out of the batch when its cache is full, and evaluates prompt and output again."""
    chains = chains_of(["ngram"])
    chains.step({"a": text([*LOOP, 3])}, 100)
    chains.step({"b": text([5, 6])}, 100)
    rows = chains.step({"a": text([*LOOP, 3, 4]), "b": text([5, 6, 7])}, 100)

    assert rows[0].tolist() == [4, 1, 2, 3]
    assert chains.requests.report()["requests"] == 1


def test_nothing_is_drafted_near_the_end_of_the_context():
    chains = chains_of(["ngram"])
    assert chains.step({"a": text([*LOOP, 3])}, len(LOOP) + 2).tolist() == [[3, FILLER, FILLER, FILLER]]


# what SGLang asks before it reads weights


@pytest.fixture
def algorithm(monkeypatch):
    table = fake_sglang.install(monkeypatch)
    entry.register()
    return table.algorithms[ALGORITHM]


def test_the_algorithm_is_registered_and_sets_what_it_needs(algorithm):
    from spec_engines.sglang.interface import Worker

    args = fake_sglang.server_args("anything")
    algorithm.handle_server_args(args)

    assert algorithm.factory(args).__name__ == Worker.__name__
    assert algorithm.is_ngram() and not algorithm.has_draft_kv() and not algorithm.need_topk()
    assert (args.speculative_num_draft_tokens, args.speculative_num_steps, args.speculative_eagle_topk) == (9, 8, 1)
    assert args.disable_overlap_schedule and not args.enable_mixed_chunk
    assert algorithm.create_future_map("cpu", None, needs_cpu_seq_lens=True).spec_algo is algorithm


@pytest.fixture
def no_weights(monkeypatch):
    def read(*_, **__):
        raise AssertionError("weights were read")

    monkeypatch.setattr("spec_core.host.driver.load_weights", read)
    monkeypatch.setattr("safetensors.torch.load_file", read)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("eagle3=zoo:pico-eagle3", "eagle3: it needs hidden states between blocks"),
        ("dflash=zoo:pico-dflash", "dflash: it needs hidden states between blocks"),
        ("mtp=zoo:pico-hybrid", "mtp: it needs the hidden state after the final norm"),
        ("prediction", "prediction: it needs predictions of requests"),
    ],
)
def test_methods_that_read_more_are_refused_before_weights_are_read(algorithm, no_weights, method, message):
    options([method])
    with pytest.raises(Refused, match=message):
        algorithm.validate_server_args(fake_sglang.server_args(str(directory("zoo:pico"))))


@pytest.mark.parametrize(
    ("more", "message"),
    [({"pp_size": 2}, "pp_size is 2"), ({"enable_dp_attention": True}, "enable_dp_attention is on")],
)
def test_settings_that_drafts_were_not_made_for_are_refused(algorithm, no_weights, more, message):
    options(["ngram"])
    algorithm.validate_server_args(fake_sglang.server_args(str(directory("zoo:pico"))))
    with pytest.raises(UsageError, match=message):
        algorithm.validate_server_args(fake_sglang.server_args(str(directory("zoo:pico")), **more))


@pytest.mark.parametrize(
    ("value", "message"), [(None, "names no methods"), ("ngram", "JSON was needed"), ("{}", "no method was named")]
)
def test_an_environment_without_methods_is_refused(algorithm, monkeypatch, value, message):
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(UsageError, match=message):
        algorithm.validate_server_args(fake_sglang.server_args(str(directory("zoo:pico"))))


def test_unknown_versions_are_refused_by_name_with_what_is_known(monkeypatch):
    monkeypatch.setattr(adapter, "version", lambda package: "0.5.24")
    with pytest.raises(UsageError, match=r"SGLang is 0\.5\.24; its workers are known of 0\.5\.23"):
        check_installed()

    def missing(package):
        raise PackageNotFoundError

    monkeypatch.setattr(adapter, "version", missing)
    with pytest.raises(UsageError, match="SGLang is not installed"):
        check_installed()


def test_the_launcher_checks_the_methods_and_prints_the_command(monkeypatch):
    fake_sglang.install(monkeypatch)
    words = ["serve", str(directory("zoo:pico")), "--dry-run", "--draft-max", "5", "--method"]
    printed = json.loads(CliRunner().invoke(sglang, [*words, "ngram", "--", "--tp-size", "2"]).output)

    assert printed["command"][1:5] == ["-m", "sglang.launch_server", "--model-path", str(directory("zoo:pico"))]
    assert printed["command"][5:] == [
        *("--speculative-algorithm", ALGORITHM, "--speculative-num-draft-tokens", "6"),
        *("--disable-overlap-schedule", "--tp-size", "2"),
    ]
    assert json.loads(printed[VARIABLE])["methods"] == ["ngram"]
    with pytest.raises(Refused, match="eagle3: it needs hidden states"):
        raise CliRunner().invoke(sglang, [*words, "eagle3=zoo:pico-eagle3"]).exception
