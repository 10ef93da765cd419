"""``gguf:FILE``: a GGUF model in the torch runtime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from spec_core.errors import UsageError
from spec_targets.architectures.by_name import config_of, divisors_of, find_divisions, weights_of
from spec_targets.architectures.heads.families import head_family_of
from spec_targets.formats.collector import without_collection
from spec_targets.formats.gguf import GgufFile, open_gguf
from spec_targets.formats.stamps import FileStamps, stamp_of
from spec_targets.runtime.checkpoint import Checkpoint
from spec_targets.runtime.load import load_checkpoint

if TYPE_CHECKING:
    from spec_targets.architectures.heads.checkpoint import HeadCheckpoint
    from spec_targets.runtime.torch_target import TorchTarget

_files: WeakValueDictionary[tuple[Any, ...], GgufFile] = WeakValueDictionary()
_tokenizers: WeakKeyDictionary[GgufFile, Any] = WeakKeyDictionary()


@without_collection()
def open_checkpoint(path: Path) -> Checkpoint | HeadCheckpoint:
    """The model or draft head in a file. Raises UsageError for a damaged file, or an unknown architecture or type."""
    stamps = FileStamps.of(lambda: [path])
    file = _open_once(path)
    arch = file.metadata.get("general.architecture")
    if (heads := head_family_of(lambda family: arch in family.names)) is not None:
        return heads.gguf(file)
    config = config_of(file)
    source = weights_of(file, config)
    words = _tokenizer(file)
    _check_vocabulary(file, words, config.vocab)
    types = Counter(tensor.type for tensor in file.tensors.values())
    return Checkpoint(config, source, words, divisors_of(source, config), str(path), dict(types), stamps=stamps)


def load(location: str | Path, *, weights: bool | str = "auto", **options: Any) -> TorchTarget | HeadCheckpoint:
    """Load a model. options: see ``spec_core.load``; ``weights=False`` reads metadata only, and opens draft heads too.

    Raises UsageError for a damaged file, an unknown architecture or type, or a missing tensor.
    """
    return load_checkpoint(open_checkpoint(Path(location)), weights, options)


def tokenizer(path: Path) -> Any:
    """The tokenizer of a file, None if it has none. Raises UsageError for a damaged file."""
    return _tokenizer(_open_once(path))


def _open_once(path: Path) -> GgufFile:
    """The file, opened once for all users: a command reads metadata first, then weights."""
    file = _files.get(key) if (key := _identity(path)) else None
    if file is None:
        file = open_gguf(path)
        if key:
            _files[key] = file
    return file


def _identity(path: Path) -> tuple[Any, ...] | None:
    """Identity of a path and its contents, or None if it cannot be read."""
    stamp = stamp_of(path)
    return None if stamp is None else (path, *stamp)


def _tokenizer(file: GgufFile) -> Any:
    """Tokenizer of a file, made once, or None if it has none."""
    from spec_targets.tokenizer.gguf_vocabulary import from_gguf

    if "tokenizer.ggml.model" not in file.metadata:
        return None
    if file not in _tokenizers:
        divisions = find_divisions(file.metadata)
        tokenizer = _tokenizers[file] = from_gguf(file.metadata, file.path.name, divisions=divisions)
        tokenizer.gguf_keys = {key: value for key, value in file.metadata.items() if key.startswith("tokenizer.")}
    return _tokenizers[file]


def _check_vocabulary(file: GgufFile, tokenizer: Any, rows: int) -> None:
    if tokenizer is not None and tokenizer.vocab_size > rows:
        raise UsageError(
            f"{file.path.name}: the tokenizer has {tokenizer.vocab_size} tokens, the embedding {rows} rows",
            hint="tokenizer and tensors do not belong together; get the file again",
        )
