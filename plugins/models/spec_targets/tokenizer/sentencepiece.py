"""A tokenizer from a directory with ``tokenizer.model`` alone: SentencePiece's own file, a Protocol Buffers message.

Read as ``sentencepiece_model.proto`` of google/sentencepiece says: ``ModelProto`` with its pieces (field 1), trainer
(2) and normaliser (3). Only the fields named here are looked at. The result is what a GGUF file of the model holds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spec_core.errors import UsageError
from spec_targets.formats.damage import damage_error, unsupported_error
from spec_targets.tokenizer.base import Tokenizer
from spec_targets.tokenizer.gguf_vocabulary import CONTROL, NORMAL, UNUSED, USER, Flags, from_gguf
from spec_targets.tokenizer.hf import TOKENS_MAX, check_ids, ends_of, neighbouring_json

MAX_BYTES = 64 << 20
BPE = 2
"""``TrainerSpec.ModelType``."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Kinds of fields."""
Message = dict[int, Any]
"""Fields by number."""
FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
"""Options of matching a declared token."""
HINT = "add the tokenizer.json of the model, or use a GGUF of it"


def from_sentencepiece(directory: Path) -> Tokenizer:
    """The tokenizer of a directory. Raises UsageError for a damaged file, and for models other than BPE."""
    path = directory / "tokenizer.model"
    settings = neighbouring_json(directory, "tokenizer_config.json")
    pieces = _pieces(path)
    flags = _add_tokens(path, pieces, settings)
    metadata = {f"tokenizer.ggml.{name}": value for name, value in pieces.items()}
    if isinstance(settings.get("add_bos_token"), bool):
        metadata["tokenizer.ggml.add_bos_token"] = settings["add_bos_token"]
    if isinstance(settings.get("chat_template"), str):
        metadata["tokenizer.chat_template"] = settings["chat_template"]
    ends = ends_of(directory, len(pieces["tokens"]))
    return from_gguf(metadata, path.name, ends, flags)


def _pieces(path: Path) -> dict[str, Any]:
    """tokens, scores, token_type, ids of special tokens, add_space_prefix."""
    try:
        pieces, trainer, normaliser = _messages(_read(path))
        tokens = [piece[1].decode("utf-8") for piece in pieces]
        scores = [float(piece.get(2, 0.0)) for piece in pieces]
        types = [int(piece.get(3, NORMAL)) for piece in pieces]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise damage_error(path, "is not a SentencePiece model") from error
    _check(path, trainer, normaliser, len(tokens))
    ids = {"unknown": trainer.get(40, 0), "bos": trainer.get(41, 1), "eos": trainer.get(42, 2)}
    return {
        "model": "llama",
        "tokens": tokens,
        "scores": scores,
        "token_type": types,
        "add_space_prefix": bool(normaliser.get(3, 1)),
        **{f"{name}_token_id": i for name, i in ids.items() if type(i) is int and 0 <= i < len(tokens)},
    }


def _messages(raw: memoryview) -> tuple[list[Message], Message, Message]:
    """The pieces, the trainer and the normaliser of a model."""
    pieces: list[Message] = []
    trainer: Message = {}
    normaliser: Message = {}
    for number, value in _fields(raw):
        if number == 1:
            pieces.append(dict(_fields(value)))
        elif number == 2:
            trainer |= dict(_fields(value))
        elif number == 3:
            normaliser |= dict(_fields(value))
    return pieces, trainer, normaliser


def _read(path: Path) -> memoryview:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise damage_error(path, f"has {path.stat().st_size} bytes, the limit is {MAX_BYTES}")
        return memoryview(path.read_bytes())
    except OSError as error:
        raise unsupported_error(
            path, f"cannot be read: {error.strerror}", "check the path and its permissions"
        ) from error


def _fields(raw: Any) -> Iterator[tuple[int, Any]]:
    """(number, value) of a message: whole numbers, float32, or bytes. Raises ValueError, IndexError or struct.error."""
    if isinstance(raw, (int, float)):
        raise ValueError("a message was needed")
    raw, at = memoryview(raw), 0
    value: int | float | bytes
    while at < len(raw):
        key, at = _varint(raw, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(raw, at)
        elif kind == BYTES:
            size, at = _varint(raw, at)
            if not 0 <= size <= len(raw) - at:
                raise ValueError("a field is longer than its message, or shorter than nothing")
            value, at = bytes(raw[at : at + size]), at + size
        elif kind == FIXED32:
            value, at = struct.unpack_from("<f", raw, at)[0], at + 4
        elif kind == FIXED64:
            value, at = struct.unpack_from("<d", raw, at)[0], at + 8
        else:
            raise ValueError(f"kind {kind} of a field")
        yield key >> 3, value


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    """A whole number and the position after it; numbers below 0 have ten bytes."""
    value = 0
    for shift in range(0, 70, 7):
        byte = raw[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value - (1 << 64 if value >> 63 else 0), at
    raise ValueError("a number of more than ten bytes")


def _check(path: Path, trainer: Message, normaliser: Message, count: int) -> None:
    """Refuse what the merges by score do not reproduce."""
    if not 0 < count <= TOKENS_MAX:
        raise damage_error(path, f"has {count} tokens")
    problems = {
        "is a unigram model": trainer.get(3, 1) != BPE,
        "has no bytes for unknown characters": not trainer.get(35, 0),
        "changes characters before it splits a text": bool(normaliser.get(2)),
        "removes spaces": bool(normaliser.get(4, 1)),
    }
    for problem, present in problems.items():
        if present:
            raise UsageError(f"{path.name} {problem}, which is not supported", hint=HINT)


def _add_tokens(path: Path, pieces: dict[str, Any], settings: dict[str, Any]) -> Flags | None:
    """Add the tokens that the other files of the model declare, with their kinds; returns how they match.

    None if only their names are declared, in added_tokens.json.
    """
    declared, where = _declared_tokens(path, settings)
    for i, token in declared.items():
        count = len(pieces["tokens"])
        check_ids(i + 1, path.stat().st_size + where.stat().st_size, where.name)
        for n in range(count, i + 1):
            pieces["tokens"].append(f"[PAD{n}]")
            pieces["scores"].append(0.0)
            pieces["token_type"].append(UNUSED)
        pieces["tokens"][i] = token["content"]
        pieces["token_type"][i] = CONTROL if token.get("special") else USER
    if where.name != "tokenizer_config.json":
        return None
    return {token["content"]: {n: bool(token[n]) for n in FLAGS if n in token} for token in declared.values()}


def _declared_tokens(path: Path, settings: dict[str, Any]) -> tuple[dict[int, dict[str, Any]], Path]:
    """Declared tokens by id, and the file that declares them: tokenizer_config.json, or added_tokens.json of older
    models, whose special ones are in special_tokens_map.json.
    """
    added, where = settings.get("added_tokens_decoder"), path.with_name("tokenizer_config.json")
    if not isinstance(added, dict):
        where = path.with_name("added_tokens.json")
        special = _texts_of(neighbouring_json(path.parent, "special_tokens_map.json"))
        added = {
            str(i): {"content": text, "special": text in special}
            for text, i in neighbouring_json(path.parent, where.name).items()
        }
    for name, token in added.items():
        if not (name.isascii() and name.isdecimal() and len(name) < 10):
            raise damage_error(where, f"token {name[:20]!r} has no id")
        if not isinstance(token, dict) or not isinstance(token.get("content"), str):
            raise damage_error(where, f"token {name[:20]!r} has no content")
    return {int(name): token for name, token in added.items()}, where


def _texts_of(tokens: dict[str, Any]) -> frozenset[str]:
    """Texts of the tokens of special_tokens_map.json: each a text, an object with its content, or a list of these."""
    each = [item for value in tokens.values() for item in (value if isinstance(value, list) else [value])]
    texts = [item.get("content") if isinstance(item, dict) else item for item in each]
    return frozenset(text for text in texts if isinstance(text, str))
