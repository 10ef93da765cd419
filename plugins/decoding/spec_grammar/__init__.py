"""Constraints on a text: JSON schemas, regular expressions, grammars, and calls inside free text; and ``forced``.

``Request(constraint=JsonSchema({...}))``. They are compiled by llguidance, which is imported when one is first used.
"""

from __future__ import annotations

from spec_grammar.channels import Channels
from spec_grammar.grammars import Gbnf, JsonSchema, Lark, Regex, grammar
from spec_grammar.tags import StructuralTags, Tag

__all__ = ["Channels", "Gbnf", "JsonSchema", "Lark", "Regex", "StructuralTags", "Tag", "grammar"]
