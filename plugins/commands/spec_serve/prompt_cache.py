"""The prompt cache in a file: which prefixes it has, so that a server that starts again can evaluate them.

The file holds tokens and no rows. Rows are evaluated again by the model and the methods that run now, so that the file
can be used with another dtype, head, device or version, and nothing in it can change a text.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any

import attrs

from spec_core import Request, Run, TargetInfo, UsageError
from spec_core.errors import error_message, quote_value

log = logging.getLogger("spec_serve")
KIND = b"spec-prompt-cache"
MAGIC = KIND + b" 1"
BYTES_MAX = 1 << 28
"""Max bytes of a file that is read, and so of one that is written."""
HEAD_BYTES = 4096
"""Room in the file for all but its prefixes."""
MODEL = b'{"model":'
"""Beginning of the body: the file names its model first, so that also a damaged one is known."""
HINT = "remove the file, or name another one with --prompt-cache"


class OtherModel(ValueError):
    """The file is the prompt cache of another model."""


@attrs.frozen
class Prefix:
    """Tokens whose rows are kept. salt: as in Request. checkpoints: positions of kept recurrent states."""

    tokens: tuple[int, ...]
    salt: str = ""
    checkpoints: tuple[int, ...] = ()


def prefixes(run: Run) -> list[Prefix]:
    """Prefixes of the run's free slots, the least recently used first. A row given as an embedding ends a prefix."""
    prefixes_of_run = []
    for slot in run.free_slots:
        tokens = slot.tokens[: slot.evaluated]
        tokens = list(takewhile(lambda token: token >= 0, tokens))
        if tokens:
            prefixes_of_run.append(
                Prefix(tuple(tokens), slot.salt, tuple(p for p in sorted(slot.checkpoints) if p <= len(tokens)))
            )
    return prefixes_of_run


def identity(run: Run) -> dict[str, Any]:
    """What tells one model from another; equal for another dtype, device or quantisation."""
    info = run.target.info
    fields = (info.name, info.family, info.layers, info.width, info.vocab, info.vocab_id)
    return dict(zip(("name", "family", "layers", "width", "vocab", "vocabulary"), fields, strict=True))


def save_prefixes(path: Path, run: Run) -> int:
    """Write the file, readable for its owner only; returns the number of prefixes. Raises OSError."""
    kept = newest_prefixes(prefixes(run), BYTES_MAX - HEAD_BYTES)
    written = ",".join(text for text, _ in kept)
    body = f'{{"model":{json.dumps(identity(run))},"prefixes":[{written}]}}'.encode()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # only its owner can read such a file
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(b"%s %s\n%s" % (MAGIC, sha256(body).hexdigest().encode(), body))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return len(kept)


def newest_prefixes(prefixes: list[Prefix], size: int) -> list[tuple[str, Prefix]]:
    """The most recently used prefixes that have room in a file of this size, each as JSON; the newest one last."""
    kept: list[tuple[str, Prefix]] = []
    for prefix in reversed(prefixes):
        text = json.dumps(attrs.astuple(prefix), separators=(",", ":"))
        size -= len(text) + 1
        if size < 0:
            break
        kept.append((text, prefix))
    return kept[::-1]


def write_prefixes(path: Path, run: Run) -> None:
    """Save at the end of a server, which ends in order also where that fails. A file of another model stays."""
    try:
        with suppress(FileNotFoundError):
            check_model(_bytes_of(path), run)  # another server may have written it meanwhile
        log.info("prompt cache: %d prefixes in %s", save_prefixes(path, run), path)
    except OtherModel as error:
        log.error("prompt cache: %s is not replaced: %s; %s", path, error, HINT)
    except OSError as error:
        log.error("prompt cache: %s cannot be written: %s", path, error_message(error))


def check_folder(path: Path) -> None:
    """Raise UsageError where the file could not be written at the end."""
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"--prompt-cache {path}: the folder {path.parent} does not exist or cannot be written",
            hint="name a file in a folder that can be written",
        )


def read_prefix_file(path: Path, run: Run) -> list[Prefix] | None:
    """The prefixes of a file; none where it does not exist yet or, with a warning, is damaged: it is replaced.

    None, with a warning, for the file of another model, which is not replaced. Raises UsageError for a file that
    cannot be read, or is no prompt cache.
    """
    try:
        data = _bytes_of(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"--prompt-cache {path} cannot be read: {error_message(error)}", hint=HINT) from error
    if data and not data.startswith(KIND):
        raise UsageError(
            f"--prompt-cache {path}: the file does not begin with {KIND.decode()!r}: it is no prompt cache", hint=HINT
        )
    try:
        check_model(data, run)
        return read_prefixes(data, run)
    except OtherModel as error:
        log.warning("prompt cache: %s is neither used nor replaced: %s; %s", path, error, HINT)
        return None
    except ValueError as error:
        log.warning("prompt cache: %s is not used, and is replaced at the end: %s", path, error)
        return []


def _bytes_of(path: Path) -> bytes:
    """Contents of a file, at most one byte more than is read."""
    with path.open("rb") as file:
        return file.read(BYTES_MAX + 1)


def check_model(data: bytes, run: Run) -> None:
    """Raise OtherModel where a file names another model, or none; also where the rest of it is damaged."""
    head, _, body = data.partition(b"\n")
    if head[: len(MAGIC)] != MAGIC or not body:
        return
    if not body.startswith(MODEL):
        raise OtherModel("it does not name its model")
    try:
        model, _ = json.JSONDecoder().raw_decode(body[:HEAD_BYTES].decode("utf-8", "replace"), len(MODEL))
    except (ValueError, RecursionError):
        return
    own = identity(run)
    if different := [name for name in own if not isinstance(model, dict) or model.get(name) != own[name]]:
        of = model.get("name") if isinstance(model, dict) else model
        raise OtherModel(f"it is of the model {quote_value(of)}, with another {different[0]}")


def read_prefixes(data: bytes, run: Run) -> list[Prefix]:
    """Raise ValueError where it is no prompt cache, or is damaged."""
    head, _, body = data.partition(b"\n")
    if len(data) > BYTES_MAX:
        raise ValueError(f"the file is longer than {BYTES_MAX} bytes")
    if head[: len(MAGIC)] != MAGIC:
        raise ValueError(f"the file does not begin with {MAGIC.decode()!r}: it is of another version")
    if head[len(MAGIC) :] != b" " + sha256(body).hexdigest().encode():
        raise ValueError("the file is cut or damaged: its checksum is not that of its contents")
    try:
        header = json.loads(body)
    except RecursionError:
        raise ValueError("the file is nested too deeply") from None
    if not isinstance(header, dict) or not isinstance(header.get("prefixes"), list):
        raise ValueError("the file has no list of prefixes")
    return [_prefix(entry, run.target.info.vocab) for entry in header["prefixes"]]


def _prefix(entry: Any, vocab: int) -> Prefix:
    match entry:
        case [[_, *_] as tokens, str(salt), list(checkpoints)]:
            if _whole(tokens, vocab - 1) and _whole(checkpoints, len(tokens)) and sorted(checkpoints) == checkpoints:
                return Prefix(tuple(tokens), salt, tuple(checkpoints))
    raise ValueError(f"a prefix must be tokens below {vocab}, a salt and ascending positions of checkpoints")


def _whole(numbers: list[Any], largest: int) -> bool:
    return all(type(number) is int and 0 <= number <= largest for number in numbers)


def fitting_prefixes(prefixes: list[Prefix], run: Run) -> list[Prefix]:
    """The most recently used prefixes for which the run has room, the least recently used of them first."""
    info = run.target.info
    room = run.settings.cache_tokens + run.settings.max_sequences * _rows(info, info.context)
    fit: list[Prefix] = []
    for prefix in reversed(prefixes):
        room -= _rows(info, len(prefix.tokens))
        if len(prefix.tokens) < info.context and room >= 0:
            fit.insert(0, prefix)
    return fit


def _rows(info: TargetInfo, positions: int) -> int:
    """Rows of all layers that take as much memory as a text of this length, whose layers with a window keep fewer."""
    size = info.rows_bytes(positions)
    return positions if size is None or not info.row_bytes else -(-size // info.row_bytes)


def evaluate_prefixes(run: Run, prefixes: Iterable[Prefix]) -> None:
    """Evaluate prefixes, so that requests can continue their rows. Stops at every checkpoint, so that it is kept."""
    for prefix in prefixes:
        for end in sorted({*prefix.checkpoints, len(prefix.tokens)} - {0}):
            seq = run.submit(Request(list(prefix.tokens[:end]), max_tokens=1, cache_salt=prefix.salt))
            while run.busy:
                run.step()
            run.take(seq)
