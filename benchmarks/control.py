"""Speed under ``control=auto`` against plain decoding, and against every fixed length.

    python benchmarks/control.py -m pico --temperature 0.8              # measure what is missing, print the verdict
    python benchmarks/control.py -m smollm2 --batch 4 --burn            # four prompts at once; a busy process beside it
    python benchmarks/control.py -m pico --together                     # four methods in one list, and each alone

Contenders are plain decoding, and every method of the comparison's tables under ``auto``, with its default settings,
and with ``draft_max`` of each of LENGTHS; ``wrong`` proposes tokens that are never right, as long as it may. They take
turns on each prompt, in a rotating order. A run serves all prompts of a repeat, in an order that is shuffled anew for
each: ``auto`` begins once per repeat.

Speedup: tokens after the first over their seconds, against plain decoding on the same prompts, with a 90 % bootstrap
interval over prompts; of prompts that run at once, over the seconds of all of them: where some end earlier, the others
get more of the machine, and the mean time of a prompt falls though all take as long. best: the fixed length that was
fastest in this family, known only afterwards. oracle: the fastest fixed length, or none, of each prompt. A method whose
text differs from plain decoding's gets no figure.
A repeat is kept in build/control once it is complete, and not measured again.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_cli.main import COLLECT
from spec_commands.environment import environment
from spec_commands.heap import frozen_heap
from spec_commands.prompts import Prompt, read_prompt_file
from spec_compare.figures.summary import Cell, speed
from spec_compare.measuring.measure import RequestSettings, batches, lap, observe_run, rotate_names, warm_runs
from spec_compare.measuring.prompt_source import choose_prompts
from spec_compare.records.record import Record

from benchmarks.comparison import MODELS
from benchmarks.support.tables import ROOT, heading, row
from spec_core import Compat, Draft, DraftStep, Run, Sampling, Target, hookimpl, load

KEPT = ROOT / "build" / "control"
PLAIN, ALL, AUTO, DEFAULT, WRONG = "plain", "all", "auto", "default", "wrong"
LENGTHS = (2, 4, 8)
TOGETHER = "ngram+suffix+draft-model+eagle3"
TOKENS = 128
REACHES, MEDIAN, OF_BEST, OF_WRONG = 0.98, 0.98, 0.95, 0.98
"""Bars: of the upper end of every interval, of the median of prompts, of the best fixed setting over all families, and
of a method that is always wrong, whose median is compared."""


@attrs.define(eq=False)
class Wrong:
    """Always the longest draft, of a token that does not occur in texts."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat()

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            step.propose(seq, Draft([step.target.info.vocab - 1] * budget))


@attrs.frozen
class Contender:
    """methods: a chain, joined with +. setting: auto, default, or a length."""

    methods: str
    setting: str

    @property
    def name(self) -> str:
        return PLAIN if self.methods == PLAIN else f"{self.methods} {self.setting}"

    def run(self, target: Target, batch: int) -> Run:
        if self.methods == PLAIN:
            methods: list[Any] = []
        else:
            methods = [(WRONG, Wrong())] if self.methods == WRONG else parts(self.methods)
        more = {"draft_max": int(self.setting)} if self.setting.isdigit() else {}
        control = "auto" if self.setting == AUTO else "fixed"
        return Run(target, methods=methods, control=control, reuse=False, max_sequences=batch, **more)


def parts(chain: str) -> list[Any]:
    """The methods of a chain, with their settings: ``eagle3:width=2,p_min=0.1``."""
    lengths: list[Any] = []
    for one in chain.split("+"):
        name, _, settings = one.partition(":")
        pairs = (setting.split("=") for setting in settings.split(",") if setting)
        lengths.append((name, {key: json.loads(value) for key, value in pairs}) if settings else name)
    return lengths


@attrs.frozen
class Unit:
    """A model under some circumstances. chains: lists of methods, those of the comparison if there are none."""

    model: str
    temperature: float
    batch: int = 1
    burn: bool = False
    together: bool = False
    chains: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        more = [f"batch {self.batch}"] if self.batch > 1 else []
        more += ["beside a busy process"] if self.burn else []
        more += ["four methods"] if self.together else []
        more += [", ".join(self.chains)] if self.chains else []
        return ", ".join([self.model, f"temperature {self.temperature:g}", *more])

    def file(self, repeat: int) -> Path:
        return KEPT / f"{self.name.replace(', ', '-').replace(' ', '_')}-{repeat}.json"

    def contenders(self) -> list[Contender]:
        chains = self.chains or [word for word in MODELS[self.model] if not word.startswith(("-", "zoo:"))]
        if self.together:
            singles = [Contender(one, how) for one in TOGETHER.split("+") for how in (AUTO, DEFAULT)]
            return [Contender(PLAIN, ""), Contender(TOGETHER, AUTO), Contender(TOGETHER, DEFAULT), *singles]
        settings = [AUTO, DEFAULT, *map(str, LENGTHS)]
        methods = [Contender(chain, setting) for chain in chains for setting in settings]
        return [Contender(PLAIN, ""), *methods, Contender(WRONG, AUTO)]


# measuring


@contextmanager
def busy(enabled: bool) -> Iterator[None]:
    """A process that never waits, on any processor of the machine."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if enabled else None
    try:
        yield
    finally:
        if other:
            other.kill()
            other.wait()


def prompts(model: str, limit: int) -> list[Prompt]:
    from spec_zoo import ZOO

    all_prompts = read_prompt_file(ZOO[model].prompts)
    families = list(dict.fromkeys(prompt.family for prompt in all_prompts))
    return choose_prompts(all_prompts, model, families, limit)


def measure(unit: Unit, target: Target, limit: int, repeat: int) -> dict[str, Any]:
    """All contenders on all prompts, once."""
    terms = RequestSettings(TOKENS, Sampling(temperature=unit.temperature), batch=unit.batch)
    asked = prompts(unit.model, limit)
    contenders = {c.name: c for c in unit.contenders()}
    warm_runs({name: c.run(target, unit.batch) for name, c in contenders.items()}, asked, terms)
    runs = {name: observe_run(c.run(target, unit.batch)) for name, c in contenders.items()}
    laps: list[dict[str, Any]] = []
    with busy(unit.burn), frozen_heap():
        for i, group in enumerate(shuffle(batches(asked, unit.batch), repeat)):
            taken = {
                name: lap(name, *runs[name], group, terms, repeat).records for name in rotate_names(list(contenders), i)
            }
            plain = {record.prompt: record.tokens for record in taken[PLAIN]}
            for records in taken.values():
                laps += [record_fields(record, plain) for record in share_times(records)]
    env = environment()
    return {"laps": laps, "load": os.getloadavg()[0], "cpu": env["cpu"], "kernels": target.info.kernels}


def shuffle(groups: Iterable[list[Prompt]], repeat: int) -> list[list[Prompt]]:
    """Shuffle prompts in each repeat: ``auto`` should not always learn from the same text first."""
    order = [*groups]
    random.Random(repeat).shuffle(order)
    return order


def share_times(records: list[Record]) -> list[Record]:
    """Share the time from the last first token to the end of all equally among prompts that run at once."""
    last = max(records, key=lambda record: record.first_seconds + record.decode_seconds)
    began = max(record.first_seconds for record in records)
    times = (last.first_seconds + last.decode_seconds - began) / len(records), last.cpu_seconds / len(records)
    return [attrs.evolve(record, decode_seconds=times[0], cpu_seconds=times[1]) for record in records]


def record_fields(record: Record, plain: dict[str, list[int]]) -> dict[str, Any]:
    times = {key: getattr(record, key) for key in ("first_seconds", "decode_seconds", "cpu_seconds")}
    about = {"contender": record.contender, "prompt": record.prompt, "family": record.family}
    return {**about, "tokens": len(record.tokens), **times, "equal": record.tokens == plain[record.prompt]}


# figures


@attrs.frozen
class Line:
    """One chain in one family, as in the docstring above. best: (setting, speedup). of_best: auto over it."""

    family: str
    methods: str
    auto: dict[str, Any]
    best: tuple[str, float] | None
    oracle: float | None

    @property
    def of_best(self) -> float | None:
        return None if self.best is None else self.auto["speedup"] / self.best[1]

    def missed_bars(self) -> list[str]:
        """The bars that this line misses."""
        wrong = self.methods == WRONG
        bars = {
            f"the interval ends below {REACHES}": self.auto["high"] is not None and self.auto["high"] < REACHES,
            f"the median is below {MEDIAN}": self.auto["middle"] < (OF_WRONG if wrong else MEDIAN),
            f"below {OF_BEST} of the best fixed setting": self.family == ALL and (self.of_best or 1) < OF_BEST,
        }
        return [bar for bar, is_missed in bars.items() if is_missed]


Cells = dict[str, dict[str, Cell]]


def cells(laps: Iterable[dict[str, Any]]) -> Cells:
    """{contender: {prompt: medians of its laps}}; contenders with a text that is not plain decoding's are left out."""
    by_contender: dict[str, dict[str, list[tuple[float, ...]]]] = {}
    wrong = set()
    for one in laps:
        counts = one["tokens"], one["tokens"] - 1, one["decode_seconds"], one["first_seconds"] + one["decode_seconds"]
        by_contender.setdefault(one["contender"], {}).setdefault(one["prompt"], []).append(
            (*counts, one["cpu_seconds"])
        )
        wrong |= set() if one["equal"] else {one["contender"]}
    return {
        name: {prompt: Cell(*map(statistics.median, zip(*rows, strict=True))) for prompt, rows in repeats.items()}
        for name, repeats in by_contender.items()
        if name not in wrong
    }


def oracle(cells_by_contender: Cells, names: list[str]) -> float:
    """The speedup if each prompt had the fastest of these contenders, or none."""
    plain = cells_by_contender[PLAIN]
    best = sum(min(cells_by_contender[name][prompt].decode_seconds for name in [PLAIN, *names]) for prompt in plain)
    return sum(cell.decode_seconds for cell in plain.values()) / best


def lines(unit: Unit, laps: list[dict[str, Any]]) -> list[Line]:
    """Lines of every family and chain, then over all families."""
    table_lines: list[Line] = []
    for family in [*dict.fromkeys(one["family"] for one in laps), ALL]:
        cells_by_contender = cells(one for one in laps if family in (one["family"], ALL))
        for chain in dict.fromkeys(c.methods for c in unit.contenders() if c.setting == AUTO):
            if f"{chain} {AUTO}" in cells_by_contender:
                table_lines.append(line(unit, family, chain, cells_by_contender))
    return table_lines


def line(unit: Unit, family: str, chain: str, cells_by_contender: Cells) -> Line:
    rivals = [c for c in unit.contenders() if c.methods not in (PLAIN, WRONG) and c.name in cells_by_contender]
    if unit.together and chain == TOGETHER:
        fixed = [c.name for c in rivals if c.methods != TOGETHER]
    else:
        fixed = [c.name for c in rivals if c.methods == chain and c.setting != AUTO]
    speeds = {name: speed(cells_by_contender[name], cells_by_contender[PLAIN])["speedup"] for name in fixed}
    best = max(speeds.items(), key=lambda pair: pair[1]) if speeds else None
    auto = speed(cells_by_contender[f"{chain} {AUTO}"], cells_by_contender[PLAIN])
    return Line(family, chain, auto, best, oracle(cells_by_contender, fixed) if fixed else None)


def table(table_lines: list[Line]) -> list[str]:
    columns = ["family", "methods", "auto (90 %)", "median of prompts", "CPU time"]
    return [
        *heading([*columns, "best fixed", "auto of it", "oracle"]),
        *(row([one.family, *table_cells(one)]) for one in table_lines),
    ]


def summary(table_lines: list[Line]) -> list[str]:
    """Summary of all families together, with the family in which auto gained least."""
    columns = ["methods", "auto (90 %)", "median of prompts", "CPU time", "best fixed", "auto of it", "oracle"]
    rows = []
    for one in table_lines:
        if one.family == ALL:
            families = [other for other in table_lines if other.methods == one.methods and other.family != ALL]
            least = min(families, key=lambda other: other.auto["speedup"])
            rows.append(row([*table_cells(one), f"{least.auto['speedup']:.2f} ({least.family})"]))
    return [*heading([*columns, "lowest family"]), *rows]


def table_cells(one: Line) -> list[str]:
    auto = one.auto
    span = "" if auto["low"] is None else f" ({auto['low']:.2f}-{auto['high']:.2f})"
    best = ["", ""] if one.best is None else [f"{one.best[1]:.2f} ({fixed_setting(one)})", f"{one.of_best:.2f}"]
    cpu = "" if auto["cpu_speedup"] is None else f"{auto['cpu_speedup']:.2f}"
    ends = cpu, *best, "" if one.oracle is None else f"{one.oracle:.2f}"
    return [f"`{one.methods}`", f"{auto['speedup']:.2f}{span}", f"{auto['middle']:.2f}", *ends]


def fixed_setting(one: Line) -> str:
    assert one.best is not None
    return one.best[0].removeprefix(f"{one.methods} ")


def verdict(table_lines: list[Line]) -> list[str]:
    missed = [f"- `{one.methods}`, {one.family}: {bar}" for one in table_lines for bar in one.missed_bars()]
    return [f"Bars missed: {len(missed)} of {3 * len(table_lines)}.", *missed]


def laps_of(unit: Unit) -> list[dict[str, Any]]:
    """Laps that were kept of a unit, by repeat."""
    files = (unit.file(repeat) for repeat in range(100))
    return [json.loads(file.read_text("utf-8")) for file in files if file.exists()]


def figures(unit: Unit) -> list[Line]:
    return lines(unit, [one for repeat in laps_of(unit) for one in repeat["laps"]])


def table_of(unit: Unit) -> list[str] | None:
    """Figures over all families; None if nothing was measured."""
    repeats = laps_of(unit)
    if not repeats:
        return None
    prompts = len({one["prompt"] for one in repeats[0]["laps"]})
    loads = [one["load"] for one in repeats]
    about = f"{prompts} prompts, {len(repeats)} repeats, one thread; {repeats[0]['cpu']}; "
    return [*summary(figures(unit)), "", f"{about}load average {min(loads):.1f} to {max(loads):.1f}."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", choices=MODELS, default="pico")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--batch", type=int, default=1, help="prompts at once")
    parser.add_argument("--burn", action="store_true", help="beside a process that never waits")
    parser.add_argument("--together", action="store_true", help=f"{TOGETHER} in one list, and each method alone")
    parser.add_argument("--limit", type=int, default=10, help="prompts of each family")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("chains", nargs="*", help="lists of methods, joined with +; all of the comparison if none")
    args = parser.parse_args()
    gc.set_threshold(COLLECT)  # as the program does
    unit = Unit(args.model, args.temperature, args.batch, args.burn, args.together, tuple(args.chains))
    target = load(f"zoo:{unit.model}", threads=1)
    for repeat in range(args.repeats):
        if not unit.file(repeat).exists():
            KEPT.mkdir(parents=True, exist_ok=True)
            unit.file(repeat).write_text(json.dumps(measure(unit, target, args.limit, repeat)), "utf-8")
    print("\n".join([unit.name, "", *table(figures(unit)), "", *(table_of(unit) or []), "", *verdict(figures(unit))]))


if __name__ == "__main__":
    main()
