"""Compiles a grammar in a process of its own before this process does: it may take hours, or overflow the stack.

Llguidance bounds the work of its lexer and parser, not of every construction: ``multipleOf`` a large number takes
minutes, and references are followed recursively.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from spec_core import Target
from spec_core.toolkit import LimitedProcess, ProcessEnded
from spec_grammar.words import vocabulary_of

PROGRAM = Path(__file__).with_name("trial_process.py")
CPU_SECONDS = 2.0
MEMORY = 256 << 20
STACK = 4 << 20
"""Bytes of the trial's stack: less than a thread of this process has."""
_keys: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


@attrs.frozen
class Trial:
    """Result of a trial. error: empty if the grammar can be used. seconds: of a processor."""

    error: str
    seconds: float


@cache
def trial_process() -> LimitedProcess:
    """The process that compiles for all targets of this one."""
    return LimitedProcess(["-P", str(PROGRAM)], cpu_seconds=CPU_SECONDS, memory=MEMORY, stack=STACK)


def try_grammar(target: Target, grammar: str, limits: Mapping[str, Any]) -> Trial:
    """Compile a grammar elsewhere. Slow where it is new: not for an event loop."""
    key = _keys.setdefault(target.tokenizer, f"vocabulary-{len(_keys)}-{id(target.tokenizer)}")
    try:
        answer = _ask(key, None, grammar, limits)
        if not answer["known"]:
            words = vocabulary_of(target)
            vocabulary = list(words.tokens), words.special_token_ids, sorted(target.info.eog), words.bos_token_id
            answer = _ask(key, vocabulary, grammar, limits)
    except ProcessEnded as error:
        return Trial(f"it is too complex: {error}", CPU_SECONDS)
    return Trial(answer["error"], answer["seconds"])


def _ask(key: str, vocabulary: Any, grammar: str, limits: Mapping[str, Any]) -> Any:
    message = pickle.dumps((key, vocabulary, grammar, dict(limits)))
    return json.loads(trial_process().call(message))
