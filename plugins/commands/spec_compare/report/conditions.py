"""The conditions of a report: everything that the figures depend on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from spec_compare.figures.columns import GIB
from spec_compare.figures.outcome import Outcome
from spec_compare.figures.titles import value_text
from spec_compare.inputs.sized import EXTENSION
from spec_compare.records.header import SERVER, Header, PluginFacts, TargetFacts

ENVIRONMENT = ("python", "system", "cpu", "simd")


def facts(outcome: Outcome) -> list[tuple[str, str]]:
    """(name, value) of everything that the figures depend on."""
    header = outcome.header
    rows: list[tuple[str, Any]] = [
        ("measured", measured_from_to(outcome)),
        ("command", " ".join(header.command)),
        *(row for target in header.targets for row in _facts_of(target)),
        ("machine", f"{header.host}, {header.processors} processors"),
        ("memory", None if header.memory_bytes is None else f"{header.memory_bytes / GIB:.1f} GiB"),
        *((name, header.environment.get(name)) for name in ENVIRONMENT),
        ("packages", _packages(header.environment.get("packages"))),
        ("plugins", "; ".join(map(_plugin, header.plugins))),
        ("commit", header.commit),
        ("prompts", f"{header.prompts.source}: {sum(header.prompts.families.values())}"),
        ("lengths", _lengths(header)),
        ("repeats, batch, seeds", f"{header.repeats}, {header.batch}, {swept_values(header, 'seed')}"),
        ("temperatures", swept_values(header, "temperature")),
        ("max tokens", swept_values(header, "max_tokens")),
        ("other programs", None if outcome.load.others is None else f"{outcome.load.others:.2f} processors busy"),
        ("interval", f"{100 * header.interval:.4g}%, bootstrap over prompts, {header.resamples} resamples"),
    ]
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def measured_from_to(outcome: Outcome) -> str:
    """The date of the measurement; of one that was interrupted, also when it continued."""
    dates = [outcome.header.date, *(session.date for session in outcome.sessions)]
    first, *later = map(minute, dates)
    return first if not later else f"{first}, continued {' and '.join(later)}"


def minute(date: str) -> str:
    """A date of a header with its time, to the minute."""
    try:
        return f"{datetime.fromisoformat(date):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return date


def swept_values(header: Header, name: str) -> str:
    """The values of a setting among the contenders."""
    values = (facts.settings[name].value for facts in header.contenders if name in facts.settings)
    return ", ".join(dict.fromkeys(map(value_text, values)))


def _lengths(header: Header) -> str | None:
    """The lengths of the prompts, and how they got them."""
    lengths = ", ".join(map(str, header.prompts.lengths))
    return f"{lengths} tokens: {EXTENSION}" if lengths else None


def _plugin(plugin: PluginFacts) -> str:
    origin = f"{plugin.distribution} {plugin.version}" if plugin.distribution else plugin.package
    code = f", code {plugin.sha256[:12]}" if plugin.sha256 else ""
    return f"{plugin.name} ({origin}{code})"


def _facts_of(target: TargetFacts) -> Iterable[tuple[str, Any]]:
    """The rows of one model; a comparison may have several."""
    if target.family == SERVER:
        return [("server", f"{target.model}, model {target.name}")]
    return [
        ("model", f"{target.name} ({target.model}), {target.dtype} on {target.device}"),
        ("weights", ", ".join(f"{n} {kind}" for kind, n in target.quantisation.items())),
        ("kernels", target.kernels),
        ("exactness", target.exact),
        ("threads", target.threads),
    ]


def _packages(packages: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in packages.items()) if isinstance(packages, dict) else ""
