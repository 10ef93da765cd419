"""Is the text the engine's own? Prompts under every method on a target of another engine, against plain decoding there.

    python tests/campaigns/engines.py -o FILE.jsonl [-m zoo:pico] [--engine transformers] [--temperature 0 0.8]
    python tests/campaigns/engines.py --table FILE.jsonl

The model of the zoo is written as a Hugging Face directory for transformers; llama.cpp reads its GGUF file. At
temperature 0 plain decoding is also compared with the engine's own loop. Every first difference is listed with the
distance of the target's two best scores there, noise included. Float32 (llama.cpp: the file's own types), one thread.
Prompts are evaluated in the same pieces everywhere: how a row of a prompt is rounded depends on the number of rows in
its forward. A line of FILE is one method; lines that are there are not measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import attrs
import torch

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from spec_commands.prompt import tokens_of
from spec_commands.prompts import Prompt, read_prompt_file
from spec_compare.measuring.difference import Difference, difference
from spec_compare.measuring.measure import RequestSettings, lap, observe_run
from spec_compare.records.record import Record
from spec_zoo import HERE, path

from benchmarks.support.tables import heading, row
from spec_core import Run, Sampling, Target, load
from tests.support.recorded import lines

PLAIN, OWN = "plain", "own loop"
SETTINGS: dict[str, Any] = {"max_sequences": 1, "reuse": False, "prefill_chunk": 512}
"""Every prompt from its beginning, in the pieces of llama.cpp's own loop; transformers' own has no smaller ones."""
PAUSED = 64
"""Rows of a prompt above which a run evaluates the last one alone, if the model has recurrent layers."""
LOOKUPS: dict[str, Any] = {name: name for name in ("ngram", "suffix", "recycling")}
PAIR = ("draft-model", {"file": "zoo:pico-draft"})
METHODS: dict[str, dict[str, Any]] = {
    "zoo:pico": LOOKUPS
    | {
        "draft-model": PAIR,
        "eagle3": ("eagle3", {"file": "zoo:pico-eagle3"}),
        "dflash": ("dflash", {"file": "zoo:pico-dflash"}),
    },
    "zoo:pico-hybrid": LOOKUPS | {"draft-model": PAIR, "mtp": ("mtp", {"file": "zoo:pico-hybrid"})},
    "zoo:smollm2": LOOKUPS,
}


def load_engine(engine: str, model: str) -> Target:
    """The target, with one thread."""
    if engine == "transformers":
        from tests.support.hugging_face import directory

        return load(f"transformers:{directory(model)}", dtype="float32", device="cpu", threads=1)
    return load(f"llamacpp:{path(model.removeprefix('zoo:'))}", threads=1)


def own_loop(engine: str, model: str, target: Any) -> Callable[[list[int], int], list[int]]:
    """The engine's own greedy generation: prompt, number of tokens -> tokens."""
    if engine == "transformers":

        def generate(tokens: list[int], n: int) -> list[int]:
            ids = torch.tensor([tokens])
            options = {"max_new_tokens": n, "do_sample": False, "eos_token_id": sorted(target.info.eog)}
            generated = target.model.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **options)
            return generated[0, len(tokens) :].tolist()

        return generate
    import llama_cpp

    file = str(path(model.removeprefix("zoo:")))
    llama = llama_cpp.Llama(file, n_ctx=2048, n_threads=1, n_threads_batch=1, flash_attn=True, verbose=False)

    def choose_tokens(tokens: list[int], n: int) -> list[int]:
        llama.reset()
        if pauses := target.recurrent and len(tokens) > PAUSED:
            llama.eval(tokens[:-1])
        chosen: list[int] = []
        for token in llama.generate(tokens[-1:] if pauses else tokens, temp=0.0, reset=False):
            chosen.append(token)
            if len(chosen) == n or token in target.info.eog:
                return chosen
        return chosen

    return choose_tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", nargs="+", default=[*METHODS], choices=METHODS)
    parser.add_argument("--engine", nargs="+", default=["llamacpp", "transformers"])
    parser.add_argument("--temperature", nargs="+", type=float, default=[0.0, 0.8])
    parser.add_argument("--limit", type=int, default=50, help="prompts")
    parser.add_argument("-n", type=int, default=128, help="tokens of a text")
    parser.add_argument("-o", "--output", type=Path, help="lines of JSON; what is there is not measured again")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the table of a file, measure nothing")
    args = parser.parse_args()
    if args.table is None and args.output is None:
        parser.error("give -o FILE or --table FILE")
    torch.set_num_threads(1)
    cases = product(args.model, args.engine, args.temperature) if args.table is None else ()
    for model, engine, temperature in cases:
        measure(model, engine, temperature, args)
    print("\n".join(table([*lines(args.table or args.output)])))


def measure(model: str, engine: str, temperature: float, args: argparse.Namespace) -> None:
    """Append a line for plain decoding, for the engine's own loop and for each method that FILE does not have."""
    facts = {"model": model, "engine": engine, "temperature": temperature, "n": args.n, "limit": args.limit}
    known = {x["method"] for x in lines(args.output) if {key: x[key] for key in facts} == facts}
    owned = [OWN] if temperature == 0 else []
    names = [PLAIN, *owned, *METHODS[model]]
    if known.issuperset(names):
        return
    terms = RequestSettings(args.n, Sampling(temperature=temperature), seed=1)
    case = Case(engine, model, load_engine(engine, model), prompts_of(model, args.limit), terms)
    plain: dict[str, Record] = {}
    for name in [PLAIN, *(name for name in names[1:] if name not in known)]:
        texts, figures = case.own(plain) if name == OWN else case.run(name)
        plain = plain or texts
        parted = [r for r in texts.values() if r.tokens != plain[r.prompt].tokens]
        summary = {"differences": [attrs.asdict(case.difference(r, plain[r.prompt].tokens)) for r in parted]}
        counts = {"prompts": len(texts), "equal": len(texts) - len(parted)}
        about = facts | {"method": name, "exact": case.target.info.exact}
        if name not in known:
            with args.output.open("a") as out:
                out.write(json.dumps(about | counts | figures | summary) + "\n")


def prompts_of(model: str, limit: int) -> list[Prompt]:
    """``limit`` prompts, spread over the families of a file; SmolLM2 has 40 chats, and texts for the rest."""
    texts = read_prompt_file(HERE / "prompts-200.jsonl")
    if model != "zoo:smollm2":
        return evenly(texts, limit)
    chats = read_prompt_file(HERE / "prompts-chat.jsonl")[:limit]
    renamed = [attrs.evolve(p, id=f"text-{p.id}") for p in evenly(texts, limit - len(chats))]
    return [*chats, *renamed]


def evenly(prompts: list[Prompt], limit: int) -> list[Prompt]:
    return [prompts[i * len(prompts) // limit] for i in range(limit)]


@attrs.frozen
class Case:
    """One model on one engine under one sampling."""

    engine: str
    model: str
    target: Any
    prompts: list[Prompt]
    terms: RequestSettings

    def run(self, name: str) -> tuple[dict[str, Record], dict[str, float]]:
        """Texts of a method by prompt, one after the other; tokens per CPU second and per step."""
        method = METHODS[self.model].get(name)
        run, watch = observe_run(Run(self.target, [] if method is None else [method], **SETTINGS))
        began = process_time()
        laps = [lap(name, run, watch, [prompt], self.terms, 0) for prompt in self.prompts]
        seconds = process_time() - began
        texts = {r.prompt: r for one in laps for r in one.records}
        rate = sum(len(r.tokens) for r in texts.values()) / seconds
        return texts, {"rate": round(rate, 1), "tokens_per_step": round(run.stats.report()["tokens_per_step"], 2)}

    def own(self, plain: dict[str, Record]) -> tuple[dict[str, Record], dict[str, float]]:
        """Texts of the engine's own loop, as records like those of plain decoding."""
        loop, began = own_loop(self.engine, self.model, self.target), process_time()
        chosen = {p.id: loop(tokens_of(p.given, self.target), self.terms.max_tokens) for p in self.prompts}
        rate = sum(map(len, chosen.values())) / (process_time() - began)
        texts = {key: attrs.evolve(plain[key], contender=OWN, tokens=tokens) for key, tokens in chosen.items()}
        return texts, {"rate": round(rate, 1)}

    def difference(self, record: Record, plain: list[int]) -> Difference:
        contents = {p.id: p.given for p in self.prompts}
        return difference(record, plain, contents[record.prompt], self.target, self.terms)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown: equal texts of each method, by model, engine and temperature."""
    names = list(dict.fromkeys(x["method"] for x in rows if x["method"] != PLAIN))
    groups: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for x in rows:
        groups.setdefault((x["model"], x["engine"], x["temperature"], x["exact"]), {})[x["method"]] = x
    shown = heading(["model", "engine", "temperature", "exact", *names])
    for (model, engine, temperature, exact), methods in groups.items():
        cells = [f"{methods[n]['equal']} of {methods[n]['prompts']}" if n in methods else "" for n in names]
        shown.append(row([model.removeprefix("zoo:"), engine, f"{temperature:g}", exact, *cells]))
    gaps = [d["gap"] for x in rows for d in x["differences"] if d["gap"] is not None]
    largest = f"; the largest gap of the two best scores at one is {max(gaps):.1e}" if gaps else ""
    return [*shown, "", f"{sum(len(x['differences']) for x in rows)} texts differ{largest}."]


if __name__ == "__main__":
    main()
