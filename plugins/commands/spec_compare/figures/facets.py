"""Facets of a comparison: contenders with one model and one set of text settings, whose methods are compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from spec_compare.figures import titles
from spec_compare.figures.outcome import Outcome
from spec_compare.figures.summary import ALL, Row
from spec_compare.figures.titles import LOADING, TEXT
from spec_compare.records.header import SERVER, ContenderFacts, Header
from spec_compare.records.record import PLAIN

SUFFIX = re.compile(rf" (?:{'|'.join((*LOADING, *TEXT))})=\S+")
"""A setting of a model or of the text in the name of a contender."""


@attrs.frozen
class Facet:
    """One plain decoding and the contenders that are compared with it.

    series: {contender: its name without the settings of the facet}. rest: other settings of the facet, in words.
    plain: what the plain decoding is called in the facet; a server has its own name.
    """

    baseline: str
    model: str
    temperature: float
    rest: str
    series: dict[str, str]
    plain: str = PLAIN

    @property
    def title(self) -> str:
        """The facet in words."""
        return ", ".join(filter(None, (self.model, f"temperature {self.temperature:g}", self.rest)))


def facets(header: Header) -> list[Facet]:
    """The facets, a model's together."""
    plain = [facts for facts in header.contenders if facts.name == facts.baseline]
    baselines = sorted(plain, key=lambda facts: facts.target)
    places = titles.places(dict.fromkeys(target.model for target in header.targets))
    names = [target.name for target in header.targets]
    varying = [name for name in (*LOADING, *TEXT) if name not in ("model", "temperature") and _varies(name, baselines)]
    return [
        Facet(
            baseline=facts.name,
            model=_model_name(header, facts, names, places),
            temperature=float(facts.settings["temperature"].value),
            rest=", ".join(f"{name} {titles.value_text(_value(facts, name))}" for name in varying),
            series=_series(header, facts.name),
            plain=facts.name if header.targets[facts.target].family == SERVER else PLAIN,
        )
        for facts in baselines
    ]


def _model_name(header: Header, facts: ContenderFacts, names: list[str], places: Mapping[Any, str]) -> str:
    """The name of a model; its place if another one has the same name. A server stands for its model."""
    target = header.targets[facts.target]
    return target.name if target.family == SERVER or len(set(names)) == len(names) else places[target.model]


def _varies(name: str, baselines: Iterable[ContenderFacts]) -> bool:
    return len({titles.value_text(_value(facts, name)) for facts in baselines}) > 1


def _value(facts: ContenderFacts, name: str) -> Any:
    return facts.settings[name].value if name in facts.settings else None


def _series(header: Header, baseline: str) -> dict[str, str]:
    own = [facts.name for facts in header.contenders if facts.baseline == baseline != facts.name]
    short = {name: SUFFIX.sub("", name) for name in own}
    return short if len(set(short.values())) == len(own) else {name: name for name in own}


def series_names(listed: Iterable[Facet]) -> list[str]:
    """The names of the methods of all facets, in order of appearance."""
    return list(dict.fromkeys(name for facet in listed for name in facet.series.values()))


def short_names(header: Header) -> dict[str, str]:
    """{contender: its name inside its facet}."""
    return {name: short for f in facets(header) for name, short in {f.baseline: f.plain, **f.series}.items()}


def pivot(outcome: Outcome, listed: Iterable[Facet], family: str = ALL) -> dict[str, dict[str, Row]]:
    """{method: {baseline of a facet: its row}}."""
    rows = {row.contender: row for row in outcome.rows if row.family == family}
    table: dict[str, dict[str, Row]] = {}
    for facet in listed:
        for contender, name in facet.series.items():
            if contender in rows:
                table.setdefault(name, {})[facet.baseline] = rows[contender]
    return table
