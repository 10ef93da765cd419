"""Samples on disk, one file each, so that a resumed run evaluates no text twice."""

from __future__ import annotations

import hashlib
from pathlib import Path

import attrs
import numpy as np
import torch

from spec_train import output
from spec_train.data.samples import Sample, TextSample, TopK


@attrs.define(eq=False)
class SampleCache:
    """A folder. free: bytes that may still be written; a larger sample is not stored. device: of the loaded samples."""

    folder: Path
    free: int
    device: str = "cpu"

    def __attrs_post_init__(self) -> None:
        if self.folder.is_dir():
            self.free -= sum(path.stat().st_size for path in self.folder.iterdir())

    def get(self, text: TextSample) -> Sample | None:
        """The sample of a text; None if it is not stored, or its file is truncated or damaged."""
        try:
            saved = torch.load(self._file(text), weights_only=True, map_location=self.device)
        except FileNotFoundError:
            return None
        except Exception:  # torch raises several types for a damaged file
            return None
        return Sample(saved["tokens"], saved["features"], TopK(saved["ids"], saved["p"]), text.start)

    def put(self, text: TextSample, sample: Sample) -> None:
        """Store a sample. Raises UsageError if the disk is full."""
        if sample.bytes > self.free:
            return
        self.free -= sample.bytes
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {"tokens": sample.tokens, "features": sample.features, "ids": sample.top_k.ids, "p": sample.top_k.p}
        output.save_tensors(self._file(text), state)

    def _file(self, text: TextSample) -> Path:
        key = np.array([text.start, *text.tokens], dtype=np.int32)
        return self.folder / f"{hashlib.blake2b(key.tobytes(), digest_size=12).hexdigest()}.pt"
