"""The command: exit codes, the page, JSON, requests to paste, continuation, budgets, keys."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import jsonschema
import pytest
import spec_audit
from spec_audit.audit import Audit, read_prompts, take_in_turns
from spec_audit.budget import BUDGETS
from spec_audit.checks import greedy, parameters, state
from spec_audit.page import report_page
from spec_audit.record import Record
from spec_audit.run import cost_of
from spec_audit.verdict import Result, Section, Verdict
from spec_cli.main import run_command
from spec_commands.prompts import Prompt
from spec_commands.servers.models import parse_switch

from spec_core.errors import UsageError
from tests.support.audits import audit_server, failing
from tests.support.stand_in import StandIn, listen

SCHEMA = json.loads((Path(spec_audit.__file__).parent / "schema.json").read_text("utf-8"))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "spec-core" / "audit"


def test_a_server_without_faults_is_answered_with_exit_code_0(tmp_path, capsys, cache):
    with listen(StandIn().answer) as url:
        assert run_command(["audit", url, "--json", "--report", str(tmp_path / "a.html")]) == 0
    output = capsys.readouterr()
    result = json.loads(output.out)

    jsonschema.validate(result, SCHEMA)
    assert "at most" in output.err.splitlines()[0] and "requests for" in output.err
    assert "0 of" in (tmp_path / "a.html").read_text("utf-8")
    assert not list(cache.iterdir())


def test_a_fault_is_exit_code_1_with_requests_to_paste(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TOY_KEY", "very-secret")
    page = tmp_path / "a.html"
    with listen(StandIn(logprobs_zero=1).answer) as url:
        assert run_command(["audit", url, "--key-env", "TOY_KEY", "--report", str(page)]) == 1
        output = capsys.readouterr()
    lines = [line.strip() for line in output.out.splitlines() if line.strip().startswith("curl")]
    bodies = [json.loads(shlex.split(line)[-1]) for line in lines]

    assert len(lines) == 2
    assert "speculative.n_max" not in bodies[0] and bodies[1]["speculative.n_max"] == 0
    assert '"Authorization: Bearer $TOY_KEY"' in lines[0]
    assert "very-secret" not in output.out + output.err + page.read_text("utf-8")


MISUSE = {
    "no address": (["nonsense"], "no address"),
    "two ways": (["http://h", "--plain", "http://p", "--off", "a=1"], "both passed"),
    "no switch": (["http://h", "--off", "a"], "is no switch"),
    "no key": (["http://h", "--key-env", "NOT_SET_ANYWHERE"], "no variable that is set"),
    "no server": (["http://127.0.0.1:9"], "does not answer"),
    "no prompts": (["http://h", "--prompts", "/nowhere.jsonl"], "nowhere.jsonl"),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse_is_exit_code_2(case, capsys):
    words, message = MISUSE[case]

    assert run_command(["audit", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (StandIn(refused=("speculative.n_max",), counts=False), "no known switch"),
        (StandIn(drafts=False), "no known switch"),
        (StandIn(refused=("prompt", "messages")), "refuses a plain request"),
    ],
    ids=["no switch", "no drafts", "refuses"],
)
def test_a_server_that_cannot_be_audited_is_exit_code_2(server, words, capsys):
    with listen(server.answer) as url:
        assert run_command(["audit", url]) == 2
    assert words in capsys.readouterr().err


def test_a_switch_without_effect_is_refused():
    with pytest.raises(UsageError, match="does not switch drafts off"):
        audit_server(StandIn(), off="unknown_field=0")


def test_an_interrupted_audit_sends_no_request_twice(tmp_path):
    whole = StandIn()
    expected = audit_server(whole, checks=[parameters])
    server, answer = StandIn(), None
    answer = server.answer

    def interrupt(path, body):
        if server.requests >= whole.requests // 2:
            raise KeyboardInterrupt
        return answer(path, body)

    server.answer = interrupt
    record = Record(tmp_path / "record", {"a": 1})
    with pytest.raises(KeyboardInterrupt):
        audit_server(server, checks=[parameters], record=record)
    record.close(remove=False)
    server.answer = answer
    with (tmp_path / "record").open("ab") as file:
        file.write(b'{"key": "half a li')
    result = audit_server(server, checks=[parameters], record=Record(tmp_path / "record", {"a": 1}))

    probes = 4
    assert [v.status for v in result.verdicts] == [v.status for v in expected.verdicts]
    assert server.requests <= whole.requests + probes + 4


def test_another_server_at_the_same_address_begins_again(capsys):
    """The record of an interrupted audit is that of the server that was audited."""
    first, second = StandIn(), StandIn()
    answer = second.answer
    servers = [first]

    def interrupt(path, body):
        if first.requests > 40 and servers[0] is first:
            first.answer = stop
        return servers[0].answer(path, body)

    def stop(path, body):
        return 302, "text/plain", []

    second.answer = lambda path, body: answer(path, {**body, "prompt": body.get("prompt", "") + "!"} if body else body)
    with listen(interrupt) as url:
        assert run_command(["audit", url]) == 2
        servers[0] = second
        assert run_command(["audit", url]) == 0
        assert "continuing" not in capsys.readouterr().err


def test_an_audit_continues_after_the_server_came_back(capsys):
    server, down = StandIn(), []

    def answer(path, body):
        if server.requests == 60 and not down:
            down.append(True)
            return 302, "text/plain", []
        return server.answer(path, body)

    with listen(answer) as url:
        assert run_command(["audit", url]) == 2
        assert run_command(["audit", url]) == 0
    assert "continuing after" in capsys.readouterr().err


def test_an_audit_whose_report_cannot_be_written_is_not_lost(tmp_path, capsys):
    server = StandIn()
    with listen(server.answer) as url:
        assert run_command(["audit", url, "--report", str(tmp_path / "none" / "a.html")]) == 2
        before = server.requests
        assert run_command(["audit", url, "--report", str(tmp_path / "a.html")]) == 0
    assert "continuing after" in capsys.readouterr().err
    assert server.requests <= before + 6


def test_the_record_of_another_audit_is_refused(tmp_path):
    Record(tmp_path / "record", {"seed": 1}).close(remove=False)

    with pytest.raises(UsageError, match="not the record of this audit"):
        Record(tmp_path / "record", {"seed": 2})


@pytest.mark.parametrize("line", ["{", "[]", '{"key": "a"}', '{"key": "a", "answer": {"x": 1}}', "[" * 100_000])
def test_a_damaged_record_is_refused(tmp_path, line):
    Record(tmp_path / "record", {}).close(remove=False)
    with (tmp_path / "record").open("a") as file:
        file.write(line + "\n")

    with pytest.raises(UsageError, match="is damaged"):
        Record(tmp_path / "record", {})


@pytest.mark.repeats(1)
@pytest.mark.parametrize("faults", [{}, {"stale_state": 1}, {"refused": ("n",)}], ids=["none", "stale", "no n"])
def test_no_audit_asks_for_more_than_it_announced(faults):
    """The session raises an error if it would."""
    server = StandIn(**faults)
    result = audit_server(server, speed=True)

    assert int(result.facts["requests"].replace(",", "")) <= cost_of(BUDGETS["small"]).requests


def test_the_page_escapes_what_a_server_writes():
    verdict = Verdict("promise", "fails", "<script>alert(1)</script>\x07", "", ("curl -d '<b>'",))
    page = report_page(Result({"server": "<i>"}, (Section("Greedy", (verdict,)),), ()))

    assert "<script>" not in page and "&lt;script&gt;" in page and "\x07" not in page


def test_switches_have_names_or_values():
    assert parse_switch("llama-server") == {"speculative.n_max": 0}
    assert parse_switch('speculative={"method": "none"}') == {"speculative": {"method": "none"}}
    assert parse_switch("drafts=off") == {"drafts": "off"}


def test_prompts_of_a_check_come_from_all_categories():
    audit = Audit(None, BUDGETS["small"], read_prompts(None), 0)

    assert len({prompt.family for prompt in audit.few("a")}) == 4
    assert audit.few("a") == audit.few("a") != audit.few("b")


def test_many_prompts_are_taken_from_all_categories_in_turn():
    prompts = [Prompt(str(i), "first" if i < 90 else "last", "text") for i in range(100)]

    assert [prompt.family for prompt in take_in_turns(prompts, 5)] == ["first", "last"] * 2 + ["first"]
    assert take_in_turns(prompts[:3], 5) == prompts[:3]


def test_a_difference_names_its_place_and_gap():
    result = audit_server(StandIn(stale_state=1), checks=[greedy, state])
    details = [v.detail for v in result.with_status("fails") if v.promise.startswith("greedy texts")]

    assert details and all("at character" in text and "apart" in text for text in details)
    assert failing(result)
