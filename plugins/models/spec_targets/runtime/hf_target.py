"""``hf:DIRECTORY``: config.json and safetensors, sharded or not, in the torch runtime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from spec_core.errors import UsageError
from spec_targets.architectures.by_class import MUTUAL, config_of, divisors_of, reads_pictures, text_of, weights_of
from spec_targets.architectures.heads.families import head_family_of
from spec_targets.formats.collector import without_collection
from spec_targets.formats.json_file import read_json
from spec_targets.formats.stamps import FileStamps
from spec_targets.runtime.checkpoint import Checkpoint
from spec_targets.runtime.load import load_checkpoint

if TYPE_CHECKING:
    from spec_targets.architectures.heads.checkpoint import HeadCheckpoint
    from spec_targets.formats.hf_weights import HfWeights
    from spec_targets.pictures.encoder import HfImageEncoder
    from spec_targets.runtime.torch_target import TorchTarget


@without_collection()
def open_checkpoint(directory: Path) -> Checkpoint | HeadCheckpoint:
    """The model or draft head in a directory. Raises UsageError for a damaged file, or an unknown architecture."""
    if not (directory / "config.json").exists():
        raise UsageError(f"{directory}: there is no config.json", hint="give a Hugging Face model directory")
    stamps = FileStamps.of(lambda: _list_files(directory))
    raw = read_json(directory / "config.json")
    if (heads := head_family_of(lambda family: family.is_json(raw))) is not None:
        return heads.hf(directory, raw)
    config = config_of(raw, directory.name)
    source = weights_of(directory, config)
    if not config.nextn and source.nextn:
        config = source.config = attrs.evolve(config, nextn=source.nextn)
    _check_output(raw, source, directory.name)
    types = Counter(tensor.type for tensor in source.tensors.values())
    words = tokenizer(directory)
    return Checkpoint(
        config,
        source,
        words,
        divisors_of(raw, config),
        str(directory),
        dict(types),
        _unread_parts(raw),
        stamps,
        _image_encoder(directory, raw, words, config.width),
    )


def load(location: str | Path, *, weights: bool | str = "auto", **options: Any) -> TorchTarget | HeadCheckpoint:
    """Load a model. options: see ``spec_core.load``; ``weights=False`` reads metadata only, and opens draft heads too.

    Raises UsageError for a damaged file, an unknown architecture, or a missing tensor.
    """
    return load_checkpoint(open_checkpoint(Path(location)), weights, options)


def _image_encoder(directory: Path, raw: dict[str, Any], words: Any, width: int) -> HfImageEncoder | None:
    """What turns pictures into rows; None for a model that reads text alone."""
    if not reads_pictures(raw) or words is None:
        return None
    from spec_targets.pictures.encoder import HfImageEncoder

    return HfImageEncoder(directory, words, width, mutual=raw["architectures"][0] in MUTUAL)


def _list_files(directory: Path) -> list[Path]:
    """The files of a model: its weights, its configuration, and its tokenizer."""
    return sorted(path for path in directory.iterdir() if path.suffix in (".json", ".safetensors", ".model", ".jinja"))


def _unread_parts(raw: dict[str, Any]) -> tuple[str, ...]:
    """A note on the parts of a model that are not read: it takes text alone."""
    parts = [part for part in ("vision", "audio") if isinstance(raw.get(f"{part}_config"), dict)]
    parts = [part for part in parts if part != "vision" or not reads_pictures(raw)]
    return (f"text only: its {' and '.join(parts)} parts are not read",) if parts else ()


def _check_output(raw: dict[str, Any], weights: HfWeights, where: str) -> None:
    """Raise UsageError if the config says that there is an output matrix and there is none."""
    tied = text_of(raw).get("tie_word_embeddings", raw.get("tie_word_embeddings"))
    if tied is False and weights.shape("output.weight") is None:
        raise UsageError(
            f"{where}: tensor 'lm_head.weight' is missing, and config.json has \"tie_word_embeddings\": false",
            hint="get the missing file again, or write true if the embedding is the output matrix",
        )


def tokenizer(directory: Path) -> Any:
    """The tokenizer of a directory, None if it has neither tokenizer.json nor tokenizer.model. Raises UsageError for a
    damaged file, and for a tokenizer.model that is not BPE."""
    from spec_targets.tokenizer.hf import from_hf
    from spec_targets.tokenizer.sentencepiece import from_sentencepiece

    readers = {"tokenizer.json": from_hf, "tokenizer.model": from_sentencepiece}
    return next((read(directory) for file, read in readers.items() if (directory / file).exists()), None)
