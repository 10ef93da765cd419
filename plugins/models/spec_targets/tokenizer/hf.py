"""A tokenizer from a Hugging Face directory: tokenizer.json, and special ids from the other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from spec_core.errors import UsageError
from spec_targets.formats.json_file import read_json
from spec_targets.tokenizer.base import SPECIAL, Tokenizer
from spec_targets.tokenizer.hostile import check_growth, refuse_failures
from spec_targets.tokenizer.prefix import steps_of_part

TOKENS_MAX = 1 << 21
"""Ids of a vocabulary."""


def from_hf(directory: Path) -> Tokenizer:
    """The tokenizer of a directory. Raises UsageError if tokenizer.json cannot be read."""
    path = directory / "tokenizer.json"
    raw = read_json(path)
    check_growth(raw, path.name)
    settings = neighbouring_json(directory, "tokenizer_config.json")
    with refuse_failures(f"{path.name}: cannot be read", "get the file again"):
        backend = Backend.from_str(path.read_text("utf-8"))
        add_bos = _adds_bos(backend, settings)
        _leave_texts_whole(backend)
    size = 1 + max(backend.get_vocab(with_added_tokens=True).values(), default=-1)
    check_ids(size, path.stat().st_size, path.name)
    pieces = [backend.id_to_token(i) or f"[PAD{i}]" for i in range(size)]
    added = backend.get_added_tokens_decoder()
    decoder = str(raw.get("decoder"))[:2000]
    spm = "ByteFallback" in decoder or "Metaspace" in decoder
    return Tokenizer(
        backend,
        pieces,
        control=frozenset(i for i, token in added.items() if token.special),
        plain=frozenset(i for i, token in added.items() if not token.special),
        special_ids={name: _token_id(backend, settings.get(f"{name}_token")) for name in ("bos", "eos")},
        ends=ends_of(directory, size),
        add_bos=add_bos,
        spm=spm,
        strip_space=spm and ("Strip" in decoder or _strips(raw["decoder"])),
        steps=steps_of_part(raw),
        names={f"{name}_token": text for name in SPECIAL if (text := _token_text(settings.get(f"{name}_token")))},
        chat_template=_template(directory, settings),
    )


def check_ids(size: int, bytes_of_file: int, where: str) -> None:
    """Raise UsageError for ids up to ``size`` if a file of ``bytes_of_file`` bytes cannot name them all."""
    if size > min(TOKENS_MAX, bytes_of_file):
        raise UsageError(
            f"{where}: a token has the id {size - 1}, in a file of {bytes_of_file} bytes", hint="get the file again"
        )


def _leave_texts_whole(backend: Backend) -> None:
    """Ids are of the text: none cut off, none for padding, none added by a template."""
    backend.no_truncation()
    backend.no_padding()
    backend.post_processor = None


def _strips(decoder: Any) -> bool:
    """Whether a decoder of SentencePiece's spaces drops the first one."""
    each = decoder.get("decoders", [decoder]) if isinstance(decoder, dict) else []
    spaces = [step for step in each if isinstance(step, dict) and step.get("type") == "Metaspace"]
    return any(step.get("prepend_scheme", "always") != "never" for step in spaces)


def neighbouring_json(directory: Path, name: str) -> dict[str, Any]:
    return read_json(directory / name) if (directory / name).exists() else {}


def _token_id(backend: Backend, token: Any) -> int | None:
    text = _token_text(token)
    return None if text is None else backend.token_to_id(text)


def _token_text(token: Any) -> str | None:
    """A token is written as its text, or as an object with its content."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _adds_bos(backend: Backend, settings: dict[str, Any]) -> bool:
    """The config's value, or else what the post-processor of tokenizer.json does."""
    if isinstance(settings.get("add_bos_token"), bool):
        return settings["add_bos_token"]
    bos = _token_id(backend, settings.get("bos_token"))
    return bos is not None and backend.encode("a").ids[:1] == [bos]


def ends_of(directory: Path, size: int) -> frozenset[int]:
    """End ids from generation_config.json and config.json: a number or a list."""
    ends: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        value = neighbouring_json(directory, name).get("eos_token_id")
        ends |= {v for v in (value if isinstance(value, list) else [value]) if type(v) is int and 0 <= v < size}
    return frozenset(ends)


def _template(directory: Path, settings: dict[str, Any]) -> str | None:
    path = directory / "chat_template.jinja"
    if path.exists():
        return path.read_text("utf-8", "replace")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default") or next(iter(named.values()), None)
    return template if isinstance(template, str) else None
