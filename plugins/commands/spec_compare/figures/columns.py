"""The columns of the tables of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spec_compare.figures.summary import Row

POSITIONS = 4
"""Number of draft positions whose acceptance is shown."""
FEW = 30
"""A rate of fewer drafts than this is shown with their number: its standard error may exceed nine points."""
EACH, ALL_TOGETHER = "tokens/s", "tokens/s of all"
INTERVAL = "interval"
"""The column of confidence intervals, whose title names their level."""
GIB = 1 << 30

ABOUT = {
    "method": "The contender: its methods, and what distinguishes it from the others.",
    EACH: "Decoded tokens per second of one sequence, without prefill and the first token.",
    ALL_TOGETHER: "Tokens per second of all sequences together, prefill included.",
    "speedup": "Rate over that of plain decoding on the same prompts, measured in turns with it.",
    INTERVAL: "Bootstrap confidence interval (CI) of the speedup over prompts, at the level of the heading.",
    "worst family": "The family of prompts with the smallest speedup, which the speedup over all of them hides.",
    "of bound": "Share of the speedup that the contender's acceptance allows at the measured costs of steps.",
    "hardware": "The speedup that the machine allows a drafter that costs nothing and is never wrong.",
    "by CPU time": "The speedup by CPU time of this process, which a busy machine changes less.",
    "with prefill": "The speedup with prefill and the first token.",
    "Spec-Bench × / MAT": "Speedup and mean accepted tokens as Spec-Bench computes them.",
    "tokens/step": "Tokens that a step emits, the target's own token included.",
    "acceptance length": "Tokens per step as the mean over requests, weighted by tokens, and pooled.",
    "acceptance": "Accepted share of the drafted tokens; it depends on the length of drafts.",
    "draft length": "Mean length of the drafts.",
    "by position": "Acceptance of the first positions of a draft, of drafts whose tokens before were accepted.",
    "first token ms": "Milliseconds until the first token: percentiles 50 and 90.",
    "between tokens ms": "Milliseconds between two outputs of a sequence: percentiles 50, 90 and 99.",
    "memory GiB": "Max resident memory of the process, with the models of all contenders.",
    "device GiB": "Max memory that torch allocated on the device.",
    "J/token": "Energy of processors and device per token, all programs.",
    "identical": "Whether the texts equal plain decoding's; a speed is shown only if they must and do.",
}
"""What each column says."""
COLUMNS: dict[str, Callable[[Row], str]] = {
    "method": lambda r: r.contender,
    EACH: lambda r: _number(r.rate, ".1f"),
    ALL_TOGETHER: lambda r: _number(r.machine_rate, ".1f"),
    "speedup": lambda r: _number(r.speedup, ".2f", "×"),
    INTERVAL: lambda r: "" if r.low is None or r.high is None else f"{r.low:.2f}-{r.high:.2f}",
    "worst family": lambda r: "-" if r.worst_speedup is None else f"{r.worst_speedup:.2f}× {r.worst_family}",
    "of bound": lambda r: of_bound(r),
    "hardware": lambda r: _number(r.hardware_bound, ".2f", "×"),
    "by CPU time": lambda r: _number(r.cpu_speedup, ".2f", "×"),
    "with prefill": lambda r: _number(r.whole, ".2f", "×"),
    "Spec-Bench × / MAT": lambda r: as_spec_bench(r),
    "tokens/step": lambda r: _number(r.tokens_per_step, ".2f"),
    "acceptance length": lambda r: lengths(r),
    "acceptance": lambda r: _number(r.draft_acceptance, ".0%"),
    "draft length": lambda r: _number(r.mean_draft_length, ".1f"),
    "by position": lambda r: by_position(r),
    "first token ms": lambda r: milliseconds(r.first_token, ("p50", "p90")),
    "between tokens ms": lambda r: milliseconds(r.between_tokens, ("p50", "p90", "p99")),
    "memory GiB": lambda r: _number(_gib(r.peak_bytes), ".2f"),
    "device GiB": lambda r: _number(_gib(r.device_peak_bytes), ".2f"),
    "J/token": lambda r: _number(r.joules_per_token, ".3g"),
    "identical": lambda r: identical_texts(r),
}
COMPACT = ("method", EACH, ALL_TOGETHER, "worst family", "speedup", INTERVAL, "tokens/step", "acceptance", "identical")
"""Columns of the table without ``--wide``."""
LEFT = ("method", "worst family", "by position", "identical")
EMPTY = ("", "-")


def informative_columns(rows: Sequence[Row], wide: bool, batch: int) -> list[str]:
    """The names of the columns that say something about these rows.

    batch: prompts that ran together; with one, the rate of a sequence is nearly that of the machine.
    """
    names = [name for name in COLUMNS if wide or name in COMPACT]
    if batch == 1 and not wide:
        names.remove(ALL_TOGETHER)
    if not wide and any(row.worst_family is not None for row in rows):
        names.remove("acceptance")  # 80 columns hold one of both; the tables of the families have the acceptance
    always = (EACH, "speedup", "identical", "method")
    return [name for name in names if name in always or any(COLUMNS[name](row) not in EMPTY for row in rows)]


def title(name: str, batch: int, level: float) -> str:
    """The heading of a column. level: of the intervals."""
    if name == INTERVAL:
        return interval_title(level)
    return "tokens/s of each" if name == EACH and batch > 1 else name


def interval_title(level: float) -> str:
    """The heading of a column of intervals at a level."""
    return f"{100 * level:.4g}% CI"


def by_position(row: Row) -> str:
    """Conditional acceptance of the first positions; with the count if there are few drafts: ``100% of 3``."""
    tested = row.tested_per_pos[:POSITIONS]
    pairs = zip(row.conditional, tested, strict=False)
    return ", ".join(f"{rate:.0%}" if n >= FEW else f"{rate:.0%} of {n}" for rate, n in pairs) or "-"


def identical_texts(row: Row) -> str:
    """Whether the texts equal plain decoding's."""
    if row.label is not None:
        return f"{row.label} ({row.identical} of {row.prompts} identical)"
    return "yes" if row.identical == row.prompts else f"DIFFERS ({row.prompts - row.identical} of {row.prompts})"


def lengths(row: Row) -> str:
    """The three acceptance lengths: ``2.31/2.52/2.40``."""
    own = row.acceptance_length
    values = (own.per_request, own.token_weighted, own.pooled)
    return "-" if own.pooled is None else "/".join(_number(value, ".2f") for value in values)


def of_bound(row: Row) -> str:
    """The share of the acceptance bound, and the bound: ``0.93 of 1.85×``."""
    if row.acceptance_bound is None:
        return "-"
    return f"{_number(row.roof_fraction, '.2f')} of {row.acceptance_bound:.2f}×"


def as_spec_bench(row: Row) -> str:
    """Spec-Bench's own speedup and mean accepted tokens: ``1.43× / 2.10``."""
    mat, speedup = (row.spec_bench.get(name) for name in ("mean_accepted_tokens", "speedup"))
    return "-" if mat is None else f"{_number(speedup, '.2f', '×')} / {mat:.2f}"


def milliseconds(times: dict[str, float], names: Sequence[str]) -> str:
    """Percentiles, separated by slashes: ``1.2/1.9``."""
    return "/".join(f"{times[name] * 1e3:.3g}" for name in names) if times else "-"


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"


def _gib(size: int | None) -> float | None:
    return None if size is None else size / GIB
