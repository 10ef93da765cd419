"""The contenders: plain decoding, and every --method alone or, joined by +, as a chain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from spec_cli import common
from spec_cli.common import Settings

from spec_compare.measure import Contender
from spec_compare.summary import PLAIN
from spec_core import Run, Target
from spec_core.commands import chain, joined, parsed
from spec_core.errors import UsageError

IN_DISTRIBUTION = "equal in distribution, not in tokens"
"""Label of a rule that draws with its own noise, at temperatures above 0."""


def contenders(target: Target, settings: Settings, batch: int) -> list[Contender]:
    """Plain decoding without the rule comes first. No run reuses rows of an earlier prompt."""

    def maker(methods: list[str]) -> Callable[[], Run]:
        return lambda: common.run_of(target, settings, methods, judged=bool(methods), reuse=False, max_sequences=batch)

    found = chains(settings)
    return [Contender(PLAIN, maker([]))] + [Contender(n, maker(c)) for n, c in zip(names(found), found, strict=True)]


def chains(settings: Settings) -> list[list[str]]:
    """The methods of each contender except plain decoding. Raises UsageError for one that is named twice."""
    for spec, times in Counter(settings["methods"]).items():
        if times > 1:
            raise UsageError(f"--method {spec} was passed {times} times", hint="pass each contender once")
    return [chain(spec, common.installed()) for spec in settings["methods"]]


def names(chains: list[list[str]]) -> list[str]:
    """Without files; with their names where two would be called the same. Settings of their own stay."""
    short = [_title(c, _short) for c in chains]
    often = Counter(short)
    return [name if often[name] == 1 else _title(c, _with_file) for name, c in zip(short, chains, strict=True)]


def _title(chain: list[str], of: Callable[[str], str]) -> str:
    """Methods joined by `` + ``, and by `` ++ `` before one that extends the drafts of others."""
    first, *rest = chain
    return of(first) + "".join(_joint(part, of) for part in rest)


def _joint(part: str, of: Callable[[str], str]) -> str:
    name, settings = parsed(part)
    if settings.get("extend") != "true":
        return f" + {of(part)}"
    return f" ++ {of(joined(name, {key: value for key, value in settings.items() if key != 'extend'}))}"


def _short(part: str) -> str:
    before, _, _ = part.partition("=")
    return part if ":" in before else before


def _with_file(part: str) -> str:
    before, equals, file = part.partition("=")
    return part if ":" in before else f"{before}{equals}{Path(file).name}"


def labels(runs: dict[str, Run], temperature: float) -> dict[str, str]:
    """{contender: why its tokens may differ from plain decoding's}; contenders that may not differ are left out."""
    found = {}
    for name, run in runs.items():
        if run.stats.lossy:
            found[name] = f"LOSSY: {run.stats.lossy}"
        elif temperature > 0 and name != PLAIN and any(c.compat.noise == "private" for c in run.plugins):
            found[name] = IN_DISTRIBUTION
    return found
