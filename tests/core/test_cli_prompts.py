"""``spec generate``: several prompts in one call, times in its JSON, and the progress of a long prefill."""

from __future__ import annotations

import io
import json

import pytest
from spec_cli.main import run_command
from spec_cli.show import has_colours
from spec_cli.watch import NAMES, Prefill, prefill
from spec_commands import prompts

from spec_core import Request, Run, UsageError, load
from spec_core.testing import ToyTarget
from tests.support.small_models import tiny_gguf

MODEL = str(tiny_gguf(0))
PROMPT = ["-p", "def add(a, b):"]
FORMS = [
    {"id": "text", "prompt": "def add(a, b):"},
    {"id": "chat", "messages": [{"role": "user", "content": "hi"}]},
    {"tokens": [1, 2, 3]},
]


@pytest.fixture
def generate(capsys, monkeypatch, tmp_path):
    """Run the command in an empty folder; returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run_command(["generate", "-m", MODEL, *arguments])
        return code, *capsys.readouterr()

    return call


def jsonl(path, *entries) -> str:
    path.write_text("\n".join(map(json.dumps, entries)))
    return str(path)


def test_several_prompts_in_one_call_are_lines_of_json(generate, tmp_path):
    """Texts, messages and token ids; each text equals that of its prompt alone."""
    (tmp_path / "m.json").write_text(json.dumps(FORMS[1]["messages"]))
    asked = ["-n", "6", "--ignore-eos", "--json", "--seed", "3", "--temperature", "0.8"]
    code, out, _ = generate(*asked, "--prompts", jsonl(tmp_path / "p.jsonl", *FORMS))
    places = (PROMPT, ["--messages", "m.json"], ["--tokens", "1,2,3"])
    alone = [json.loads(generate(*asked, *place)[1]) for place in places]
    bodies = [json.loads(line) for line in out.splitlines()]

    assert code == 0
    assert [b["id"] for b in bodies] == ["text", "chat", "3"]
    assert [(b["prompt_tokens"], b["tokens"]) for b in bodies] == [(b["prompt_tokens"], b["tokens"]) for b in alone]


def test_several_texts_are_separated_by_their_names(generate, tmp_path):
    code, out, _ = generate("-n", "2", "--prompts", jsonl(tmp_path / "p.jsonl", *FORMS))

    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("---")] == ["--- text", "--- chat", "--- 3"]


def test_texts_of_a_file_go_through_the_template_with_chat(generate, tmp_path):
    text, chat = jsonl(tmp_path / "a.jsonl", {"prompt": "hi"}), jsonl(tmp_path / "b.jsonl", FORMS[1])
    answers = [generate("-n", "3", "--json", "--prompts", *more)[1] for more in ([text, "--chat"], [chat])]
    one, other = map(json.loads, answers)

    assert (one["prompt_tokens"], one["tokens"]) == (other["prompt_tokens"], other["tokens"])


WRONG = [
    ({"id": "a"}, "line 1: no prompt"),
    ([1], "line 1: no prompt"),
    ({"prompt": "x", "tokens": [1]}, "prompt and tokens are both set"),
    ({"tokens": [1.5]}, "a list of token ids"),
    ({"tokens": []}, "a list of token ids"),
    ({"messages": []}, "no messages"),
    ({"messages": [{"content": "x"}]}, "not a list of messages"),
    ({"messages": [{"role": "user"}]}, "message 1"),
    ({"tokens": [99999]}, "prompt token 99999"),
]


@pytest.mark.parametrize(("line", "message"), WRONG, ids=map(str, range(len(WRONG))))
def test_a_wrong_line_of_prompts_is_one_message(generate, tmp_path, line, message):
    code, out, err = generate("--prompts", jsonl(tmp_path / "p.jsonl", line))

    assert code == 2
    assert message in err and "Traceback" not in err + out


def test_prompts_are_given_in_one_way(generate, tmp_path):
    code, _, err = generate(*PROMPT, "--prompts", jsonl(tmp_path / "p.jsonl", *FORMS))

    assert code == 2
    assert "-p and --prompts" in err


def test_json_has_times_and_rates_and_the_text_of_tokens(generate):
    _, out, _ = generate(*PROMPT, "-n", "9", "--ignore-eos", "--json", "--logprobs", "2", "--temperature", "0.9")
    body, words = json.loads(out), load(MODEL).tokenizer

    assert all(body["times"][name] > 0 for name in NAMES)
    assert [p["token"] for p in body["logprobs"]] == body["tokens"]
    for p in (t for chosen in body["logprobs"] for t in (chosen, *chosen["top"])):
        assert p["text"] == words.token_bytes(p["token"]).decode("utf-8", "replace")


def test_times_of_a_text_without_tokens_are_none(generate):
    _, out, _ = generate(*PROMPT, "-n", "0", "--json")

    assert json.loads(out)["times"]["tokens_per_second"] is None


def read(terminal: bool, now: list[float]) -> list[str]:
    """The progress lines of a prompt of 40 tokens in chunks of four. now: the clock at each step."""
    notes: list[str] = []
    run = Run(ToyTarget(recurrent=False), prefill_chunk=4, draft_max=3)
    seq = run.submit(Request([1] * 40, max_tokens=3))
    clock = iter([0.0, *now])
    run.observe(Prefill([seq], terminal, now=lambda: next(clock), say=notes.append).look)
    while run.busy:
        run.step()
    return notes


def test_a_long_prompt_says_how_far_it_is():
    """After the first second, a line for every tenth, until it is read."""
    notes = read(False, [0.5, 0.9, *range(2, 20)])

    assert notes == [f"prompt: {n} of 40 tokens" for n in range(12, 40, 4)]


def test_a_short_prompt_says_nothing():
    assert read(False, [0.5] * 20) == []


def test_on_a_terminal_one_line_is_written_over_and_taken_away(capsys):
    read(True, [*range(2, 20)])
    err = capsys.readouterr().err

    assert "\n" not in err and "prompt: 4 of 40 tokens" in err
    assert err.split("\r")[-1] == ""


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("kind", "shown"), [("xterm", True), ("dumb", False)])
def test_a_dumb_terminal_gets_no_colours_and_no_line_written_over(monkeypatch, kind, shown):
    monkeypatch.setenv("TERM", kind)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", Screen())
    monkeypatch.setattr("sys.stderr", Screen())

    assert (has_colours(), prefill([]).terminal) == (shown, shown)


@pytest.mark.parametrize(("dtype", "message"), [("float16", True), ("bfloat16", True), ("float32", False)])
def test_a_dtype_that_is_slow_on_a_cpu_is_noted(generate, dtype, message):
    code, _, err = generate(*PROMPT, "-n", "1", "--device", "cpu", "--dtype", dtype)

    assert code == 0
    assert (f"{dtype} is emulated in most products on a CPU" in err) == message


def test_settings_fit_a_terminal_of_80_columns(monkeypatch, capsys, tmp_path):
    """Long lines are folded on a terminal; a file has one line per setting."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    screen = Screen()
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", screen)
        assert run_command(["settings"]) == 0
    run_command(["settings"])
    lines = capsys.readouterr().out.splitlines()

    assert max(map(len, screen.getvalue().splitlines())) <= 80
    assert " ".join(screen.getvalue().split()) == " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["generate", "zoo:pico", "-p", "hi"], "-m MODEL or -p PROMPT"),
        (["generate", "-m", "zoo:pico", "-p", "hi", "--draft-max", "4"], "write -o draft_max=VALUE"),
        (["-m", "zoo:pico"], "spec generate -m MODEL"),
    ],
    ids=["argument", "setting", "before-the-command"],
)
def test_a_wrong_call_says_what_to_write(capsys, arguments, output):
    assert run_command(arguments) == 2
    assert output in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "ngram,suffix"], "--method ngram --method suffix"),
        (["--rule", "ngram"], "ngram is a method"),
        (["--method", "typical"], "typical is a rule: use --rule"),
    ],
    ids=["commas", "method-as-rule", "rule-as-method"],
)
def test_a_plugin_in_the_wrong_place_is_told_its_own(generate, arguments, message):
    code, _, err = generate(*PROMPT, *arguments)

    assert code == 2
    assert message in err


def test_a_line_of_prompts_ends_where_json_says_so(tmp_path):
    """Line separators that Python, but not JSON, splits at may occur in a text; a byte order mark is skipped."""
    lines = [json.dumps({"prompt": text}, ensure_ascii=False) for text in ("one\u2028two", "three\x85four")]
    (tmp_path / "p.jsonl").write_text("\n".join(lines), "utf-8-sig")

    assert [prompt.given for prompt in prompts.read_prompt_file(tmp_path / "p.jsonl")] == [
        "one\u2028two",
        "three\x85four",
    ]


def test_the_first_turn_of_a_conversation_is_asked(tmp_path):
    file = tmp_path / "p.jsonl"
    jsonl(file, {"question_id": 81, "turns": ["Hello", "More"]}, {"id": "2", "prompt": "x"})

    first, second = prompts.read_prompt_file(file, forms=(*prompts.FORMS, prompts.TURNS))
    assert (first.id, first.given) == ("81", [{"role": "user", "content": "Hello"}]) and second.given == "x"
    with pytest.raises(UsageError, match="line 1: no prompt"):
        prompts.read_prompt_file(file)
    jsonl(file, {"id": "1", "turns": []})
    with pytest.raises(UsageError, match="turns must be a list of texts"):
        prompts.read_prompt_file(file, forms=(*prompts.FORMS, prompts.TURNS))
