"""Requests of vLLM in a host, without vLLM: the parts of the adapter that know nothing of its insides."""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError

import attrs
import pytest
import spec_engines.vllm as adapter
import torch
from click.testing import CliRunner
from spec_engines.hosted.requests import Requests, Share, switch_fields
from spec_engines.vllm import check_installed, options
from spec_engines.vllm.command import vllm
from spec_engines.vllm.metrics import COUNTED, Counters
from spec_engines.vllm.model import SERVES, describe_model, names_of

from spec_core import Needs, Refused, Request, UsageError, hookimpl
from spec_core.host import EngineModel, Host, check_methods
from spec_core.testing import ToyTarget
from tests.engines.models import directory
from tests.support.fake_engine import Recorder

PROMPT = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]


def requests_of(methods, **settings) -> Requests:
    return Requests(Host(EngineModel(ToyTarget().info), methods, SERVES, **settings))


def request_of(prompt, **more):
    return lambda key: Request(prompt, max_tokens=20, ignore_eos=True, **more)


def test_a_request_is_begun_once_drafted_for_and_ended():
    requests = requests_of(["ngram"])
    drafts = requests.step([Share("a", 0, 10, tokens=(3,))], request_of(PROMPT), 8)
    assert drafts["a"][:3] == [4, 1, 2]
    requests.step([Share("a", 10, 1 + len(drafts["a"]), len(drafts["a"]), (4, 1, 9))], request_of([7]), 8)
    assert requests.report()["accepted"] == 2
    requests.end(["a", "unknown"])

    assert (requests.running, requests.report()["requests"]) == (set(), 1)


def test_counts_are_published_when_a_request_ends():
    published = []
    requests = requests_of(["ngram"])
    requests.publish = published.append
    requests.step([Share("a", 0, 10, tokens=(3,))], request_of(PROMPT), 8)
    requests.step([Share("a", 10, 3, 2, (4, 1, 2))], request_of(PROMPT), 8)
    assert published == []
    requests.end(["a"])
    requests.end(["a"])

    assert [(report["requests"], report["accepted"]) for report in published] == [(1, 2)]


def test_no_draft_is_longer_than_the_engine_takes():
    requests = requests_of(["ngram"])
    assert requests.step([Share("a", 0, 10, tokens=(3,))], request_of(PROMPT), 0) == {}


def test_a_draft_of_which_the_scheduler_took_a_part_counts_as_far_as_it_was_verified():
    requests = requests_of(["ngram"])
    requests.step([Share("a", 0, 10, tokens=(3,))], request_of(PROMPT), 8)
    requests.step([Share("a", 10, 2, 1, (4, 9))], request_of(PROMPT), 8)

    assert (requests.report()["drafted"], requests.report()["accepted"]) == (1, 1)


def test_a_resumed_request_tells_no_row_twice():
    """vLLM frees the cache of a preempted request, and evaluates prompt and output again."""
    recorder = Recorder(Needs(final=True))
    requests = requests_of([recorder])
    final = torch.arange(40.0).view(-1, 1)
    first = Share("a", 0, 10, tokens=(3,), final=final[:10])
    again = Share("a", 0, 6, final=final[:6])
    rest = Share("a", 6, 5, tokens=(4,), final=final[6:11])
    for share in (first, again, rest):
        requests.step([share], request_of(PROMPT), 0)

    [(_, spans)] = recorder.rows.items()
    assert [token for span in spans for token in span.tokens] == [*PROMPT, 3]
    assert torch.equal(torch.cat([span.final for span in spans]), final[:11])


def test_parts_of_prompts_are_told_only_where_hidden_states_are_read():
    requests = requests_of(["ngram"])
    requests.step([Share("a", 4, 3)], request_of(PROMPT), 8)  # the first four rows were cached
    assert requests.step([Share("a", 7, 3, tokens=(3,))], request_of(PROMPT), 8)["a"]


def test_a_request_that_no_plugin_can_serve_runs_without_drafts(caplog):
    requests = requests_of(["ngram"])

    def refuses(key):
        raise UsageError("its prompt is not given as tokens", hint="give token ids")

    assert requests.step([Share("a", 0, 10, tokens=(3,))], refuses, 8) == {}
    assert requests.step([Share("a", 10, 1, tokens=(3,))], request_of(PROMPT), 8) == {}
    assert "a runs without drafts: its prompt is not given as tokens" in caplog.text


def test_a_method_that_fails_is_switched_off_and_others_draft():
    @attrs.define(eq=False)
    class Broken:
        @hookimpl
        def draft(self, step):
            raise RuntimeError("broken")

    requests = requests_of([Broken(), "ngram"], on_error="isolate")
    assert requests.step([Share("a", 0, 10, tokens=(3,))], request_of(PROMPT), 8)["a"]
    assert list(requests.report()["switched_off"].values()) == ["plugin 'broken' failed in draft: RuntimeError: broken"]


@pytest.mark.parametrize("extra", [{"spec_draft_max": 0}, {"spec_methods": ""}])
def test_a_request_can_switch_drafts_off(extra):
    requests = requests_of(["ngram"])
    assert requests.step([Share("a", 0, 10, tokens=(3,))], request_of(PROMPT, **switch_fields(extra)), 8) == {}


def test_an_unknown_switch_is_refused_by_name():
    assert switch_fields({"other": 1}) == {} == switch_fields(None)
    assert switch_fields({"spec_methods": "ngram,suffix"}) == {"methods": ("ngram", "suffix")}
    with pytest.raises(UsageError, match="spec_draft_mx is no switch of a request"):
        switch_fields({"spec_draft_mx": 1})


def test_unknown_versions_are_refused_by_name_with_what_is_known(monkeypatch):
    monkeypatch.setattr(adapter, "version", lambda package: "0.34.1+cpu")
    with pytest.raises(UsageError, match=r"vLLM is 0\.34\.1\+cpu; its model runners are known of 0\.32\.0, 0\.33\.0"):
        check_installed()

    def missing(package):
        raise PackageNotFoundError

    monkeypatch.setattr(adapter, "version", missing)
    with pytest.raises(UsageError, match="vLLM is not installed"):
        check_installed()
    monkeypatch.setattr(adapter, "version", lambda package: "0.32.0")
    assert check_installed() == "0.32.0"


def test_every_installed_method_is_a_class_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "spec_engines.vllm.proposer", type("Fake", (), {"Proposer": object}))
    from spec_engines.vllm import methods

    assert methods.draft_model.methods == ("draft-model",)
    with pytest.raises(AttributeError, match=r"no method is called ngrm; installed: .*ngram"):
        _ = methods.ngrm


def test_methods_are_refused_by_metadata():
    with pytest.raises(Refused, match="has no NextN layer"):
        check_methods(describe_model(str(directory("llama"))), ["mtp"], SERVES)
    with pytest.raises(UsageError, match="is not a directory"):
        describe_model("someone/some-model")
    with pytest.raises(UsageError, match="no method was named"):
        names_of({"methods": []})


def dry_run(monkeypatch, *words: str):
    monkeypatch.setattr(adapter, "version", lambda package: "0.32.0")
    return CliRunner().invoke(vllm, ["serve", str(directory("llama")), "--dry-run", *words])


def test_serve_checks_methods_and_writes_the_command_of_vllm(monkeypatch):
    arguments = dry_run(
        monkeypatch, "--method", "ngram", "--draft-max", "5", "-o", "ngram.draft_max=3", "--", "--port", "9"
    )
    command = json.loads(arguments.stdout)
    spec = json.loads(command[command.index("--additional-config") + 1])["spec"]

    assert command[2:4] == ["vllm.entrypoints.openai.api_server", "--model"] and command[-2:] == ["--port", "9"]
    assert json.loads(command[command.index("--speculative-config") + 1])["num_speculative_tokens"] == 5
    assert (spec["methods"], spec["plugins"]["ngram"]) == (["ngram"], {"draft_max": "3"})
    assert "--no-enable-prefix-caching" not in command


def test_serve_refuses_before_vllm_starts(monkeypatch):
    command = dry_run(monkeypatch, "--method", "mtp")
    assert isinstance(command.exception, Refused) and "has no NextN layer" in str(command.exception)


def test_options_are_those_of_vllm():
    config = options(["ngram"], 4, control="auto", on_error="raise")
    assert config["speculative_config"]["num_speculative_tokens"] == 4
    assert config["additional_config"]["spec"]["settings"] == {"on_error": "raise"}
    assert names_of(config["additional_config"]["spec"]) == ["ngram", "auto"]


def test_counters_are_raised_to_what_a_report_says(monkeypatch):
    prometheus = pytest.importorskip("prometheus_client")
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    assert Counters.create() is None
    counters = Counters()
    report = {"methods": {"ngram": {"drafts": 2, "drafted": 9, "accepted": 4}}, "seconds": {"draft.ngram": 0.5}}
    counters(report)
    counters(report | {"methods": {"ngram": {"drafts": 3, "drafted": 12, "accepted": 6}}})

    metrics = prometheus.generate_latest().decode()
    assert 'spec:spec_decode_num_accepted_tokens_total{method="ngram"} 6.0' in metrics
    assert 'spec:hook_seconds_total{hook="draft.ngram"} 0.5' in metrics
    assert len(COUNTED) == 3
