"""``spec compare --url``: servers as contenders, what they cannot tell, and servers that lie or misbehave."""

from __future__ import annotations

import json
from contextlib import ExitStack
from itertools import repeat

import pytest
from spec_cli.main import run_command
from spec_commands.http_client import hide_secrets
from spec_compare.exports import bundle
from spec_compare.figures.outcome import recompute_outcome
from spec_compare.records.reading import read_results
from spec_compare.records.record import ServedText

from tests.support.served import serving
from tests.support.stand_in import listen
from tests.support.story_server import STREAM, WORDS, StoryServer, event

KEY = "sk-very-secret-key"


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"id": f"p{i}", "family": "a", "prompt": f"text {i}"}) + "\n" for i in range(5)))
    return path


def compare(servers, *words):
    """The exit code of a comparison of these {name: server}."""
    with ExitStack() as stack:
        urls = {name: stack.enter_context(listen(server.answer)) for name, server in servers.items()}
        named = [word for name, url in urls.items() for word in ("--url", f"{name}={url}")]
        return run_command(["compare", *named, "-n", "24", *map(str, words)])


def summary(capsys):
    return json.loads(capsys.readouterr().out)


def row_of(body, name):
    return next(row for row in body["rows"] if row["contender"] == name and row["family"] == "all")


def test_the_first_server_is_the_baseline(prompts, capsys):
    assert compare({"plain": StoryServer(), "fast": StoryServer(4)}, "--prompts", prompts, "--json") == 0
    body = summary(capsys)
    fast = row_of(body, "fast")

    assert row_of(body, "plain")["speedup"] == 1
    assert fast["speedup"] > 1.5 and fast["low"] is not None
    assert fast["tokens_per_step"] == pytest.approx(23 / 6)
    assert fast["identical"] == fast["prompts"] == 5
    assert any("weights" in line for line in body["unknown"])


def test_our_own_servers_and_every_export(prompts, tmp_path, capsys):
    out = tmp_path / "out"
    with serving("zoo:pico") as plain, serving("zoo:pico", ["ngram"]) as drafts:
        words = ["--url", f"plain={plain.url}", "--url", f"ngram={drafts.url}/v1", "--prompts", str(prompts)]
        assert run_command(["compare", *words, "-n", "24", "--out", str(out)]) == 0
    stored = recompute_outcome(read_results(out))
    assert next(r for r in stored.rows if r.contender == "ngram" and r.family == "all").tokens_per_step > 1

    assert run_command(["compare", "show", str(out), "--json"]) == 0
    assert run_command(["compare", "export", str(out), "--csv", str(tmp_path / "t.csv")]) == 0
    assert run_command(["compare", "export", str(out), "--texts", str(tmp_path / "x.csv")]) == 0
    assert run_command(["compare", "export", str(out), "--latex", str(tmp_path / "t.tex")]) == 0
    assert run_command(["compare", "report", str(out), str(tmp_path / "r.html")]) == 0
    assert run_command(["compare", "bundle", str(out), str(tmp_path / "b.zip")]) == 0
    assert bundle.check_bundle(tmp_path / "b.zip")[0].unknown == stored.unknown
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "What is not known of them" in page and "unknown, unknown" not in page
    assert run_command(["compare", "--rerun", str(tmp_path / "b.zip")]) == 2
    assert run_command(["compare", "export", str(out), "--golden", str(tmp_path / "g")]) == 2
    assert "cannot start" in capsys.readouterr().err


def test_servers_take_turns(prompts):
    order = []

    class Noted(StoryServer):
        def answer(self, path, body):
            if "prompt" in body:
                order.append((self.model, body["prompt"]))
            return super().answer(path, body)

    compare({"a": Noted(model="a"), "b": Noted(model="b")}, "--prompts", prompts, "--repeats", "2")

    measured = [name for name, _ in order[4:]]  # after a probe and a warm-up each
    assert len(measured) == 20
    assert all(set(measured[i : i + 2]) == {"a", "b"} for i in range(0, 20, 2))


def test_texts_that_differ_have_no_speed_unless_it_is_asked_for(prompts, capsys):
    other = [*WORDS[:7], " other", *WORDS[8:]]
    servers = {"plain": StoryServer(), "fast": StoryServer(4, words=other)}

    assert compare(servers, "--prompts", prompts, "--json") == 1
    body = summary(capsys)
    assert row_of(body, "fast")["speedup"] is None
    assert body["differences"][0]["unit"] == "character"
    assert body["differences"][0]["position"] == len("".join(WORDS[:7])) + 1

    assert compare(servers, "--prompts", prompts, "--json", "--unequal") == 0
    fast = row_of(summary(capsys), "fast")
    assert fast["speedup"] > 1 and fast["label"] == "another server" and fast["identical"] == 0


def test_sampled_texts_are_not_compared(prompts, capsys):
    servers = {"plain": StoryServer(), "other": StoryServer(words=WORDS[::-1])}

    assert compare(servers, "--prompts", prompts, "--json", "--temperature", "0.8") == 0
    assert row_of(summary(capsys), "other")["label"].startswith("sampled")
    sent = servers["plain"].bodies[-1]
    assert sent["temperature"] == 0.8 and {"top_p", "top_k", "min_p", "seed"} <= sent.keys()


def test_drafts_are_switched_off_for_one_of_two_names_of_a_server(prompts, capsys):
    server = StoryServer(4)

    assert compare({"plain": server, "drafts": server}, "--prompts", prompts, "--json", "--off", "plain=spec") == 0
    body = summary(capsys)
    assert (row_of(body, "plain")["tokens_per_step"], row_of(body, "drafts")["draft_acceptance"]) == (
        1.0,
        pytest.approx(17 / 48),
    )


def test_counts_of_metrics_are_used_where_answers_have_none(prompts, capsys):
    fast = StoryServer(4, timings=False, metrics=True)

    assert compare({"plain": StoryServer(timings=False), "fast": fast}, "--prompts", prompts, "--json") == 0
    body = summary(capsys)
    assert row_of(body, "fast")["mean_acceptance_length"] == pytest.approx(1 + 17 / 6)
    assert row_of(body, "plain")["tokens_per_step"] is None
    assert any("plain" in line and "neither" in line for line in body["unknown"])


def test_counters_that_have_requests_of_others_are_not_used(prompts, capsys, monkeypatch):
    monkeypatch.setattr("spec_compare.servers.measuring.WAIT", 0)
    fast = StoryServer(4, timings=False, metrics=True, others=3)

    assert compare({"plain": StoryServer(), "fast": fast}, "--prompts", prompts, "--json") == 0
    assert row_of(summary(capsys), "fast")["tokens_per_step"] is None


@pytest.mark.parametrize("text", ["1e999", "-1", "NaN", "9e30"])
def test_counters_that_are_impossible_are_not_used(text, prompts, capsys, monkeypatch):
    monkeypatch.setattr("spec_compare.servers.measuring.WAIT", 0)

    class Odd(StoryServer):
        def metric_text(self):
            value = text if self.bodies else "0"
            names = ("num_draft_tokens", "num_accepted_tokens")
            return "".join(f"vllm:spec_decode_{name}_total {value}\n" for name in names).encode()

    odd = Odd(4, timings=False, metrics=True)
    assert compare({"plain": StoryServer(), "odd": odd}, "--prompts", prompts, "--json", "--limit", "1") == 0
    assert row_of(summary(capsys), "odd")["draft_acceptance"] is None


def test_a_comparison_continues(prompts, tmp_path, capsys):
    out, words = tmp_path / "out", ("--prompts", prompts, "--out")
    broken = StoryServer(4)
    broken.answer_all, broken.left = broken.answer, 4

    def stop(path, body):
        broken.left -= "prompt" in body
        return broken.answer_all(path, body) if broken.left > 0 else (500, "application/json", [b'{"error": "full"}'])

    broken.answer = stop
    plain = StoryServer()
    with ExitStack() as stack:
        urls = [stack.enter_context(listen(lambda path, body, s=s: s.answer(path, body))) for s in (plain, broken)]
        named = ["--url", f"plain={urls[0]}", "--url", f"fast={urls[1]}"]
        command = ["compare", *named, "-n", "24", *map(str, words), str(out)]
        assert run_command(command) == 2
        assert "fast, p" in capsys.readouterr().err
        done = len(read_results(out).laps)
        broken.answer = broken.answer_all
        assert 0 < done < 10
        assert run_command(command) == 0
    assert len(read_results(out).laps) == 10


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (StoryServer(usage=False), "no usage"),
        (StoryServer(count=1000), "counts 1000 tokens, but at most 24"),
        (StoryServer(before=[event({"choices": "x"})]), "without choices"),
        (StoryServer(before=[b"data: {half\n\n"]), "no JSON"),
        (StoryServer(before=repeat(event({"choices": []}), 10_000)), "streamed 392 events"),
        (StoryServer(before=[b"data: null\n\n"]), "without choices"),
        (StoryServer(before=[b"data: [1]\n\n"]), "without choices"),
        (StoryServer(before=[b"data: \xff\xfe\n\n"]), "no JSON"),
        (StoryServer(before=[event({"choices": [{"text": 3}]})]), "without choices"),
        (StoryServer(count=-5), "no usage"),
        (StoryServer(count=1 << 70), "no usage"),
        (StoryServer(instead=(200, STREAM, [])), "ended before the text"),
        (StoryServer(instead=(200, STREAM, [b"<html>"])), "ended before the text"),
        (StoryServer(before=[event({"error": {"message": "broken"}})]), "answered 500: 'broken'"),
        (StoryServer(instead=(200, STREAM, [event({"choices": [{"text": "a"}]})])), "ended before the text"),
        (StoryServer(instead=(500, "text/html", [b"<html>oops"])), "answered 500"),
        (StoryServer(instead=(200, "text/html", [b"<html>oops"])), "without JSON"),
        (StoryServer(instead=(200, "application/json", [b'{"choices": [{"text": "a"}]}'])), "not with a stream"),
        (StoryServer(instead=(302, "text/html", [], ("location", "http://x/secret"))), "redirects to 'http://x/...'"),
        (StoryServer(instead=(404, "application/json", [b'{"error": "no model"}'])), "--url-model"),
        (StoryServer(instead=(401, "application/json", [b'{"error": "no"}'])), "a key is needed"),
    ],
)
def test_a_server_that_cannot_be_measured_is_named(server, words, prompts, capsys):
    assert compare({"plain": StoryServer(), "odd": server}, "--prompts", prompts) == 2
    error = capsys.readouterr().err
    assert words in error and "odd" in error


def test_a_text_in_one_piece_cannot_be_timed(prompts, capsys):
    whole = StoryServer(words=["a" * 100, *[""] * 23])

    assert compare({"plain": StoryServer(), "odd": whole}, "--prompts", prompts) == 2
    assert "in one piece" in capsys.readouterr().err


def test_another_count_of_an_equal_text_is_warned_of(prompts, capsys):
    liar = StoryServer(words=WORDS[:12], count=20)

    assert compare({"plain": StoryServer(words=WORDS[:12]), "liar": liar}, "--prompts", prompts, "--json") == 0
    assert any(w["kind"] == "server" and "20 tokens" in w["text"] for w in summary(capsys)["warnings"])


def test_a_stream_that_is_buffered_is_warned_of(prompts, capsys):
    class Buffered(StoryServer):
        def stream(self, body, chat):
            yield b"".join(super().stream(body, chat))

    assert compare({"plain": StoryServer(), "odd": Buffered()}, "--prompts", prompts, "--json") == 0
    assert any("buffers" in w["text"] for w in summary(capsys)["warnings"])


MISUSE = {
    "one server": (["--url", "a=http://h"], "nothing to compare"),
    "no name": (["--url", "http://h", "--url", "b=http://h"], "must be NAME="),
    "two names": (["--url", "a=http://h", "--url", "a=http://i"], "passed twice for 'a'"),
    "no address": (["--url", "a=h", "--url", "b=http://h"], "no address"),
    "a method": (["--url", "a=http://h", "--url", "b=http://h", "--method", "ngram"], "--method cannot be combined"),
    "a trace": (["--url", "a=http://h", "--url", "b=http://h", "--trace"], "--trace cannot be combined"),
    "a penalty": (["--url", "a=http://h", "--url", "b=http://h", "--repetition-penalty", "1.1"], "differently"),
    "a setting": (["--url", "a=http://h", "--url", "b=http://h", "-o", "draft_max=3"], "-o draft_max cannot"),
    "a plugin's": (["--url", "a=http://h", "--url", "b=http://h", "-o", "ngram.n_max=3"], "-o ngram.n_max cannot"),
    "no url": (["-m", "zoo:pico", "--off", "a=spec"], "--off was passed without --url"),
    "another name": (["--url", "a=http://h", "--url", "b=http://h", "--off", "c=spec"], "'c' is for no server"),
    "no server": (["--url", "a=http://127.0.0.1:9", "--url", "b=http://127.0.0.1:9"], "does not answer"),
    "one key for two": (["--url", "a=http://h", "--url", "b=http://i", "--key-env", "K"], "NAME=VARIABLE"),
    "no key": (["--url", "a=http://h", "--url", "b=http://i", "--key-env", "a=NOT_SET"], "no variable that is set"),
    "a key": (["--url", "a=http://h", "--url", "b=http://h", "--key-env", "pass123"], "no variable that is set"),
    "a key of a": (["--url", "a=http://h", "--url", "b=http://i", "--key-env", "a=pass123"], "no variable that is set"),
    "a key with a sign": (["--url", "a=http://h", "--url", "b=http://i", "--key-env", "pass123=x"], "for no server"),
    "a key twice": (["--url", "a=http://h", "--url", "b=http://i", "--key-env", "pass123"], "one key to several"),
    "one token": (["--url", "a=http://h", "--url", "b=http://h", "-n", "1"], "nothing to time"),
    "many": (["--url", "a=http://h", "--url", "b=http://h", "--batch", "33"], "at most 32"),
    "password": (["--url", "a=http://me:pass123@h", "--url", "b=http://h"], "a password"),
    "bad host": (["--url", "a=http://me:pass123@[h", "--url", "b=http://h"], "no address"),
    "query": (["--url", "a=http://h?token=pass123", "--url", "b=http://h"], "a query"),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse_is_refused_before_a_request(case, capsys):
    words, message = MISUSE[case]

    assert run_command(["compare", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and "pass123" not in error


def test_a_model_that_is_not_listed(prompts, capsys):
    assert compare({"a": StoryServer(), "b": StoryServer()}, "--prompts", prompts, "--url-model", "b=other") == 2
    assert "b: " in (error := capsys.readouterr().err) and "no model 'other'" in error and "'toy'" in error


def test_a_key_that_a_server_repeats_is_nowhere(prompts, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("STORY_KEY", KEY)
    echo = [f" {KEY}", *WORDS[1:]]
    servers = {"a": StoryServer(words=echo, model=f"model {KEY}"), "b": StoryServer(words=echo)}
    out, keys = tmp_path / "out", ("--key-env", "a=STORY_KEY", "--key-env", "b=STORY_KEY")

    assert compare(servers, "--prompts", prompts, *keys, "--out", out) == 0
    servers["b"] = StoryServer(instead=(500, "application/json", [json.dumps({"error": f"bad {KEY}"}).encode()]))
    assert compare(servers, "--prompts", prompts, *keys) == 2
    shown = capsys.readouterr()
    stored = b"".join(path.read_bytes() for path in out.iterdir())
    assert KEY not in shown.out + shown.err and KEY.encode() not in stored


def test_a_key_in_pieces_is_nowhere(prompts, tmp_path, monkeypatch):
    monkeypatch.setenv("STORY_KEY", KEY)
    pieces = [KEY[:5], KEY[5:9], KEY[9:], *WORDS[3:]]
    keys = ("--key-env", "a=STORY_KEY", "--key-env", "b=STORY_KEY")
    servers = {name: StoryServer(words=pieces) for name in ("a", "b")}
    compare(servers, "--prompts", prompts, *keys, "--out", tmp_path / "o")

    assert KEY not in (tmp_path / "o" / "results.jsonl").read_text()


def test_addresses_are_hidden(prompts, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with listen(StoryServer().answer) as a, listen(StoryServer().answer) as b:
        named = ["--url", f"a={a}", "--url", f"b={b}"]
        words = ["compare", *named, "-n", "4", "--prompts", str(prompts), "--out", str(out)]
        monkeypatch.setattr("sys.argv", ["spec", *words, "https://me:word@host/secret/v1?key=1"])
        assert run_command(words) == 0
    lines = (out / "results.jsonl").read_text()
    assert a in lines and "secret" not in lines and "word" not in lines

    assert run_command(["compare", "bundle", str(out), str(tmp_path / "b.zip"), "--anonymous"]) == 0
    assert "127.0.0.1" not in json.dumps(bundle.check_bundle(tmp_path / "b.zip")[0].header.contenders, default=str)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://h:80/v1", "http://h:80/v1"),
        ("x=http://u:p@h/a/b?c", "x=http://h/..."),
        ("https://h", "https://h"),
        ("https://h/?a=b", "https://h/..."),
    ],
)
def test_what_is_shown_of_an_address(address, shown):
    assert hide_secrets(address) == shown


def test_impossible_counts_of_a_file_are_refused(prompts, tmp_path, capsys):
    out = tmp_path / "out"
    compare({"a": StoryServer(), "b": StoryServer()}, "--prompts", prompts, "--out", out)
    lines = (out / "results.jsonl").read_text().splitlines()
    record = json.loads(lines[1])
    record["served"]["accepted"] = 10**6
    (out / "results.jsonl").write_text("\n".join([lines[0], json.dumps(record), *lines[2:]]) + "\n")

    assert run_command(["compare", "show", str(out)]) == 2
    assert "drafted tokens were accepted" in capsys.readouterr().err


def test_steps_of_a_text_that_drafts_nothing():
    assert ServedText(5, "answer", 0, 0, 0).draft_statistics.report()["tokens_per_step"] == 1
    assert ServedText(5, None, None, None, None).draft_statistics.report()["tokens_per_step"] is None


def test_conversations_and_chats(tmp_path, capsys):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"question_id": 1, "category": "x", "turns": ["one", "two"]}) + "\n")
    servers = {"a": StoryServer(), "b": StoryServer(3)}

    assert compare(servers, "--prompts", path, "--json", "--batch", "2") == 0
    talk = servers["a"].bodies[-1]["messages"]
    assert [message["role"] for message in talk] == ["user", "assistant", "user"]


def test_without_prompts_built_in_chats_are_used(capsys):
    servers = {"a": StoryServer(), "b": StoryServer()}

    assert compare(servers, "--limit", "1") == 0
    assert "messages" in servers["a"].bodies[-1] and "built-in chats" in capsys.readouterr().err
