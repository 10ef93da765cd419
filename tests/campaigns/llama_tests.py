"""Run llama.cpp's own tests of its server against ours.

``python tests/campaigns/llama_tests.py SOURCE [--python PYTHON] [--only WORD] [--json FILE]``. SOURCE is an unpacked
source tree of llama.cpp, such as ``vendor/llama.cpp`` in the source package of llama-cpp-python; PYTHON has the
packages of its ``tools/server/tests/requirements.txt``, and pytest-timeout. The tests run from a temporary folder, with
a launcher in place of llama-server that translates its flags and serves ``zoo:pico``.

What depends on the model that the tests download is set aside: the words of a text, numbers of tokens, its path and the
text of its first token. Files about models of other kinds (embeddings, ranking, images, LoRA, routers) are left out.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree

import gguf

FILES = (
    "basic", "chat_completion", "compat_anthropic", "compat_oai_responses", "completion", "ctx_shift", "ignore_eos",
    "infill", "kv_keep_only_active", "metrics", "security", "slot_save", "speculative", "stream", "template",
    "tokenize",
)  # fmt: skip
COUNTS = ("n_prompt", "n_predicted", "n_cache", "n_token_output", "bosId", "prompt_n'", "n_saved", "batch_count")
"""Names in assertions about numbers of tokens of the model of the tests."""
TIMEOUT_SECONDS = 120
REASONS = {
    "slot_save::": "a single slot is not saved or erased; --prompt-cache keeps the rows of all",
    "stream::": "a stream that breaks off is not resumed",
    "kv_keep_only_active::": "reads log lines of llama-server",
    "cors_": "only the origins of --allowed-origin are answered, by their full names, and others with 400",
    "cors_proxy": "there is no proxy for tools",
    "static_assets": "the chat page is one file",
    "local_media": "images are not supported",
    "vision": "images are not supported; they are refused with 400, a client's mistake, not with 500",
    "result_with_image": "images are not supported; they are refused with 400, a client's mistake, not with 500",
    "reasoning_model": "downloads a model",
    "embedding": "there are no embeddings",
    "date_inside_prompt": "templates get the variables that transformers gives them, and no date_string",
    "test_apply_chat_template": "the template writes the token that begins a text, as encoding does not add it",
    "prefill1": "parts of a message are joined without line breaks, as by the APIs",
    "empty_messages": "an empty list of messages is refused",
    "oai_responses": "a text that was cut ends with response.incomplete, as in OpenAI's API, not with completed",
    "n_probs_post": "probabilities after sampling are not reported",
    "speculative::test_synth": "acceptance is not faked",
    "with_and_without_draft": "acceptance is not faked",
    "with_ctx_shift": "the context is not shifted",
    "slot_ctx_not_exceeded": "a prompt longer than the context is refused",
    "ctx_shift_disabled_long": "the prompt fits: pico's vocabulary needs fewer tokens",
    "metrics_disabled": "metrics are always there",
    "metrics_prometheus_format": "the longest sequence is a gauge, since it does not only add up",
    "server_slots": "slots are always there",
    "no_ui": "the chat page is always there",
    "aliases_and_tags": "a model has one name",
    "multiple_addresses": "the server listens at one address",
    "with_qwen_model": "downloads a model",
    "cache_vs_nocache": "skipped there too",
}
"""Why a test does not pass, by a part of its name; the last that fits."""


class Aside(ast.NodeTransformer):
    """Leaves out assertions about words and numbers of tokens of another model."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        condition = ast.unparse(node.test)
        words = any(
            word in condition for word in ("match_regex", "re_content", "<s> ", "model_path", "['content']) > 10")
        )
        counts = "==" in condition and any(word in condition for word in COUNTS)
        return ast.copy_location(ast.Pass(), node) if words or counts else node


def prepare(source: Path, folder: Path) -> Path:
    """The tests in a folder of their own, with what they read beside them."""
    tests = folder / "tools" / "server" / "tests"
    shutil.copytree(source / "tools" / "server" / "tests", tests)
    (folder / "models").symlink_to(source.resolve() / "models")
    for name in FILES:
        path = tests / "unit" / f"test_{name}.py"
        path.write_text(ast.unparse(Aside().visit(ast.parse(path.read_text("utf-8")))), "utf-8")
    helpers = tests / "utils.py"
    text = helpers.read_text("utf-8").replace("dict(response.headers)", "response.headers")  # names have no case
    helpers.write_text(text + "\n\ndef download_file(url, output_file_path=None):\n    return url\n", "utf-8")
    fill_in_the_middle(tests / "infill.gguf")
    return tests


def fill_in_the_middle(path: Path) -> None:
    """pico, with three of its rarest tokens named as those around a gap."""
    from spec_zoo import path as path_of

    reader = gguf.GGUFReader(path_of("pico"))
    writer = gguf.GGUFWriter(path, str(reader.fields["general.architecture"].contents()))
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            writer.add_key_value(
                field.name,
                field.contents(),
                field.types[0],
                field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None,
            )
    for at, name in enumerate(("pre", "suf", "mid")):
        writer.add_uint32(f"tokenizer.ggml.fim_{name}_token_id", 3000 + at)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


LAUNCHER = """#!{python} -SE
import json, os, signal, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect({address!r})
socket.send_fds(link, [json.dumps([sys.argv[1:], os.getcwd()]).encode()], [1, 2])
pid = int(link.recv(32))
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
said = link.recv(32)
sys.exit(int(said or 1))
"""
"""Program in place of llama-server: it asks the process below for a server, and lives as long as it."""


@contextmanager
def launching(folder: Path) -> Iterator[Path]:
    """A program that starts a server in a fraction of a second: forked from a process that has imported everything."""
    address = str(folder / "servers.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(16)
        if (pid := os.fork()) == 0:
            fork_servers(listener)
        launcher = folder / "launcher"
        launcher.write_text(LAUNCHER.format(python=sys.executable, address=address))
        launcher.chmod(0o755)
        try:
            yield launcher
        finally:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)


def fork_servers(listener: socket.socket) -> NoReturn:
    """Fork a server for every connection, and report its exit code there. Never returns."""
    import spec_serve.app
    import spec_serve.command  # noqa: F401
    import torch  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        link, _ = listener.accept()
        data, handles, _, _ = socket.recv_fds(link, 1 << 16, 2)
        if os.fork() == 0:
            listener.close()
            run_server(link, json.loads(data), handles)
        for handle in handles:
            os.close(handle)
        link.close()


def run_server(link: socket.socket, asked: Any, handles: Sequence[int]) -> NoReturn:
    """A server in a process of its own; this one waits for it. Never returns."""
    arguments, folder = asked
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if (pid := os.fork()) == 0:
        link.close()
        for at, handle in enumerate(handles):
            os.dup2(handle, 1 + at)
        os.chdir(folder)
        code = 1
        try:
            from spec_cli.main import main as command

            code = command(translate(arguments)) or 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        finally:
            sys.stdout.flush()
            os._exit(code)
    link.sendall(str(pid).encode())
    _, status = os.waitpid(pid, 0)
    link.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


RENAMED = {
    "--port": "--port", "--temp": "--temperature", "--seed": "--seed", "--api-key": "--api-key",
    "--chat-template": "--chat-template", "--chat-template-file": "--chat-template-file",
}  # fmt: skip
"""Flags of llama-server with a value, and ours."""
ALONE = (
    "--offline", "--cont-batching", "--embedding", "--reranking", "--metrics", "--kv-unified", "--swa-full", "--slots",
    "--no-slots", "--verbose", "--context-shift", "--no-ui", "--no-models-autoload", "--jinja", "--no-jinja",
    "--no-mmproj", "--no-cache-idle-slots", "--ui-mcp-proxy", "--backend_sampling",
)  # fmt: skip
"""Flags of llama-server without a value, which have no counterpart here."""


def translate(arguments: Sequence[str]) -> list[str]:
    """Arguments of ``spec serve`` for those of llama-server; what has no form here is left out."""
    options: dict[str, str] = {}
    rest = iter(arguments)
    for name in rest:
        options[name] = "" if name in ALONE else next(rest)
    model = "infill.gguf" if "infill" in options.get("--hf-repo", "") else "zoo:pico"
    words = ["serve", "-m", model, "--threads", "1"]
    words += ["-o", "serve.verbose=true"] if "--verbose" in options else []
    for name, ours in RENAMED.items():
        words += [ours, options[name]] if name in options else []
    slots = int(options.get("--parallel", 4))
    room = int(options.get("--ctx-size", 0)) // (1 if "--kv-unified" in options else slots)
    words += ["--host", options.get("--host", "127.0.0.1").split(",")[0], "-o", f"max_sequences={slots}"]
    words += ["--context", str(min(room, 2048))] if room else []
    words += ["--alias", options["--alias"].split(",")[0]] if "--alias" in options else []
    words += ["--max-tokens", options["--n-predict"]] if int(options.get("--n-predict", -1)) >= 0 else []
    words += ["--method", "draft-model"] if options.get("--spec-type") == "draft-simple" else []
    words += ["-o", f"draft_max={options['--spec-draft-n-max']}"] if "--spec-draft-n-max" in options else []
    if "--reasoning" in options:  # auto is on there
        words += ["--chat-template-kwargs", json.dumps({"enable_thinking": options["--reasoning"] != "off"})]
    if (format := options.get("--reasoning-format")) is not None:
        words += ["--reasoning-format", "none" if format == "nothink" else format]
    return words


def outcomes(tests: Path, launcher: Path, python: str, only: str) -> dict[str, str]:
    """Outcome of each test."""
    report = tests / "report.xml"
    names = [f"unit/test_{name}.py" for name in FILES if only in name]
    command = [python, "-m", "pytest", *names, "-q", f"--junitxml={report}", f"--timeout={TIMEOUT_SECONDS}"]
    subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        cwd=tests,
        env={**os.environ, "LLAMA_SERVER_BIN_PATH": str(launcher), "PORT": "18080", "PYTHONPATH": str(tests)},
        check=False,
    )
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        outcome = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        outcomes[f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"] = outcome
    return outcomes


def main() -> None:
    """Run them, and print what passed and what did not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        tests = prepare(asked.source, Path(name))
        with launching(tests) as launcher:
            results = outcomes(tests, launcher, asked.python, asked.only)
    for test, outcome in sorted(results.items()):
        reason = [why for part, why in REASONS.items() if part in test][-1:] if outcome != "passed" else []
        print(f"{outcome:8} {test}{': ' if reason else ''}{''.join(reason)}")
    passed = sum(outcome == "passed" for outcome in results.values())
    print(f"{passed} of {len(results)} passed")
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1), "utf-8")


if __name__ == "__main__":
    main()
