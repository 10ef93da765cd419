"""A program of one bucket, captured as a CUDA graph when it is used again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from spec_kernels.gpu.device import capture_launches
from spec_kernels.gpu.layout import Layout
from spec_kernels.gpu.values import Facilities, Launch

BUCKETS_MAX = 48
"""Buckets that an executor keeps; the one that was used least recently goes."""


class Launchable(Protocol):
    """Launches in order, each with a name. embedded: rows of embeddings that the first one writes, or None."""

    of: Facilities
    launches: list[tuple[str, Launch]]
    embedded: Tensor | None


P = TypeVar("P", bound=Launchable)


class Bucket(Generic[P]):
    """The memory and the launches of one size of a step. The first run compiles kernels, the second is captured."""

    def __init__(self, layout: Layout, program: P) -> None:
        self.layout, self.program = layout, program
        self.graph: torch.cuda.CUDAGraph | None = None
        self._runs = 0

    def run(self, write_embeds: Callable[[Tensor], None] | None = None) -> None:
        """Launch everything; a run with ``write_embeds`` is not captured.

        write_embeds: writes rows of embeddings, after the rows of tokens.
        """
        self.layout.upload()
        if write_embeds is not None or self.layout.device.device.type != "cuda" or not self._runs:
            self._launch(write_embeds)
            self._runs += 1
            return
        if self.graph is None:
            self.graph = capture_launches(self._launch)
        self.graph.replay()

    def prepare(self) -> None:
        """Compile and capture the launches, with a description in which no row has a place."""
        self.layout.upload()
        self._launch()
        self._runs += 1
        if self.layout.device.device.type == "cuda":
            self.graph = capture_launches(self._launch)

    def _launch(self, write_embeds: Callable[[Tensor], None] | None = None) -> None:
        for name, launch in self.program.launches:
            launch()
            if name == "embed" and write_embeds is not None and self.program.embedded is not None:
                write_embeds(self.program.embedded)


class Buckets:
    """The buckets of an executor, bounded in number. Every thread has its own: outputs are valid until its next run."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[Hashable, Bucket[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, create: Callable[[], Bucket[P]]) -> Bucket[P]:
        """The bucket of a key, made at its first use by this thread, or before any thread used it."""
        prepared, key = (key, None), (key, threading.get_ident())
        with self._lock:
            if key not in self._buckets and prepared in self._buckets:
                self._buckets[key] = self._buckets.pop(prepared)
            bucket = self._buckets.get(key)
            if bucket is None:
                while len(self._buckets) >= BUCKETS_MAX:
                    self._buckets.popitem(last=False)
                bucket = self._buckets[key] = create()
            self._buckets.move_to_end(key)
        return bucket

    def put(self, key: Hashable, bucket: Bucket[Any]) -> None:
        """Keep a bucket for the first thread that needs it."""
        with self._lock:
            self._buckets[key, None] = bucket

    @property
    def captured(self) -> int:
        """Number of captured graphs."""
        return sum(bucket.graph is not None for bucket in self._buckets.values())

    def __len__(self) -> int:
        return len(self._buckets)
