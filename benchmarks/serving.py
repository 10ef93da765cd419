"""Throughput and latency of servers: this one, llama-server, and vLLM's CPU build, with the same prompts, in turns.

    python benchmarks/serving.py --llama-server BINARY                          # both, plain and with n-gram drafts
    python benchmarks/serving.py --llama-server BINARY --vllm PYTHON --vllm-model DIRECTORY
    python benchmarks/serving.py --write                                        # save the table in benchmarks/results

Every server is a process with one thread, pinned to the first processor that this process may use; the client keeps
the second. All are started before anything is measured, and one at a time has work: a burst of streamed requests to
``/v1/completions``, several at once, temperature 0, TOKENS tokens each, no prompt cache. The order of servers rotates.

tokens/s: tokens of a burst over its seconds, prompts included; CPU: over the processor seconds of the server. Time per
token: of a request, from its first token to its last. First token: from the request. Ratios are medians over rounds.
A server of ours gets no figure if a text differs from plain decoding's. Bursts are kept in build/serving, and not
measured again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import attrs
import httpx

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_commands.environment import environment
from spec_commands.prompt import tokens_of
from spec_commands.prompts import read_prompt_file

from benchmarks.support import results
from benchmarks.support.tables import ROOT, heading, row

KEPT = ROOT / "build" / "serving"
MODEL, TOKENS, SLOTS, CONTEXT = "smollm2", 64, 16, 1024
CONCURRENCY = {1: 6, 4: 12, 16: 32}
"""Requests of a burst, by how many are made at once."""
PLAIN, PEER, VLLM = "plain", "llama-server", "vLLM"
METHODS = ("ngram", "suffix")
BARS = {1: 1.5, 4: 2.0, 16: 2.0}
"""Plain throughput over llama-server's."""
OF_PLAIN = 0.98
"""``control=auto`` over plain decoding, at any concurrency."""
STARTS_SECONDS = 600


@attrs.frozen
class Contender:
    """name: of a row. command: without the port's number, which comes last."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = attrs.field(factory=dict)


def ours(name: str, *more: str) -> Contender:
    spec = str(Path(sys.executable).parent / "spec")
    settings = "-o", f"max_sequences={SLOTS}", "--context", str(CONTEXT), "--alias", MODEL
    return Contender(name, (spec, "serve", "-m", f"zoo:{MODEL}", "--threads", "1", *settings, *more, "--port"))


def contenders(args: argparse.Namespace) -> list[Contender]:
    servers = [ours(PLAIN)]
    for method in METHODS:
        servers += [ours(f"{method}, control={how}", "--method", method, "--control", how) for how in ("fixed", "auto")]
    if args.llama_server:
        from spec_zoo import path

        file, size = str(path(MODEL).resolve()), str(SLOTS * CONTEXT)
        threads = "-t", "1", "-tb", "1", "-np", str(SLOTS), "-c", size
        base = args.llama_server, "-m", file, *threads, "--no-ui", "--log-disable", "-cram", "0"
        servers += [Contender(PEER, (*base, "--port"))]
        servers += [Contender(f"{PEER} ngram-simple", (*base, "--spec-type", "ngram-simple", "--port"))]
    if args.vllm:
        serve = args.vllm, "-m", "vllm.entrypoints.openai.api_server", "--model", args.vllm_model
        limits = "--dtype", "float32", "--max-model-len", str(CONTEXT), "--max-num-seqs", str(SLOTS)
        alone = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
        servers += [
            Contender(
                VLLM, (*serve, "--served-model-name", MODEL, *limits, "--no-enable-prefix-caching", "--port"), alone
            )
        ]
    return servers


# servers


@attrs.frozen
class Server:
    contender: Contender
    url: str
    process: subprocess.Popen[bytes]

    def cpu_seconds(self) -> float:
        """CPU seconds of all processes of the server."""
        return sum(cpu_seconds(pid) for pid in family(self.process.pid))


def family(pid: int) -> list[int]:
    """A process and those it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    child_ids = children.read_text("utf-8").split() if children.exists() else []
    return [pid, *(other for child in child_ids for other in family(int(child)))]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as bound_socket:
        bound_socket.bind(("127.0.0.1", 0))
        return int(bound_socket.getsockname()[1])


@contextmanager
def start_server(contender: Contender, core: int) -> Iterator[Server]:
    port = free_port()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **contender.environment}
    command = ["taskset", "-c", str(core), *contender.command, str(port)]
    KEPT.mkdir(parents=True, exist_ok=True)
    log = (KEPT / f"{contender.name.replace(' ', '_')}.log").open("wb")
    process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        yield Server(contender, wait_for(f"http://127.0.0.1:{port}", process, contender.name), process)
    finally:
        process.terminate()
        process.wait(60)


def wait_for(url: str, process: subprocess.Popen[bytes], name: str) -> str:
    end = perf_counter() + STARTS_SECONDS
    while perf_counter() < end and process.poll() is None:
        try:
            if httpx.get(url + "/health", timeout=5).status_code == 200:
                return url
        except httpx.TransportError:
            pass
        sleep(0.2)
    sys.exit(f"{name} did not start: see build/serving/{name.replace(' ', '_')}.log")


# requests


@attrs.frozen
class Answer:
    """Seconds of a request: to its first token, and from there to its last."""

    text: str
    tokens: int
    first: float
    rest: float


async def ask(client: httpx.AsyncClient, server: Server, prompt: list[int]) -> Answer:
    body = {
        "model": MODEL,
        "prompt": prompt,
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    body |= {} if server.contender.name == VLLM else {"cache_prompt": False}
    began, first, last, text, tokens = perf_counter(), 0.0, 0.0, "", 0
    async with client.stream("POST", f"{server.url}/v1/completions", json=body) as answer:
        if answer.status_code != 200:
            sys.exit(f"{server.contender.name}: {(await answer.aread()).decode()}")
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
            piece = "".join(choice["text"] for choice in event["choices"])
            if event["choices"]:
                last = perf_counter()
                first = first or last
            text += piece
    return Answer(text, tokens, first - began, last - first)


async def send_burst(server: Server, prompts: list[list[int]], concurrency: int) -> list[Answer]:
    places = asyncio.Semaphore(concurrency)

    async def one(prompt: list[int]) -> Answer:
        async with places:
            return await ask(client, server, prompt)

    async with httpx.AsyncClient(timeout=600) as client:
        return await asyncio.gather(*(one(prompt) for prompt in prompts))


def measure_burst(server: Server, prompts: list[list[int]], concurrency: int) -> dict[str, Any]:
    used, began = server.cpu_seconds(), perf_counter()
    answers = asyncio.run(send_burst(server, prompts, concurrency))
    seconds, used = perf_counter() - began, server.cpu_seconds() - used
    each = [answer.rest / max(1, answer.tokens - 1) for answer in answers]
    return {
        "server": server.contender.name,
        "concurrency": concurrency,
        "tokens": sum(answer.tokens for answer in answers),
        "seconds": seconds,
        "cpu_seconds": used,
        "per_token": each,
        "first": [answer.first for answer in answers],
        "texts": [answer.text for answer in answers],
    }


def prompts() -> list[list[int]]:
    """Token ids of prompts of all families in turn, with the model's chat template."""
    from spec_zoo import ZOO

    from spec_core import load

    target = load(f"zoo:{MODEL}")
    by_family: dict[str, list[Any]] = {}
    for prompt in read_prompt_file(ZOO[MODEL].prompts):
        by_family.setdefault(prompt.family, []).append(prompt.given)
    mixed = [content for group in zip(*by_family.values(), strict=False) for content in group]
    return [tokens_of(content, target) for content in mixed[: max(CONCURRENCY.values())]]


def measure(args: argparse.Namespace) -> None:
    """All servers at every concurrency, round by round; what is kept already is not measured again."""
    first, second, *_ = sorted(os.sched_getaffinity(0)) * 2
    os.sched_setaffinity(0, {second})
    asked = prompts()
    with ExitStack() as stack:
        servers = [stack.enter_context(start_server(contender, first)) for contender in contenders(args)]
        for server in servers:
            asyncio.run(send_burst(server, asked[:2], 1))
        for number in range(args.rounds):
            for concurrency in CONCURRENCY:
                file = KEPT / f"{concurrency}-{number}.json"
                if not file.exists():
                    turns = servers[number % len(servers) :] + servers[: number % len(servers)]
                    burst_prompts = asked[: CONCURRENCY[concurrency]]
                    bursts = [measure_burst(server, burst_prompts, concurrency) for server in turns]
                    unit = {"bursts": bursts, "load": os.getloadavg()[0], "cpu": environment()["cpu"]}
                    file.write_text(json.dumps(unit), "utf-8")


# figures


def units() -> list[dict[str, Any]]:
    return [json.loads(file.read_text("utf-8")) for file in sorted(KEPT.glob("*.json"))]


def by_server(bursts: Iterable[dict[str, Any]], concurrency: int) -> dict[str, list[dict[str, Any]]]:
    """{server: its bursts, a round each}."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for unit in bursts:
        for one in unit["bursts"]:
            if one["concurrency"] == concurrency:
                grouped.setdefault(one["server"], []).append(one)
    return grouped


def ratio(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], spent: str) -> float:
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(b[spent] / b["tokens"] * a["tokens"] / a[spent] for a, b in pairs)


def p95(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


def line(concurrency: int, name: str, bursts: dict[str, list[dict[str, Any]]]) -> str:
    own_bursts = bursts[name]
    texts = [one["texts"] for one in bursts[PLAIN]]
    if not name.startswith((PEER, VLLM)) and [one["texts"] for one in own_bursts] != texts:
        return row([concurrency, name, "text differs", *[""] * 6])
    rate = statistics.median(one["tokens"] / one["seconds"] for one in own_bursts)
    against = [
        f"{ratio(own_bursts, bursts[PEER], key):.2f}" if PEER in bursts else "" for key in ("seconds", "cpu_seconds")
    ]
    plain = f"{ratio(own_bursts, bursts[PLAIN], 'seconds'):.2f}"
    times = [value * 1e3 for one in own_bursts for value in one["per_token"]]
    first = [value * 1e3 for one in own_bursts for value in one["first"]]
    cells = f"{rate:.0f}", *against, plain, f"{statistics.median(times):.1f}", f"{p95(times):.1f}"
    return row([concurrency, name, *cells, f"{statistics.median(first):.0f}"])


def table(name: str) -> list[str] | None:
    saved = units()
    if name != "servers" or not saved:
        return None
    columns = ["at once", "server", "tokens/s", f"of {PEER}'s", "CPU time", "of our plain", "ms per token", "p95"]
    lines = heading([*columns, "first token, ms"])
    for concurrency in CONCURRENCY:
        bursts = by_server(saved, concurrency)
        lines += [line(concurrency, server, bursts) for server in bursts]
    loads = [unit["load"] for unit in saved]
    about = f"{len(saved) // len(CONCURRENCY)} rounds; {saved[0]['cpu']}; "
    return [*lines, "", f"{about}load average {min(loads):.1f} to {max(loads):.1f}."]


def verdict() -> list[str]:
    """Bars that are missed."""
    missed = []
    for concurrency, bar in BARS.items():
        bursts = by_server(units(), concurrency)
        if PEER in bursts and (peer_ratio := ratio(bursts[PLAIN], bursts[PEER], "seconds")) < bar:
            missed.append(f"plain at {concurrency}: {peer_ratio:.2f} of {PEER}'s, needed {bar}")
        for name, own_bursts in bursts.items():
            if name.endswith("auto") and (peer_ratio := ratio(own_bursts, bursts[PLAIN], "seconds")) < OF_PLAIN:
                missed.append(f"{name} at {concurrency}: {peer_ratio:.2f} of our plain, needed {OF_PLAIN}")
    return missed or ["no bar is missed"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-server", help="the binary of llama.cpp's server")
    parser.add_argument("--vllm", help="an interpreter with vllm-cpu")
    parser.add_argument("--vllm-model", help="a Hugging Face directory of the same model, for vLLM")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="measure nothing; save the table in benchmarks/results")
    args = parser.parse_args()
    if args.write:
        results.save("serving", table)
    else:
        measure(args)
        print("\n".join([*(table("servers") or []), "", *verdict()]))


if __name__ == "__main__":
    main()
