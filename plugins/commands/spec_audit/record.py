"""Answers so far, so that an audit that was interrupted continues: one line of JSON each."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import attrs
from spec_commands import common
from spec_commands.servers.answers import Answer, Token

from spec_audit.asks import Ask
from spec_core.errors import UsageError


def default_folder() -> Path:
    """Where records lie unless ``--record`` names a file."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spec-core" / "audit"


def digest_of(value: Any) -> str:
    """A short name of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


class Record:
    """The answers of an audit, by request and by how often it was sent before.

    path: None keeps no file. about: what must be equal to continue.
    """

    def __init__(self, path: Path | None, about: Mapping[str, Any]) -> None:
        self.path, self.answers, self.lock = path, dict[str, Answer](), Lock()
        self.counts: Counter[str] = Counter()
        self.file: Any = None
        if path is None:
            return
        header = json.dumps({"kind": "audit", "about": digest_of(about)})
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = self._read(path, header)
            if whole is not None:
                os.truncate(path, whole)
            self.file = path.open("ab")
            if whole is None:
                self._append(header)
        except OSError as error:
            raise common.write_error(path, error) from error

    def _read(self, path: Path, header: str) -> int | None:
        """Read the answers of a file; the length of its whole lines, None if there is no header yet."""
        data = path.read_bytes() if path.exists() else b""
        *lines, _ = data.split(b"\n")
        if not lines:
            return None if not data else 0
        if lines[0].decode("utf-8", "replace") != header:
            raise UsageError(
                f"{path} is not the record of this audit",
                hint="pass another --record, or remove the file to begin again",
            )
        try:
            for line in lines[1:]:
                entry = json.loads(line)
                self.answers[entry["key"]] = _answer(entry["answer"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(f"{path} is damaged", hint="remove it to begin again") from error
        return sum(len(line) + 1 for line in lines)

    def next_key(self, ask: Ask) -> str:
        """The name of a request; the second equal request has another one."""
        name = digest_of([ask.side, ask.prompt, ask.max_tokens, dict(ask.fields), ask.stream, ask.events_max])
        self.counts[name] += 1
        return f"{name}-{self.counts[name]}"

    def add(self, key: str, answer: Answer) -> None:
        """Keep an answer."""
        with self.lock:
            self.answers[key] = answer
            if self.file is not None:
                self._append(json.dumps({"key": key, "answer": attrs.asdict(answer, filter=_is_set)}))

    def _append(self, line: str) -> None:
        try:
            self.file.write(line.encode() + b"\n")
            self.file.flush()
        except OSError as error:
            raise common.write_error(self.path or Path(), error) from error

    def close(self, remove: bool) -> None:
        """Close the file. remove: the audit is complete."""
        if self.file is not None:
            self.file.close()
        if remove and self.path is not None:
            self.path.unlink(missing_ok=True)


def _is_set(field: attrs.Attribute, value: Any) -> bool:
    return bool(value != field.default)


def _answer(fields: dict[str, Any]) -> Answer:
    """An answer from its line."""
    lists: dict[str, Any] = {name: tuple(fields.pop(name, ())) for name in ("texts", "finishes", "calls")}
    if (tokens := fields.pop("tokens", None)) is not None:
        lists["tokens"] = tuple(Token(t["text"], t["logprob"], tuple(t.get("top", ()))) for t in tokens)
    return Answer(**fields, **lists)
