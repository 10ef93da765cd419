"""``spec vllm serve`` with the real vLLM: switches of requests, a controller, and our counts in the server's metrics.

``VLLM_PYTHON tests/campaigns/vllm_server.py [--runner second] [--limit 3] [-n 64]``

Two servers, without and with ``control=auto``, answer the same prompts of zoo:pico greedily in float32. One JSON line
for each kind of request: how many texts equal those of requests that switch drafts off, and by how much each counter
rose. The process fails if a text differs, or a counter does not do what the switch says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic, sleep
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))

METHODS = ("ngram", "suffix")
WORDS = ("--dtype", "float32", "--max-model-len", "1024", "--enforce-eager", "--max-num-seqs", "1")
STARTS_SECONDS = 300
ASKED: dict[str, dict[str, Any]] = {
    "off": {"spec_draft_max": 0},
    "all": {},
    "short": {"spec_draft_max": 2},
    "one method": {"spec_methods": "suffix"},
    "unknown switch": {"spec_draft_mx": 2},
}
DRAFTS, TOKENS, ACCEPTED, SECONDS = (
    "spec:spec_decode_num_drafts_total",
    "spec:spec_decode_num_draft_tokens_total",
    "spec:spec_decode_num_accepted_tokens_total",
    "spec:hook_seconds_total",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runner", default="first", choices=["first", "second"])
    parser.add_argument("--limit", type=int, default=3, help="prompts of each of the four families")
    parser.add_argument("-n", type=int, default=64)
    args = parser.parse_args()
    from tests.support.hugging_face import directory

    model, failed = str(directory("zoo:pico")), []
    for control in ("fixed", "auto"):
        with server(model, control, args.runner) as url:
            asked = ASKED if control == "fixed" else {"off": ASKED["off"], "all": {}}
            failed += [f"control={control}: {why}" for why in try_requests(url, asked, control, args)]
    for why in failed:
        print(why, file=sys.stderr)
    sys.exit(bool(failed))


@contextmanager
def server(model: str, control: str, runner: str) -> Iterator[str]:
    """The address of ``spec vllm serve``, one thread."""
    from benchmarks.serving import free_port

    port = free_port()
    words = [str(Path(sys.executable).with_name("spec")), "vllm", "serve", model, "--control", control]
    words += ["--model-runner", runner]
    words += [word for name in METHODS for word in ("--method", name)]
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    with TemporaryFile() as log:
        process = subprocess.Popen(
            [*words, "--", *WORDS, "--port", str(port)], env=environment | dict(os.environ), stdout=log, stderr=log
        )
        try:
            yield ready(f"http://127.0.0.1:{port}", process, log)
        finally:
            process.terminate()
            process.wait(60)


def ready(url: str, process: subprocess.Popen[bytes], log: Any) -> str:
    """The address, as soon as the server answers. Raises RuntimeError with the end of its log if it does not."""
    until = monotonic() + STARTS_SECONDS
    while monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{url}/health").is_success:
                return url
        except httpx.TransportError:
            sleep(0.5)
    log.seek(0)
    raise RuntimeError(f"the server did not start:\n{log.read().decode()[-3000:]}")


def try_requests(url: str, asked: dict[str, dict[str, Any]], control: str, args: Any) -> Iterator[str]:
    """Print a line for each kind of request; yields what is wrong."""
    texts: dict[str, list[str]] = {}
    for name, switches in asked.items():
        before = counters(url)
        texts[name] = [answer(url, prompt, switches, args.n) for prompt in prompts(args.limit)]
        rose = {key: value - before.get(key, 0.0) for key, value in counters(url).items()}
        equal = sum(a == b for a, b in zip(texts["off"], texts[name], strict=True))
        growth = {key: round(value) for key, value in rose.items() if value and not key.startswith(SECONDS)}
        columns = {"runner": args.runner, "control": control, "requests": name}
        print(json.dumps(columns | {"equal": equal, "rose": growth}), flush=True)
        if equal < len(texts[name]):
            yield f"{name}: {len(texts[name]) - equal} texts differ"
        yield from (f"{name}: {why}" for why in wrong(name, rose, control))


def wrong(name: str, rose: dict[str, float], control: str) -> Iterator[str]:
    """Errors of the counters."""
    of = {key: {m: rose.get(f'{key}{{method="{m}"}}', 0.0) for m in METHODS} for key in (DRAFTS, TOKENS, ACCEPTED)}
    drafts, tokens = sum(of[DRAFTS].values()), sum(of[TOKENS].values())
    if (drafts > 0) != (name not in ("off", "unknown switch")):
        yield f"{drafts} drafts were verified"
    if not sum(of[ACCEPTED].values()) <= tokens:
        yield "more tokens were accepted than drafted"
    if name == "short" and tokens > 2 * drafts:
        yield f"{tokens} tokens in {drafts} drafts"
    if name == "one method" and of[DRAFTS]["ngram"]:
        yield "a method drafted that the request had left out"
    if control == "auto" and name == "all" and not rose.get(f'{SECONDS}{{hook="draft.auto"}}'):
        yield "the controller was not asked"


def prompts(limit: int) -> list[str]:
    from spec_commands.prompts import read_prompt_file
    from spec_compare.measuring.prompt_source import choose_prompts
    from spec_zoo import HERE

    file = "prompts-200.jsonl"
    return [p.given for p in choose_prompts(read_prompt_file(HERE / file), file, limit=limit)]


def answer(url: str, prompt: Any, switches: dict[str, Any], n: int) -> str:
    asked = {"prompt": prompt, "max_tokens": n, "temperature": 0, "vllm_xargs": switches}
    got = httpx.post(f"{url}/v1/completions", json=asked, timeout=120)
    got.raise_for_status()
    return str(got.json()["choices"][0]["text"])


def counters(url: str) -> dict[str, float]:
    """Our counters, when the last request has ended: vLLM tells its worker after it has answered."""
    sleep(0.2)
    lines = httpx.get(f"{url}/metrics", timeout=30).text.splitlines()
    pairs = (line.rpartition(" ") for line in lines if line.startswith("spec:") and "_created" not in line)
    return {name: float(value) for name, _, value in pairs}


if __name__ == "__main__":
    main()
