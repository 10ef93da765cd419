"""Plugins are made from their settings: which annotations must resolve, and what a failing class says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from spec_core import PluginError, UsageError, hookimpl
from spec_core.commands import construct_plugin

if TYPE_CHECKING:
    from torch import Tensor


@attrs.define(eq=False)
class Internals:
    """Settings, and fields of its own whose annotations name nothing that exists."""

    n: int = 3
    share: float | None = None
    table: Tensor | None = attrs.field(default=None, init=False)
    counts: int[str] = attrs.field(default=0, init=False)
    _pool: Tensor | None = attrs.field(default=None)

    @hookimpl
    def draft(self, step):
        pass


@attrs.define(eq=False)
class Inherits(Internals):
    more: str = "x"


@attrs.define(eq=False)
class Unresolved(Internals):
    start: Tensor | None = None


class Raises:
    def __init__(self):
        raise RuntimeError("no more ideas")


def test_only_annotations_of_settings_must_resolve():
    plugin = construct_plugin(Inherits, {"n": "4", "share": "0.5"}, "own")

    assert (plugin.n, plugin.share, plugin.more, plugin.table) == (4, 0.5, "x", None)


def test_a_setting_whose_type_does_not_resolve_is_named_with_its_plugin():
    with pytest.raises(UsageError, match=r"own\.start: its type 'Tensor \| None' does not resolve: NameError") as text:
        construct_plugin(Unresolved, {}, "own")

    assert f"in {__name__}, import the type outside of TYPE_CHECKING" in text.value.hint


def test_a_constructor_that_raises_is_named():
    with pytest.raises(PluginError, match="plugin 'own' failed in its constructor: RuntimeError: no more ideas"):
        construct_plugin(Raises, {}, "own")
