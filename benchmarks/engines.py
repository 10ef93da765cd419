"""Methods on targets of other engines against what these engines have themselves: tokens per CPU second, in turns.

    python benchmarks/engines.py --engine transformers -m zoo:smollm2 -o FILE.jsonl
    python benchmarks/engines.py --engine llamacpp -m zoo:smollm2 --server LLAMA_SERVER -o FILE.jsonl
    python benchmarks/engines.py --table FILE.jsonl

Both sides use the same weights, greedily, on one pinned thread in float32 (llama.cpp: the file's own types), with the
same prompts and number of tokens; lookups, ``ngram`` and draft models have the same constant draft length K, ``suffix``
and ``recycling`` their own thresholds. The prompt is evaluated in every measurement. On a prompt all contenders follow
one another, and each prompt begins with the next one of them. transformers: ``generate``, prompt lookup and assisted
generation, on the very model that the target holds; the draft model is loaded by transformers on both sides.
llama.cpp: the loop of llama-cpp-python without and with prompt lookup, and, with ``--server``, llama.cpp's own server
without drafts and with ``ngram-simple``; the draft model is llama.cpp's too, llama-cpp-python has no drafts of one.

A line of FILE is one prompt of one contender; lines that are there are not measured again. The table divides sums over
the prompts that every contender has; a ratio is the median over prompts. ``loop`` is the wall time of the median step
outside of hooks and the forward: scheduling, bookkeeping and calls of hooks.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_commands.prompt import tokens_of
from spec_commands.prompts import read_prompt_file
from spec_compare.measuring.prompt_source import choose_prompts, shipped_file
from spec_zoo import path

from benchmarks.serving import cpu_seconds, free_port
from benchmarks.support import measuring
from benchmarks.support.tables import heading, row
from spec_core import Run, Step, Target, load
from tests.support.recorded import lines

DRAFTS = {"zoo:pico": "zoo:pico-draft"}
LOOKUP = {"n_min": 1, "n_max": 2, "p_min": 0.0}
"""Settings with which ``ngram`` looks up what the engines' own lookup does: the last two tokens, or the last one."""
Generate = Callable[[list[int]], tuple[list[int], dict[str, float]]]
"""Tokens after a prompt; and its CPU seconds, with other figures of it."""


def with_cpu_seconds(generate: Callable[[list[int]], list[int]]) -> Generate:
    """A function of this process, with its CPU seconds."""

    def run(prompt: list[int]) -> tuple[list[int], dict[str, float]]:
        began = time.process_time()
        tokens = generate(prompt)
        return tokens, {"seconds": time.process_time() - began}

    return run


class Watch:
    """Observes a run: what each step takes outside of hooks and the forward, counted from the end of the one before."""

    def __init__(self) -> None:
        self.loops: list[float] = []
        self.ended: float | None = None

    def begin(self) -> None:
        """Begin a prompt, whose first step is not counted."""
        self.loops, self.ended = [], None

    def __call__(self, step: Step) -> None:
        now = time.perf_counter()
        if self.ended is not None:
            self.loops.append(now - self.ended - sum(step.seconds.values()))
        self.ended = time.perf_counter()


def ours(target: Target, methods: list[Any], n: int, k: int) -> Generate:
    """One run for all prompts, which keeps no rows between them."""
    run, watch = Run(target, methods=methods, draft_max=k, reuse=False, max_sequences=1), Watch()
    run.observe(watch)

    def generate(prompt: list[int]) -> tuple[list[int], dict[str, float]]:
        watch.begin()
        before, began = run.stats.report()["steps"], time.process_time()
        tokens = run.generate(prompt, max_tokens=n, ignore_eos=True).result.tokens
        seconds = time.process_time() - began
        steps = run.stats.report()["steps"] - before
        return tokens, {"seconds": seconds, "steps": steps, "loop": statistics.median(watch.loops)}

    return generate


def in_transformers(model: str, n: int, k: int, _: str | None) -> tuple[Target, dict[str, Generate]]:
    """A directory that is written from the model's file, and everything that transformers has on its side."""
    from transformers import GenerationConfig

    from tests.support.hugging_face import directory

    def open_target(name: str) -> Any:
        return load(f"transformers:{directory(name)}", dtype="float32", device="cpu", threads=1)

    target: Any = open_target(model)
    fixed = {"max_new_tokens": n, "min_new_tokens": n, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}

    def own(assistant: Any = None, **options: Any) -> Generate:
        config = GenerationConfig(**fixed, **options)

        def generate(prompt: list[int]) -> list[int]:
            ids = torch.tensor([prompt])
            options = {
                "attention_mask": torch.ones_like(ids),
                "generation_config": config,
                "assistant_model": assistant,
            }
            with torch.inference_mode():
                return target.model.generate(ids, **options)[0, len(prompt) :].tolist()

        return with_cpu_seconds(generate)

    generators = {"generate": own(), "prompt lookup": own(prompt_lookup_num_tokens=k, max_matching_ngram_size=2)}
    generators |= _methods(target, n, k)
    if model in DRAFTS:
        assistant = open_target(DRAFTS[model]).model
        assistant.generation_config.num_assistant_tokens = k
        assistant.generation_config.num_assistant_tokens_schedule = "constant"
        assistant.generation_config.assistant_confidence_threshold = 0.0
        file = f"transformers:{directory(DRAFTS[model])}"
        generators["assisted generation"] = own(assistant)
        generators["`draft-model`"] = ours(
            target, [("draft-model", {"file": file, "p_min": 0.0, "draft_max": k})], n, k
        )
    return target, generators


def in_llamacpp(model: str, n: int, k: int, server: str | None) -> tuple[Target, dict[str, Generate]]:
    """A file, the loop of llama-cpp-python, and llama.cpp's server if its program is given."""
    import llama_cpp
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    file = str(path(model.removeprefix("zoo:")))
    target = load(f"llamacpp:{file}", threads=1, context=2048)

    def own(**options: Any) -> Generate:
        llama = llama_cpp.Llama(
            file, n_ctx=2048, n_threads=1, n_threads_batch=1, flash_attn=True, verbose=False, **options
        )

        def generate(prompt: list[int]) -> list[int]:
            tokens = llama.generate(prompt, temp=0.0, reset=True)
            llama.reset()
            return [token for token, _ in zip(tokens, range(n), strict=False)]

        return with_cpu_seconds(generate)

    lookup = LlamaPromptLookupDecoding(max_ngram_size=2, num_pred_tokens=k)
    generators = {"llama-cpp-python": own(), "llama-cpp-python, prompt lookup": own(draft_model=lookup)}
    if server is not None:
        simple = [
            "--spec-type",
            "ngram-simple",
            "--spec-ngram-simple-size-n",
            "2",
            "--spec-ngram-simple-size-m",
            str(k),
        ]
        generators["llama-server"] = Server(server, file, n, []).generate
        generators["llama-server, ngram-simple"] = Server(server, file, n, simple).generate
    generators |= _methods(target, n, k)
    if model in DRAFTS:
        draft = f"llamacpp:{path(DRAFTS[model].removeprefix('zoo:'))}"
        generators["`draft-model`"] = ours(
            target, [("draft-model", {"file": draft, "p_min": 0.0, "draft_max": k})], n, k
        )
    return target, generators


ENGINES = {"transformers": in_transformers, "llamacpp": in_llamacpp}


def _methods(target: Target, n: int, k: int) -> dict[str, Generate]:
    return {
        "plain": ours(target, [], n, k),
        "`ngram`": ours(target, [("ngram", LOOKUP)], n, k),
        "`suffix`": ours(target, ["suffix"], n, k),
        "`recycling`": ours(target, ["recycling"], n, k),
    }


class Server:
    """llama.cpp's server in a process of its own, idle while others are measured."""

    def __init__(self, program: str, file: str, n: int, options: list[str]) -> None:
        port = free_port()
        self.n, self.address = n, f"http://127.0.0.1:{port}"
        command = [
            program,
            "-m",
            file,
            "--port",
            str(port),
            "-t",
            "1",
            "-tb",
            "1",
            "-np",
            "1",
            "-c",
            "2048",
            "-fa",
            "on",
        ]
        self.process = subprocess.Popen([*command, "--poll", "0", *options], stderr=subprocess.DEVNULL)
        atexit.register(self.process.kill)
        for _ in range(600):
            try:
                urlopen(f"{self.address}/health", timeout=5).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    sys.exit(f"{program} ended with {self.process.returncode}: it may not know an option of {options}")
                time.sleep(0.1)
        sys.exit(f"{program} did not answer within a minute")

    def generate(self, prompt: list[int]) -> tuple[list[int], dict[str, float]]:
        body = {"prompt": prompt, "n_predict": self.n, "temperature": 0, "ignore_eos": True}
        body |= {"cache_prompt": False, "return_tokens": True}
        began = self.seconds()
        data = json.dumps(body).encode()
        with urlopen(Request(f"{self.address}/completion", data, {"Content-Type": "application/json"})) as answer:
            tokens = json.load(answer)["tokens"]
        return tokens, {"seconds": self.seconds() - began}

    def seconds(self) -> float:
        """CPU seconds of the process, in steps of 10 ms."""
        return cpu_seconds(self.process.pid)


def measure(args: argparse.Namespace) -> None:
    """Append a line for each prompt and contender that FILE does not have yet."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0)) if args.core is None else args.core})
    torch.set_num_threads(1)
    target, contenders = ENGINES[args.engine](args.model, args.n, args.k, args.server)
    facts = {"engine": args.engine, "model": args.model, "n": args.n, "k": args.k}
    known = {(x["prompt"], x["contender"]) for x in lines(args.output) if {key: x[key] for key in facts} == facts}
    names = list(contenders)
    prompts = _prompts(args.model, target, args.limit)
    for name in names:
        contenders[name](next(iter(prompts.values()))[:8])
    for i, (prompt, tokens) in enumerate(prompts.items()):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            if (prompt, name) not in known:
                _append(args.output, facts | {"prompt": prompt, "contender": name}, *contenders[name](tokens))


def _prompts(model: str, target: Target, limit: int) -> dict[str, list[int]]:
    file = shipped_file([load(model, weights=False)])
    return {p.id: tokens_of(p.given, target) for p in choose_prompts(read_prompt_file(file), file.name, limit=limit)}


def _append(file: Path, about: dict[str, Any], tokens: list[int], figures: dict[str, float]) -> None:
    text = sha256(json.dumps(tokens).encode()).hexdigest()[:16]
    with file.open("a") as out:
        out.write(
            json.dumps(about | {"tokens": len(tokens), "text": text, "load": os.getloadavg()[0]} | figures) + "\n"
        )


FIRST = {"transformers": "generate", "llamacpp": "llama-cpp-python"}
"""Base of ratios: the engine's own plain decoding."""


def table(results: Iterable[dict[str, Any]]) -> list[str]:
    """Markdown of everything in a file; measurements of other models or settings are tables of their own."""
    groups: dict[tuple[str, str, int, int], dict[str, dict[str, dict[str, Any]]]] = {}
    for x in results:
        about = (x["engine"], x["model"], x["n"], x["k"])
        groups.setdefault(about, {}).setdefault(x["contender"], {})[x["prompt"]] = x
    return [line for about, group in groups.items() for line in (*_table(*about, group), "")]


def _table(engine: str, model: str, n: int, k: int, group: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    shared = sorted(set.intersection(*(set(measured) for measured in group.values())))
    first = group[FIRST[engine]]
    shown = [f"{engine}, {model.removeprefix('zoo:')}: {len(shared)} prompts, {n} tokens, draft length {k}", ""]
    shown += heading(["", "tokens/CPU s", "ratio", "equal texts", "tokens/step", "loop, \u00b5s/step"])
    return shown + [
        _row(name, [measured[p] for p in shared], [first[p] for p in shared]) for name, measured in group.items()
    ]


def _row(name: str, measured: list[dict[str, Any]], first: list[dict[str, Any]]) -> str:
    tokens, seconds = sum(x["tokens"] for x in measured), sum(x["seconds"] for x in measured)
    ratio = statistics.median(b["seconds"] / a["seconds"] for a, b in zip(measured, first, strict=True))
    equal = sum(a["text"] == b["text"] for a, b in zip(measured, first, strict=True))
    cells = [name, f"{tokens / seconds:.1f}", f"{ratio:.2f}", f"{equal} of {len(measured)}"]
    if "steps" not in measured[0]:
        return row([*cells, "", ""])
    steps = sum(x["steps"] for x in measured)
    loop = statistics.median(x["loop"] for x in measured)
    return row([*cells, f"{tokens / steps:.2f}", f"{loop * 1e6:.0f}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="zoo:smollm2", choices=("zoo:smollm2", "zoo:pico"))
    parser.add_argument("--engine", default="transformers", choices=ENGINES)
    parser.add_argument("--server", metavar="PROGRAM", help="llama-server")
    parser.add_argument("--limit", type=int, default=4, help="prompts of a family")
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("-k", type=int, default=5)
    measuring.run(parser, measure, table)


if __name__ == "__main__":
    main()
