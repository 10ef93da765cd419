"""Tokens per second of whole generations, here and in llama.cpp: the same file, prompts and threads, in turns.

    python benchmarks/end_to_end.py --peer PYTHON                            # measure missing tables, then write all
    python benchmarks/end_to_end.py --peer PYTHON --only smollm2 --seconds 150   # one model, for at most 150 s
    python benchmarks/end_to_end.py --write                                  # write tables of earlier measurements

PYTHON: see support/peer.py. A lap is one side on one prompt: plain decoding or a method with default settings here,
llama.cpp's plain decoding there, as long as the plain text here. The order of sides rotates. Prompts are token ids,
from the model's own template if it is a chat model; loading and tokenisation are not timed. Prefill ends
with the first token, decoding with the last; decoding tokens to text is timed here, but not in llama.cpp.

The plain text is generated first; a method whose text differs from it gets no figure.
A unit of work is one family once, on new runs; it is kept in build/end_to_end and not measured again. There is a table
for each model and temperature in benchmarks/results/end-to-end.json; incomplete tables are not written.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import attrs

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_commands.environment import environment
from spec_commands.prompt import tokens_of
from spec_commands.prompts import Prompt, read_prompt_file
from spec_compare.figures.summary import Cell, speed
from spec_compare.measuring.measure import RequestSettings, lap, observe_run, rotate_names, warm_runs
from spec_compare.measuring.prompt_source import choose_prompts

from benchmarks.support.peer import Peer
from benchmarks.support.results import save
from benchmarks.support.tables import ROOT, heading, row
from spec_core import Run, Sampling, Target, load

KEPT = ROOT / "build" / "end_to_end"
PEER, PLAIN, ALL = "llama.cpp", "plain", "all"
TOKENS, CONTEXT, LIMIT = 128, 2048, 10
FREE = ["ngram", "suffix", "recycling"]
METHODS = {
    "smollm2": FREE,
    "pico": [*FREE, "draft-model", "eagle3"],
    "pico-hybrid": [*FREE, "mtp"],
}
TEMPERATURES = (0.0, 0.8)


@attrs.frozen
class Table:
    """One model at one temperature. limit: prompts of a family. repeats: laps of every side on a prompt."""

    model: str
    temperature: float
    limit: int
    repeats: int

    @property
    def name(self) -> str:
        return f"end to end, {self.model}, temperature {self.temperature:g}"

    def file(self, family: str, repeat: int) -> Path:
        return KEPT / f"{self.model}-{self.temperature:g}-{self.limit}" / f"{family.replace(' ', '-')}-{repeat}.json"

    def units(self) -> Iterator[tuple[int, str]]:
        for repeat in range(self.repeats):
            for family in families(self.model):
                yield repeat, family

    def missing(self) -> list[tuple[int, str]]:
        return [(repeat, family) for repeat, family in self.units() if not self.file(family, repeat).exists()]


@attrs.frozen
class Lap:
    """One side on one prompt, once. Prefill ends with the first token. equal: whether the text is the plain one."""

    side: str
    prompt: str
    family: str
    prompt_tokens: int
    tokens: int
    prefill: float
    decode: float
    equal: bool


# measuring


def prompts(model: str) -> list[Prompt]:
    """The prompts that come with the model; chats are messages."""
    from spec_zoo import ZOO

    return read_prompt_file(ZOO[model].prompts)


def families(model: str) -> list[str]:
    return list(dict.fromkeys(prompt.family for prompt in prompts(model)))


@attrs.define(eq=False)
class Bench:
    """Both sides with one model."""

    model: str
    target: Target
    peer: Peer

    def unit(self, table: Table, family: str, repeat: int) -> dict[str, Any]:
        """Measures one family once."""
        family_prompts = choose_prompts(prompts(self.model), self.model, [family], table.limit)
        asked = [attrs.evolve(p, given=tokens_of(p.given, self.target)) for p in family_prompts]
        terms = RequestSettings(TOKENS, Sampling(temperature=table.temperature))
        laps = list(self.laps(asked, terms, repeat))
        about = {"cpu": environment()["cpu"], "choice": environment()["choice"], "peer": self.peer.about}
        return {"laps": [attrs.asdict(one) for one in laps], "load": os.getloadavg()[0], **about}

    def laps(self, asked: list[Prompt], terms: RequestSettings, repeat: int) -> Iterator[Lap]:
        """All sides on all prompts of a family, in rotating order."""
        contenders = [PLAIN, *METHODS[self.model]]
        warm_runs({name: self.run(name) for name in contenders}, asked, terms)
        plain = self.run(PLAIN)
        texts = {p.id: plain.generate(terms.request(p)).result.tokens for p in asked}
        runs = {name: observe_run(self.run(name)) for name in contenders}
        for i, prompt in enumerate(asked):
            for side in rotate_names([PEER, *contenders], i + repeat):
                if side == PEER:
                    yield self.theirs(prompt, len(texts[prompt.id]), terms)
                else:
                    record = lap(side, *runs[side], [prompt], terms, repeat).records[0]
                    equal = record.tokens == texts[prompt.id]
                    counts = record.prompt_tokens, len(record.tokens)
                    times = record.first_seconds, record.decode_seconds
                    yield Lap(side, prompt.id, prompt.family, *counts, *times, equal)

    def run(self, name: str) -> Run:
        methods = [] if name == PLAIN else [name]
        return Run(self.target, methods=methods, reuse=False, max_sequences=1)

    def theirs(self, prompt: Prompt, count: int, terms: RequestSettings) -> Lap:
        seed = prompt.seed(terms.seed)
        result = self.peer.generate(prompt.given, count, terms.sampling.temperature, seed)
        sizes = len(prompt.given), len(result["tokens"])
        return Lap(PEER, prompt.id, prompt.family, *sizes, result["prefill"], result["decode"], True)


def measure(table: Table, python: str, until: float) -> None:
    """Measures missing units until the time is over."""
    from spec_zoo import path

    missing = table.missing()
    if not missing or perf_counter() > until:
        return
    peer = Peer(python, str(path(table.model).resolve()), CONTEXT, 1)
    bench = Bench(table.model, load(f"zoo:{table.model}", threads=1), peer)
    for repeat, family in missing:
        if perf_counter() > until:
            break
        print(f"{table.name}: {family}, {repeat + 1} of {table.repeats}", file=sys.stderr)
        keep(table.file(family, repeat), bench.unit(table, family, repeat))
    peer.close()


def keep(file: Path, unit: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".part").write_text(json.dumps(unit), "utf-8")
    file.with_suffix(".part").replace(file)


# figures


@attrs.frozen
class Figure:
    """One side on one family. Ratios are of tokens per second on the same prompts; None if a text differs.

    rate, prefill: tokens per second, decoded and of prompts. ratio: to llama.cpp's rate; low, high: its bootstrap
    interval over prompts; middle: median of the prompts' ratios. of_plain: to plain decoding here. of_prefill: to
    llama.cpp's prefill. whole: to llama.cpp, both phases.
    """

    family: str
    side: str
    rate: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    middle: float | None = None
    of_plain: float | None = None
    prefill: float | None = None
    of_prefill: float | None = None
    whole: float | None = None


def figures(laps: Iterable[Lap]) -> list[Figure]:
    """A figure for every family and side, and over all families."""
    laps = list(laps)
    sides = [PEER, *(side for side in dict.fromkeys(one.side for one in laps) if side not in (PEER, PLAIN))]
    sides.insert(1, PLAIN)
    wrong = {one.side for one in laps if not one.equal}
    all_figures = []
    for family in [*dict.fromkeys(one.family for one in laps), ALL]:
        own_laps = [one for one in laps if family in (one.family, ALL)]
        all_figures += [Figure(family, side) if side in wrong else figure(own_laps, family, side) for side in sides]
    return all_figures


def figure(laps: list[Lap], family: str, side: str) -> Figure:
    """laps: of the family, of all sides."""
    peer, ours = decode_times(laps, PEER), decode_times(laps, side)
    against, first = speed(ours, peer), speed(prefill_times(laps, side), prefill_times(laps, PEER))
    return Figure(
        family=family,
        side=side,
        **{name: against[name] for name in ("rate", "low", "high", "middle", "whole")},
        ratio=against["speedup"],
        of_plain=speed(ours, decode_times(laps, PLAIN))["speedup"],
        prefill=first["rate"],
        of_prefill=first["speedup"],
    )


def decode_times(laps: Iterable[Lap], side: str) -> dict[str, Cell]:
    """{prompt: (tokens after the first, their seconds)}, medians of its laps."""
    return cells(laps, side, lambda lap: (lap.tokens, lap.tokens - 1, lap.decode, lap.prefill + lap.decode))


def prefill_times(laps: Iterable[Lap], side: str) -> dict[str, Cell]:
    """{prompt: (tokens of the prompt, seconds to its first token)}."""
    return cells(laps, side, lambda lap: (lap.prompt_tokens, lap.prompt_tokens, lap.prefill, lap.prefill))


def cells(laps: Iterable[Lap], side: str, count: Callable[[Lap], tuple[int, int, float, float]]) -> dict[str, Cell]:
    """count: a lap's tokens in all and in the phase, and the seconds of the phase and in all."""
    by_prompt: dict[str, list[tuple[int, int, float, float]]] = {}
    for one in laps:
        if one.side == side:
            by_prompt.setdefault(one.prompt, []).append(count(one))
    return {prompt: Cell(*map(statistics.median, zip(*counted, strict=True))) for prompt, counted in by_prompt.items()}


def lines(all_figures: list[Figure]) -> list[str]:
    """A table of figures."""
    columns = ["family", "side", "tokens/s", "of llama.cpp's (90 %)", "median of prompts", "of our plain"]
    return [*heading([*columns, "prompt tokens/s", "of llama.cpp's", "both phases"]), *map(line, all_figures)]


def line(f: Figure) -> str:
    name = f.side if f.side in (PEER, PLAIN) else f"`{f.side}`"
    if f.rate is None:
        return row([f.family, name, "text differs", *[""] * 6])
    ratio = "1.00" if f.side == PEER else f"{f.ratio:.2f}" + ("" if f.low is None else f" ({f.low:.2f}-{f.high:.2f})")
    rates = f"{f.rate:.0f}", ratio, f"{f.middle:.2f}", f"{f.of_plain:.2f}"
    return row([f.family, name, *rates, f"{f.prefill:.0f}", f"{f.of_prefill:.2f}", f"{f.whole:.2f}"])


def table_lines(table: Table) -> list[str] | None:
    """The lines of a table of results, with the machine below; None if a unit is missing."""
    if table.missing():
        return None
    units = [json.loads(table.file(family, repeat).read_text("utf-8")) for repeat, family in table.units()]
    shown = lines(figures(Lap(**one) for unit in units for one in unit["laps"]))
    about = list(
        dict.fromkeys(f"{unit['cpu']}; choice {unit['choice']}; {unit['peer'].replace(' = 1 |', '')}" for unit in units)
    )
    size = f"{table.limit} prompts of each family, laps of each side: {table.repeats}, one thread"
    load = [unit["load"] for unit in units]
    machine = [f"{a.replace(' = 1 |', '')}." for a in about]
    return [*shown, "", f"{size}; load average {min(load):.1f} to {max(load):.1f}.", *machine]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="an interpreter with llama-cpp-python")
    parser.add_argument("--only", choices=METHODS, help="one model")
    parser.add_argument("--limit", type=int, default=LIMIT, help="prompts of each family; fewer do not change the page")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no unit after this time")
    parser.add_argument("--write", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if not args.write and not args.peer:
        parser.error("--peer PYTHON is required: an interpreter with llama-cpp-python 0.3.36")
    asked = [Table(m, t, args.limit, args.repeats) for m in METHODS for t in TEMPERATURES if args.only in (None, m)]
    until = perf_counter() + args.seconds
    for table in () if args.write else asked:
        measure(table, args.peer, until)
    pages = {table.name: table_lines(table) for table in asked}
    for name, shown in pages.items():
        print("\n".join([name, *(shown or ["incomplete: run the command again"]), ""]))
    if args.limit == LIMIT:
        save("end-to-end", pages.get)


if __name__ == "__main__":
    main()
