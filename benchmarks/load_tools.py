"""Throughput and latency of servers as AIPerf and guidellm report them, with the same prompts, in turns.

    python benchmarks/load_tools.py --aiperf BINARY --guidellm BINARY --llama-server BINARY [--at-once 1 4 16]

Each tool is installed in an environment of its own. Servers are started as in ``serving.py``, one thread each on the
first processor that this process may use; the tools keep the second. One server has work at a time: the 40 chats of the
zoo, at temperature 0, up to 64 tokens each, no prompt cache. The order of servers rotates.

tokens/s, and p95 of the time between tokens, are the tool's, medians over rounds; ratios are medians of those of one
round. Failed requests are counted: with any, the figures of a line mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_zoo import CHAT_PROMPTS, path

from benchmarks.serving import MODEL, PEER, PLAIN, TOKENS, Contender, Server, contenders, ours, start_server
from benchmarks.support.tables import heading, row

FIELDS = {"cache_prompt": False, "temperature": 0}
"""Fields of every request. llama-server and this server know them."""


@attrs.frozen
class Found:
    """Report of a tool. rate: tokens/s. p95: ms between tokens. failed: requests without an answer."""

    rate: float
    p95: float
    failed: int


def inputs(folder: Path) -> int:
    """Write the tokenizer and the prompts that the tools read. Returns the number of prompts."""
    from transformers import AutoTokenizer

    file = path(MODEL)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder / "tokenizer")
    chats = [json.loads(line)["messages"] for line in CHAT_PROMPTS.open(encoding="utf-8")]
    lines = [json.dumps({"text": chat[0]["content"], "output_length": TOKENS}) + "\n" for chat in chats]
    (folder / "prompts.jsonl").write_text("".join(lines), "utf-8")
    return len(lines)


def by_aiperf(binary: str, url: str, folder: Path, requests: int, at_once: int) -> Found:
    """Runs ``aiperf profile`` in the folder."""
    extra = [word for name, value in FIELDS.items() for word in ("--extra-inputs", f"{name}:{json.dumps(value)}")]
    run(
        [binary, "profile", "--url", url, "--model", MODEL, "--endpoint-type", "chat", "--streaming",
         "--tokenizer", "tokenizer", "--use-server-token-count", "--input-file", "prompts.jsonl",
         "--custom-dataset-type", "single_turn", "--request-count", str(requests), "--concurrency", str(at_once),
         "--artifact-dir", "aiperf", "--ui", "none", *extra],
        folder,
    )  # fmt: skip
    report = json.loads((folder / "aiperf" / "profile_export_aiperf.json").read_text("utf-8"))
    answered = report["request_count"]["avg"]
    return Found(
        report["output_token_throughput"]["avg"], report["inter_token_latency"]["p95"], requests - int(answered)
    )


def by_guidellm(binary: str, url: str, folder: Path, requests: int, at_once: int) -> Found:
    """Runs ``guidellm run`` in the folder."""
    backend = {"kind": "openai_http", "target": url, "max_tokens": TOKENS, "extras": {"body": FIELDS}}
    run(
        [binary, "run", "--backend", json.dumps(backend), "--tokenizer", "kind=hf_auto,model=tokenizer",
         "--data", "kind=json_file,path=prompts.jsonl", "--profile", f"kind=concurrent,streams={at_once}",
         "--constraint", f"kind=max_requests,count={requests}", "--output", "kind=json,path=guidellm.json",
         "--disable-progress"],
        folder,
    )  # fmt: skip
    (report,) = json.loads((folder / "guidellm.json").read_text("utf-8"))["benchmarks"]
    of, totals = report["metrics"], report["metrics"]["request_totals"]
    rate = of["output_tokens_per_second"]["successful"]["mean"]
    return Found(rate, of["inter_token_latency_ms"]["successful"]["percentiles"]["p95"], totals["errored"])


TOOLS: dict[str, Callable[[str, str, Path, int, int], Found]] = {"aiperf": by_aiperf, "guidellm": by_guidellm}


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command[:2])} failed:\n{(done.stdout + done.stderr)[-2000:]}")


def contenders_of(args: argparse.Namespace) -> list[Contender]:
    peers = [contender for contender in contenders(args) if contender.name == PEER]
    return [ours(PLAIN), ours("ngram, control=auto", "--method", "ngram", "--control", "auto"), *peers]


def measure(args: argparse.Namespace, servers: list[Server], folder: Path) -> dict[Any, list[Found]]:
    """{(tool, at once, server): a figure per round}."""
    count, figures = inputs(folder), {}
    for number in range(args.rounds):
        turns = servers[number % len(servers) :] + servers[: number % len(servers)]
        for tool in (tool for tool in TOOLS if getattr(args, tool)):
            for at_once in args.at_once:
                for server in turns:
                    one = TOOLS[tool](getattr(args, tool), server.url, folder, count, at_once)
                    figures.setdefault((tool, at_once, server.contender.name), []).append(one)
    return figures


def lines(figures: dict[Any, list[Found]]) -> list[str]:
    columns = ["tool", "at once", "server", "tokens/s", "of our plain", "p95, ms between tokens", "failed"]
    text = heading(columns)
    for (tool, at_once, name), own_figures in figures.items():
        plain = figures[tool, at_once, PLAIN]
        ratio = statistics.median(a.rate / b.rate for a, b in zip(own_figures, plain, strict=True))
        rate, p95 = statistics.median(a.rate for a in own_figures), statistics.median(a.p95 for a in own_figures)
        text.append(
            row([tool, at_once, name, f"{rate:.0f}", f"{ratio:.2f}", f"{p95:.1f}", sum(a.failed for a in own_figures)])
        )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for tool in TOOLS:
        parser.add_argument(f"--{tool}", help=f"the program {tool}")
    parser.add_argument("--llama-server", help="the binary of llama.cpp's server")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(namespace=argparse.Namespace(vllm=None))
    first, second, *_ = sorted(os.sched_getaffinity(0)) * 2
    os.sched_setaffinity(0, {second})
    with TemporaryDirectory() as folder, ExitStack() as stack:
        servers = [stack.enter_context(start_server(contender, first)) for contender in contenders_of(args)]
        print("\n".join(lines(measure(args, servers, Path(folder)))))
    print(f"\nload average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
