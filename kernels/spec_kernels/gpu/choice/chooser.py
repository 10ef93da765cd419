"""The chooser of a CUDA device: buffers, launches, and graphs of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from spec_kernels.gpu.choice.adjustment import adjust_rows
from spec_kernels.gpu.choice.description import NO_CHANGES, NO_COPIES, Description, Draws, describe
from spec_kernels.gpu.choice.kernels import Tiles, choose_rows
from spec_kernels.gpu.device import capture_launches, device_lock, host_memory
from spec_kernels.gpu.launch import on_device

GRAPHS_MAX = 16
"""Places of logits for which buffers and a graph are kept; the least recently used one is dropped."""


@attrs.define(eq=False)
class Launches:
    """The three launches for one place of logits and one number B of draws.

    copies, draws: what they read besides the logits. tiles, out: what they write, out [2, B] int32.
    graph: of the launches, None before it is captured. It holds the address of the logits, and nothing holds the
    logits themselves: their memory may be freed, and be used for the logits of a later step.
    """

    copies: Tensor
    draws: Tensor
    tiles: Tiles
    out: Tensor
    graph: torch.cuda.CUDAGraph | None = None

    def start(self, logits: Tensor) -> None:
        """Replay the graph; without one, launch the kernels."""
        if self.graph is None:
            choose_rows(logits, self.copies, self.draws, self.tiles, self.out)
        else:
            self.graph.replay()

    def capture(self, logits: Tensor) -> None:
        """Capture the launches. They must have run before."""
        self.graph = capture_launches(lambda: self.start(logits))


class DeviceChoice:
    """Chooses the tokens of rows of logits on their device, as the core chooses them.

    A call uploads some integers per draw, launches three kernels, and downloads a token and a logit per draw.
    Draws with a mask, bias or penalty take two more kernels, and a float32 copy of their row.
    On CUDA the three kernels become a graph when logits of one shape and type are at one address for the second time.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.copies = torch.empty((1, 1), dtype=torch.float32, device=device)
        self._host, self._integers = self._buffers(4096)
        self._launches: OrderedDict[tuple[Any, ...], Launches] = OrderedDict()
        self._plain: dict[tuple[int, ...], tuple[Tensor, Tensor, tuple[Any, ...]]] = {}
        self._lock = threading.Lock()

    def __call__(self, logits: Tensor, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
        """Choose a token for each of N draws, one or more.

        logits: [R, V] float32, bfloat16 or float16 on the device; the tokens of a row are adjacent
        returns tokens [N] int32 and the largest logits [N] float32, NaN if any logit of the row is
        """
        count = len(draws.rows)
        with self._lock, on_device(self.device):
            with device_lock(self.device):
                chosen = self._choose(logits.detach(), describe(draws))
            out = chosen.cpu().numpy()
        return out[0, :count], out[1, :count].view(np.float32)

    def _choose(self, logits: Tensor, description: Description) -> Tensor:
        """Tokens and bits of largest logits, [2, B] int32 on the device."""
        draws, copies, changes, masks = self._upload(description)
        if len(copies):
            self._reserve_copies(len(copies), logits.shape[1])
            adjust_rows(logits, self.copies, copies, changes, masks)
        launches = self._find_launches(logits, draws)
        launches.start(logits)
        return launches.out

    def _upload(self, description: Description) -> tuple[Tensor, ...]:
        """The sections of a description on the device."""
        offsets = description.offsets
        size = offsets[-1]
        if size > len(self._host):
            self._launches.clear()  # they read the old buffer
            self._host, self._integers = self._buffers(2 * size)
            self._plain.clear()
        description.write(self._host.numpy(), offsets)
        if not len(description.copies):
            return self._upload_plain(description)
        self._integers[:size].copy_(self._host[:size], non_blocking=True)
        sections = description.draws, description.copies, description.changes, description.masks
        return tuple(
            self._integers[begin : begin + section.size].view(section.shape)
            for begin, section in zip(offsets, sections, strict=False)
        )

    def _upload_plain(self, description: Description) -> tuple[Tensor, ...]:
        """Upload a description without adjusted rows: slices of the buffers are made once for each number of draws."""
        shape = description.draws.shape
        if shape not in self._plain:
            size = description.draws.size
            device, host = self._integers[:size], self._host[:size]
            self._plain[shape] = device, host, (device.view(shape), NO_COPIES, NO_CHANGES, NO_COPIES)
        device, host, sections = self._plain[shape]
        device.copy_(host, non_blocking=True)
        return sections

    def _buffers(self, size: int) -> tuple[Tensor, Tensor]:
        """Integers of a description: pinned on the host, and on the device."""
        return host_memory(size, torch.int32, self.device), torch.empty(size, dtype=torch.int32, device=self.device)

    def _reserve_copies(self, rows: int, vocab: int) -> None:
        """Make room for adjusted rows. Buffers only grow; a vocabulary of another size gets new ones."""
        if self.copies.shape[1] != vocab or len(self.copies) < rows:
            self._launches.clear()
            self.copies = torch.empty((1 << (rows - 1).bit_length(), vocab), dtype=torch.float32, device=self.device)

    def _find_launches(self, logits: Tensor, draws: Tensor) -> Launches:
        """The launches for these logits. CUDA launches are captured when they are used for the second time."""
        key = logits.data_ptr(), logits.stride(0), logits.shape[1], logits.dtype, len(draws)
        launches = self._launches.get(key)
        if launches is None:
            tiles = Tiles.empty(len(draws), logits.shape[1], self.device)
            out = torch.empty((2, len(draws)), dtype=torch.int32, device=self.device)
            launches = self._launches[key] = Launches(self.copies, draws, tiles, out)
        elif launches.graph is None and logits.is_cuda:
            launches.capture(logits)
        self._launches.move_to_end(key)
        if len(self._launches) > GRAPHS_MAX:
            self._launches.popitem(last=False)
        return launches
