"""Golden acceptance lengths in InferenceX's form: one YAML file per model and method, one line per draft length."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
from spec_commands import common
from spec_commands.common import as_json, print_note

from spec_compare.exports.anonymous import hide_paths
from spec_compare.exports.answers import file_names
from spec_compare.exports.tables import write_file
from spec_compare.figures.outcome import Outcome
from spec_compare.figures.summary import ALL, Row
from spec_compare.inputs.golden import all_steps_name, mode_name, require_yaml
from spec_compare.records.header import ContenderFacts, Header
from spec_core.commands import format_method, name_of, parse_method
from spec_core.errors import UsageError

SETTING = "draft_max"
"""Name of the setting of the draft length, of the core and of methods."""


LENGTH = re.compile(rf"[ :,](?:[\w-]+\.)?{SETTING}=\d+")
"""A draft length in the name of a contender."""


@attrs.define
class Curve:
    """Contenders that differ in their draft length alone. rows: by draft length."""

    title: str
    facts: ContenderFacts
    rows: dict[int, Row] = attrs.field(factory=dict)


def write_golden(outcome: Outcome, folder: Path, thinking: str) -> list[Path]:
    """Write the files. Raises UsageError if no contender has a length, or if a file cannot be written."""
    require_yaml()
    listed = curves(outcome)
    if not listed:
        raise UsageError(
            "no contender drafted with the target's own text", hint="compare a method without a lossy rule"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise common.write_error(folder, error) from error
    names = file_names([curve.title for curve in listed])
    return [
        write_file(folder / f"{names[curve.title]}.yaml", text(outcome.header, curve, thinking).encode())
        for curve in listed
    ]


def curves(outcome: Outcome) -> list[Curve]:
    """The curves of all contenders whose text is the target's own. A contender whose text differs is noted."""
    rows = {row.contender: row for row in outcome.rows if row.family == ALL}
    by_identity: dict[str, Curve] = {}
    for facts in outcome.header.contenders:
        row = rows.get(facts.name)
        if facts.name == facts.baseline or row is None or row.mean_acceptance_length is None or is_lossy(row):
            continue
        if SETTING not in facts.settings:
            print_note(f"{facts.name} is left out: the draft length of a server is not known")
            continue
        if row.label is None and row.identical < row.prompts:
            print_note(f"{facts.name} is left out: its text differs from plain decoding's")
            continue
        key = as_json(_identity(facts))
        curve = by_identity.setdefault(key, Curve(_title(outcome.header, facts), facts))
        curve.rows[draft_length(facts)] = row
    return list(by_identity.values())


def is_lossy(row: Row) -> bool:
    """Whether the rule of a contender accepts what the target would not say."""
    return row.label is not None and row.label.startswith("LOSSY")


def draft_length(facts: ContenderFacts) -> int:
    """The longest draft of a contender: the core's limit, or that of its methods if it is smaller."""
    own = [
        setting.value
        for name in map(name_of, facts.methods)
        if (setting := facts.settings.get(f"{name}.{SETTING}")) is not None and isinstance(setting.value, int)
    ]
    return min([facts.settings[SETTING].value, *([max(own)] if own else [])])


def _identity(facts: ContenderFacts) -> tuple[object, ...]:
    """Everything that two contenders of one curve have in common."""
    values = {name: setting.value for name, setting in facts.settings.items() if not name.endswith(SETTING)}
    values.pop("methods", None)
    return facts.target, [_without_length(part) for part in facts.methods], sorted(values.items())


def _without_length(part: str) -> str:
    name, own = parse_method(part)
    return format_method(name, {key: value for key, value in own.items() if key != SETTING})


def _title(header: Header, facts: ContenderFacts) -> str:
    """Model and contender, without the draft length in its name."""
    return f"{header.targets[facts.target].name}_{LENGTH.sub('', facts.name)}"


def text(header: Header, curve: Curve, thinking: str) -> str:
    """The file of a curve, with its circumstances as comments."""
    rows = sorted(curve.rows.items())
    modes = {
        mode_name(thinking): {k: round(row.mean_acceptance_length or 1.0, 2) for k, row in rows},
        all_steps_name(thinking): {k: round(row.tokens_per_step or 1.0, 2) for k, row in rows},
    }
    content = {header.targets[curve.facts.target].name: modes}
    comments = [" ".join(f"# {line}".split()) for line in circumstances(header, curve, thinking)]
    return "\n".join([*comments, require_yaml().safe_dump(content, sort_keys=False, allow_unicode=True)])


def circumstances(header: Header, curve: Curve, thinking: str) -> list[str]:
    """Lines on how the lengths were measured."""
    settings, target = curve.facts.settings, header.targets[curve.facts.target]
    version = header.environment.get("packages", {}).get("spec-core", "")
    families = ", ".join(f"{name} {count}" for name, count in header.prompts.families.items())
    return [
        f"Acceptance lengths measured by spec compare, spec-core {version}, on {header.date}.",
        f"prompts: {hide_paths(header.prompts.source)} ({families}) | sha256 {header.prompts.sha256[:12]}",
        f"temperature: {settings['temperature'].value} | output_len: {settings['max_tokens'].value} | "
        f"seed: {header.seed} | repeats: {header.repeats}",
        f"model: {hide_paths(target.model)}, {target.dtype} on {target.device} | "
        f"methods: {hide_paths('+'.join(curve.facts.methods))}",
        *(_counts(k, row) for k, row in sorted(curve.rows.items())),
        f"key = draft length; value of {mode_name(thinking)} = 1 + accepted / drafts, over steps with a draft",
        f"value of {all_steps_name(thinking)} = tokens / steps, for an engine that drafts in every step",
    ]


def _counts(k: int, row: Row) -> str:
    drafts = sum(row.acceptance_histogram)
    accepted = sum(n * c for n, c in enumerate(row.acceptance_histogram))
    return f"k={k}: accepted={accepted}; drafts={drafts}; steps={row.steps}"
