"""Plugins of the tests, installed for the length of one test: a toy target by scheme, and methods that go wrong."""

from __future__ import annotations

import os
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs
import click
import pytest

from spec_core import Compat, Draft, Verdict, hookimpl
from spec_core.testing import ToyTarget

HERE = "tests.support.toy_plugins"
POINTS = {
    "spec_core.targets": {"toy": "load"},
    "spec_core.methods": {
        "repeat": "Repeat",
        "broken": "Broken",
        "liar": "Liar",
        "careless": "Careless",
        "shown": "Shown",
        "mute": "Mute",
        "cautious": "Cautious",
        "noted": "Noted",
    },
    "spec_core.rules": {"heedless": "Careless"},
    "spec_core.rollback": {"toy-rollback": "spec_core.testing:ToyRollback"},
    "spec_core.commands": {"crash": "crash", "stop": "stop", "absent": "nowhere.at_all:command", "bare": "load"},
}


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make discovery find everything of POINTS beside what is really installed."""
    real = cache(metadata.entry_points)  # reads the metadata of every installed package
    entries = [
        metadata.EntryPoint(name, at if ":" in at else f"{HERE}:{at}", group)
        for group, points in POINTS.items()
        for name, at in points.items()
    ]

    def entry_points(**keywords: Any) -> metadata.EntryPoints:
        return metadata.EntryPoints([*list_points(real()), *entries]).select(**keywords)

    monkeypatch.setattr(metadata, "entry_points", entry_points)


def settle(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Work in a folder, without settings of the user and with these plugins."""
    monkeypatch.chdir(folder)
    for name in [n for n in os.environ if n.startswith("SPEC_")]:
        monkeypatch.delenv(name)
    install(monkeypatch)


def list_points(points: Any) -> list[metadata.EntryPoint]:
    """The result of ``entry_points()`` is grouped in Python 3.11, and flat in later versions."""
    return [point for group in points.groups for point in points.select(group=group)]


def load(location: str, weights: bool = True, **options: Any) -> ToyTarget:
    """``toy:dense`` and ``toy:hybrid``."""
    return ToyTarget(recurrent=location == "hybrid", context=options.get("context") or 512)


@attrs.define(eq=False)
class Repeat:
    """Drafts the token ``back`` positions earlier, repeatedly."""

    back: int = attrs.field(default=2, metadata={"help": "how far to look back"})
    length: int = 3

    @hookimpl
    def draft(self, step) -> None:
        for seq, budget in step.undrafted:
            ids = list(seq.tokens)
            for _ in range(min(budget, self.length)):
                ids.append(ids[-self.back])
            step.propose(seq, Draft(ids[len(seq.tokens) :]))


@attrs.define(eq=False)
class Broken:
    """Raises when it is to draft."""

    @hookimpl
    def draft(self, step) -> None:
        raise RuntimeError("out of ideas")


@attrs.define(eq=False)
class Liar:
    """A rule that decides wrongly from the fifth token on, without declaring itself lossy."""

    lossy: str | None = attrs.field(default=None, init=False)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=(), lossy=self.lossy)

    @hookimpl
    def accept(self, step) -> None:
        for seq in list(step.undecided):
            best = int(step.logits(seq)[0].argmax())
            step.decide(seq, Verdict((), (best + 1) % 48 if seq.output_position >= 4 else best))


@attrs.define(eq=False)
class Careless(Liar):
    """The same, declared as lossy."""

    lossy: str | None = attrs.field(default="cares not", init=False)


@attrs.define(eq=False)
class Shown(Repeat):
    """Shows a row of logits for every token it drafts: the token's number at the token, else 0."""

    watch: Any = attrs.field(default=None, init=False)

    @hookimpl
    def draft(self, step) -> None:
        import torch

        for seq, budget in step.undrafted:
            ids = seq.tokens[-min(budget, self.length) :]
            for token in ids:
                if self.watch is not None:
                    self.watch(token, torch.eye(48)[token] * token)
            step.propose(seq, Draft(ids))


@attrs.define(eq=False)
class Cautious(Repeat):
    """Drafts two tokens at most, unless its threshold is off."""

    p_min: float = attrs.field(default=0.5, metadata={"off": 0.0})
    length: int = attrs.field(default=3, metadata={"off": 64})

    @hookimpl
    def draft(self, step) -> None:
        for seq, budget in step.undrafted:
            length = min(budget, self.length, 2 if self.p_min else budget)
            step.propose(seq, Draft([seq.tokens[-1]] * length))


@attrs.define(eq=False)
class Noted(Repeat):
    """Has a file or folder of its own, which is no model, and writes another one at the end."""

    file: str | None = None

    @hookimpl
    def compat(self) -> Compat:
        return Compat(close=lambda: Path("noted.txt").write_text("saved"))


@attrs.define(eq=False)
class Mute:
    """May draft, and never does."""

    @hookimpl
    def draft(self, step) -> None:
        pass


@click.command()
def crash() -> None:
    """Has a bug."""
    raise ZeroDivisionError("a bug")


@click.command()
def stop() -> None:
    """Is interrupted."""
    raise KeyboardInterrupt
