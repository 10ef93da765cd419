"""Every planted fault is found at ``medium``, and a server without one has no fault."""

from __future__ import annotations

import json
from random import Random

import httpx
import pytest
from spec_audit.audit import read_prompts
from spec_audit.checks import (
    accounts,
    distributions,
    greedy,
    logprobs,
    parameters,
    state,
    structured,
)
from spec_audit.probe import Connection

from spec_core.errors import UsageError
from tests.support.audits import audit_server, client_of, failing
from tests.support.stand_in import FAULTS, StandIn

QUICK = {
    "stop_leak": (0.4, parameters, "a stop text ends the text before it"),
    "logprobs_zero": (1, logprobs, "log-probabilities of generated tokens"),
    "penalties_ignored": (1, parameters, "presence penalty"),
    "penalties_twice": (1, parameters, "frequency penalty"),
    "other_prefix": (0.5, state, "prefixes A, B, A and its answer"),
    "seeds_ignored": (1, parameters, "seeds repeat"),
    "usage_of_drafts": (1, accounts, "usage equals that without drafts"),
    "characters_cut": (1, parameters, "characters are whole"),
    "grammar_passed": (0.3, structured, "JSON follows its schema"),
    "slot_kept": (1, state, "after a cancelled stream"),
}
SAMPLED = {"noise": 0.4, "wrong_q": 0.6, "no_residual": 0.6, "favoured": 0.15}
"""With the last one 0.60 becomes 0.66."""


@pytest.mark.parametrize("fault", QUICK)
def test_a_planted_fault_is_found(fault):
    strength, check, promise = QUICK[fault]

    assert promise in failing(audit_server(StandIn(**{fault: strength}), "medium", checks=[check]))


@pytest.mark.parametrize("strength", [1, 0.3, 0.1])
def test_a_stale_state_is_found_in_greedy_texts(strength):
    result = audit_server(StandIn(stale_state=strength), "medium", checks=[state])

    assert "steps with and without drafts in one text" in failing(result)
    assert any(promise.startswith("greedy texts") for promise in failing(result))


@pytest.mark.repeats(1)
@pytest.mark.slow
@pytest.mark.parametrize("fault", SAMPLED)
def test_a_wrong_distribution_is_found(fault):
    result = audit_server(StandIn(**{fault: SAMPLED[fault]}), "medium", checks=[distributions])

    assert {name.split(" at ")[0] for name in failing(result)} == {"distribution"}


def test_there_is_a_test_of_every_fault():
    assert {*QUICK, *SAMPLED, "stale_state"} == {*FAULTS}


@pytest.mark.release
def test_sixty_for_sixty_three_percent_is_found_at_large():
    assert failing(audit_server(StandIn(favoured=0.075), "large", checks=[distributions]))


@pytest.mark.parametrize("chat", [False, True])
def test_a_server_without_faults_has_none(chat):
    result = audit_server(StandIn(), chat=chat, speed=True)

    assert not failing(result)
    assert len(result.with_status("holds")) > 30
    assert result.speeds


@pytest.mark.release
def test_at_most_four_of_a_hundred_audits_alarm():
    servers = [StandIn() for _ in range(100)]
    for seed, server in enumerate(servers):
        server.chance = Random(seed)

    assert sum(bool(failing(audit_server(server, seed=seed))) for seed, server in enumerate(servers)) <= 4


DRAFTED = {"draft_n": 3, "draft_n_accepted": 1}
REFUSED = ("logprobs", "n", "seed", "logit_bias", "stop", "response_format", "top_k", "min_p", "frequency_penalty")


def test_what_a_server_refuses_is_skipped_and_no_fault():
    result = audit_server(StandIn(refused=REFUSED, counts=False), off="llama-server")
    skipped = {verdict.promise: verdict.detail for verdict in result.with_status("skipped")}

    assert not failing(result)
    assert skipped["a stop text ends the text before it"] == "refused (400): stop is refused"
    assert skipped["seeds repeat"] == "it does not hold without drafts"
    assert skipped["counts of draft tokens"] == "neither the answers nor /metrics count any in these texts"


def test_a_fault_is_found_without_log_probabilities():
    """More texts differ than greedy texts of the same server do."""
    result = audit_server(StandIn(refused=("logprobs",), slot_kept=1), "medium", checks=[state])

    assert "after a cancelled stream" in failing(result)


def test_greedy_texts_without_log_probabilities_differ_for_an_unknown_cause():
    result = audit_server(StandIn(refused=("logprobs",), stale_state=1), checks=[greedy])

    assert not failing(result)
    assert all("cause unknown" in v.detail for v in result.verdicts if v.promise.startswith("greedy texts"))


def test_a_server_that_drafts_nothing_is_not_audited():
    with pytest.raises(UsageError, match="nothing to audit"):
        audit_server(StandIn(drafts=False), off="llama-server", checks=[distributions])


def test_distributions_of_a_server_whose_drafts_are_rejected_are_not_tested():
    server = StandIn()
    generate = server.generate

    def hide(prompt, body, chat):
        kind, parts = generate(prompt, body, chat)
        if body.get("stream"):
            return kind, parts
        whole = json.loads(b"".join(parts))
        whole["timings"]["draft_n_accepted"] = 0
        return kind, [json.dumps(whole).encode()]

    server.generate = hide
    result = audit_server(server, checks=[distributions])

    assert {v.status for v in result.verdicts if v.promise.startswith("distribution")} == {"skipped"}
    assert "no draft token was accepted" in str(result.verdicts)


@pytest.mark.parametrize(("status", "error"), [(500, None), (200, UsageError)], ids=["after an error", "alone"])
def test_a_server_that_drafts_kill_has_a_fault(status, error):
    """Where no request was answered by an error, the server may have been stopped by its owner: no audit."""
    server, dead = StandIn(), []
    answer = server.answer

    def die(request):
        body = json.loads(request.content) if request.content else {}
        if dead:
            raise httpx.ConnectError("refused")
        if body.get("top_k") == 1 and body.get("speculative.n_max") != 0:
            dead.append(body)
            if status == 200:
                raise httpx.ConnectError("refused")
            return httpx.Response(500, content=iter([b'{"error": "engine died"}']))
        kind = answer(request.url.path, body)
        return httpx.Response(kind[0], headers={"content-type": kind[1]}, content=iter(kind[2]))

    server.handle = die
    if error:
        with pytest.raises(error, match="does not answer"):
            audit_server(server, checks=[parameters, state])
        return
    result = audit_server(server, checks=[parameters, state], speed=True)
    assert failing(result) == ["top_k 1 at T 2 is greedy"]
    assert {v.detail for v in result.sections[-1].verdicts[1:]} == {"the server stopped answering"}


def test_a_log_probability_that_is_no_number_is_a_fault():
    server = StandIn()
    generate = server.generate

    def spoil(prompt, body, chat):
        kind, parts = generate(prompt, body, chat)
        if body.get("logprobs") and body.get("speculative.n_max") != 0:
            parts = [b"".join(parts).replace(b'"token_logprobs": [-', b'"token_logprobs": [NaN, -')]
            whole = json.loads(parts[0])
            del whole["choices"][0]["logprobs"]["token_logprobs"][1]
            parts = [json.dumps(whole).encode()]
        return kind, parts

    server.generate = spoil

    assert failing(audit_server(server, checks=[logprobs])) == ["log-probabilities of generated tokens"]


def test_halves_of_surrogates_and_empty_texts_are_texts():
    for text in ("\ud800", ""):
        server = StandIn()
        server.generate = lambda prompt, body, chat, text=text: (
            "application/json",
            [json.dumps({"choices": [{"text": text}] * body.get("n", 1), "timings": DRAFTED}).encode()],
        )
        with pytest.raises(UsageError, match="does not switch drafts off"):
            audit_server(server)
        server.generate = lambda prompt, body, chat, text=text: (
            "application/json",
            [json.dumps({"choices": [{"text": text}] * body.get("n", 1)}).encode()],
        )

        assert not failing(audit_server(server, off="llama-server", speed=True))


def test_one_prompt_is_enough():
    prompts = read_prompts(None)[:1]

    assert not failing(audit_server(StandIn(), prompts=prompts))


def test_each_server_is_asked_for_its_own_model():
    """Of ``--plain``: two servers may name one model differently."""
    first, second, names = StandIn(), StandIn(), []
    connection = Connection("http://toy", "http://plain", None, None, False, 4, lambda url: client_of(handlers[url]))
    second.drafts = False

    def rename(request):
        if request.url.path == "/v1/models":
            return httpx.Response(200, content=iter([b'{"data": [{"id": "other"}]}']))
        names.append(json.loads(request.content)["model"])
        return second.handle(request)

    handlers = {"http://toy": first.handle, "http://plain": rename}
    session = connection.session()

    assert set(names) == {"other"}
    assert session.arms["drafts"].model == "toy"


def test_a_server_that_repeats_one_draw_is_not_tested_for_distributions():
    result = audit_server(StandIn(one_draw=True), checks=[distributions])
    verdicts = [v for v in result.verdicts if v.promise.startswith("distribution")]

    assert not failing(result)
    assert verdicts and all("the same text" in v.detail or "not independent" in v.detail for v in verdicts)


def test_an_error_that_only_drafts_cause_is_a_fault():
    server = StandIn()
    answer = server.answer

    def fail(path, body):
        broken = body.get("presence_penalty") and body.get("speculative.n_max") != 0
        return (500, "application/json", [b'{"error": {"message": "boom"}}']) if broken else answer(path, body)

    server.answer = fail
    result = audit_server(server, checks=[parameters])

    assert failing(result) == ["presence penalty"]
    assert "error 500 with drafts only: boom" in str(result.verdicts)
