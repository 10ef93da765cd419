"""Whether two headers describe the same experiment on the same machine, and if not, what changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs

from spec_compare.records.header import ContenderFacts, Header, TargetFacts
from spec_core.errors import UsageError, quote_value

SHOWN = 5
"""Max differences that a message lists."""
MATTERS = ("python", "system", "packages", "device", "cpu", "simd", "blas", "kernels", "activations", "exact", "choice")
"""Facts of the environment that may change times or texts."""
TERMS = ("commit", "processors", "seed", "repeats", "batch", "reuse_turns", "trace", "interval", "resamples", "laps")


def check_same(before: Header, now: Header, out: Path) -> None:
    """Raise UsageError that names what changed since the results were begun."""
    changed = changes(before, now)
    if changed:
        more = f", and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        raise UsageError(
            f"{out} has results of another comparison: {'; '.join(changed[:SHOWN])}{more}",
            hint="pass another directory as --out, or continue with the same command on the same machine",
        )


def changes(before: Header, now: Header) -> list[str]:
    """Every difference that matters, in words."""
    both = {contender.name for contender in before.contenders} & {contender.name for contender in now.contenders}
    old, new = identity(before, both), identity(now, both)
    return [_change(key, old, new) for key in [*new, *(k for k in old if k not in new)] if _differs(key, old, new)]


def _differs(key: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
    return key not in old or key not in new or old[key] != new[key]


def _change(key: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    if key not in old or key not in new:
        return f"{key} is {'new' if key in new else 'missing'}"
    return f"{key} was {quote_value(old[key])} and is {quote_value(new[key])}"


def identity(header: Header, both: set[str]) -> dict[str, Any]:
    """{name: value} of everything that matters to texts, counts and times. both: contenders to describe in full."""
    facts = {name: getattr(header, name) for name in TERMS}
    facts |= {f"environment {name}": header.environment.get(name) for name in MATTERS}
    for number, target in enumerate(header.targets):
        facts |= _target(f"model {number}" if number else "model", target)
    facts |= {"prompts": header.prompts.sha256[:12], "prompt_tokens": header.prompts.max_tokens}
    for contender in header.contenders:
        facts[f"contender {contender.name!r}"] = None
        facts |= _contender(contender) if contender.name in both else {}
    return facts | _plugins(header)


def _target(called: str, target: TargetFacts) -> dict[str, Any]:
    facts = attrs.asdict(target, filter=lambda field, _: field.name not in ("files", "threads", "model"))
    facts["threads"] = threads(target)
    facts["files"] = [file.sha256[:12] for file in target.files]
    return {f"{called}: {name}": value for name, value in facts.items()}


def threads(target: TargetFacts) -> str | None:
    """Number of CPU threads, without the times that were measured to choose it."""
    match = re.match(r"\d+", target.threads or "")
    return match[0] if match else target.threads


def _contender(contender: ContenderFacts) -> dict[str, Any]:
    facts = attrs.asdict(contender, filter=lambda field, _: field.name not in ("files", "settings", "name"))
    facts |= {f"setting {name}": setting.value for name, setting in contender.settings.items()}
    facts["files"] = [file.sha256[:12] for file in contender.files]
    return {f"{contender.name}: {name}": value for name, value in facts.items()}


def _plugins(header: Header) -> dict[str, Any]:
    """Version and code of every plugin in use."""
    used = {name for contender in header.contenders for name in contender.plugins}
    listed = header.environment.get("plugins")
    texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
    versions = {f"plugin {name}": text for text in texts if (name := text.partition(" (")[0]) in used}
    return versions | {f"code of plugin {one.name}": (one.sha256 or "")[:12] for one in header.plugins}
