"""BibTeX of this software and of what was compared: papers are the arXiv numbers in the docstrings of the plugins."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib import metadata

from spec_compare.exports.papers import escape_latex
from spec_compare.records.header import Header, PluginFacts
from spec_core.commands import find_plugin, import_plugin
from spec_core.errors import UsageError

ARXIV = re.compile(r"(?<![\d.])\d{4}\.\d{5}(?!\d|\.\d)")
ADDRESS = re.compile(r"\s*<[^>]*>|\S+@\S+")
"""An address of electronic mail after a name, or alone."""
CITED = ("method", "rule", "rollback", "control")
"""Kinds of plugins that are cited."""
OURS = "spec-core"


def bibtex(header: Header) -> str:
    """The entries: this software, distributions of other plugins, and a paper for each number.

    A plugin that is not installed here, or whose docstring names no paper, is listed as a comment.
    """
    plugins = [plugin for plugin in header.plugins if plugin.kind in CITED]
    others = {plugin.distribution: plugin for plugin in plugins if plugin.distribution not in (None, OURS)}
    numbers = {plugin.name: arxiv_numbers(plugin) for plugin in plugins}
    by_number: dict[str, list[str]] = {}
    for name, own_numbers in numbers.items():
        for number in own_numbers:
            by_number.setdefault(number, []).append(name)
    return "\n".join(
        [
            software(OURS, version_of(header), year_of(header)),
            *(software(name, plugin.version or "", year_of(header)) for name, plugin in others.items() if name),
            *(paper(number, names) for number, names in by_number.items()),
            *(f"% {name}: its docstring names no paper" for name, own_numbers in numbers.items() if not own_numbers),
        ]
    )


def arxiv_numbers(plugin: PluginFacts) -> list[str]:
    """Numbers in the docstring of the module that has the plugin; none if it is not installed or does not load."""
    try:
        loaded = import_plugin(find_plugin(plugin.name, [plugin.kind] if plugin.kind else []))
    except UsageError:
        return []
    document = sys.modules[getattr(loaded, "__module__", __name__)].__doc__ or ""
    return list(dict.fromkeys(ARXIV.findall(f"{document} {loaded.__doc__ or ''}")))


def version_of(header: Header) -> str:
    """The version of this software that measured."""
    packages = header.environment.get("packages")
    measured = packages.get(OURS) if isinstance(packages, dict) else None
    return str(measured or metadata.version(OURS))


def year_of(header: Header) -> str:
    """The year of the measurement."""
    return header.date[:4]


def software(name: str, version: str, year: str) -> str:
    """The entry of a distribution. Authors are in its metadata, if it has some."""
    return entry(
        "software",
        name,
        {"title": escape_latex(_summary(name)), "author": _authors(name), "version": version, "year": year},
    )


def paper(number: str, names: Iterable[str]) -> str:
    """The entry of a paper on arXiv, whose title and authors are not known here; its number begins with the year."""
    fields = {
        "key": f"arXiv {number}",
        "year": f"20{number[:2]}",
        "eprint": number,
        "archivePrefix": "arXiv",
        "url": f"https://arxiv.org/abs/{number}",
        "note": escape_latex(f"named by {', '.join(names)}"),
    }
    return entry("misc", f"arxiv-{number}", fields)


def entry(kind: str, key: str, fields: dict[str, str]) -> str:
    """An entry of BibTeX; empty fields are left out."""
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


def _summary(name: str) -> str:
    summary = _metadata(name, "Summary")
    return f"{name}: {summary}" if summary else name


def _authors(name: str) -> str:
    """The names of a distribution's authors, escaped; empty without them."""
    if name == OURS:
        return "{The spec-core developers}"
    own = _metadata(name, "Author") or ADDRESS.sub("", _metadata(name, "Author-email"))
    return escape_latex(own).replace(",", " and")


def _metadata(name: str, field: str) -> str:
    """A field of a distribution's metadata; empty if it has none, or is not installed here."""
    try:
        values = metadata.metadata(name).get_all(field)
    except metadata.PackageNotFoundError:
        return ""
    return values[0] if values else ""
