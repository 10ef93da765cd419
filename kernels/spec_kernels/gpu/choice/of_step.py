"""The choice of tokens as the end of a step: its draws come with the step's upload, its result with the step's end."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from spec_kernels.gpu.choice.kernels import Tiles, choose_rows
from spec_kernels.gpu.device import host_memory


class StepChoice:
    """The choice at every row of a step's logits. draws: int32 [B, FIELDS], of the step's description."""

    def __init__(self, logits: Tensor, draws: Tensor) -> None:
        device, count = logits.device, len(draws)
        copies = torch.zeros((1, 1), device=device)  # no row of a step is adjusted
        out = torch.zeros((2, count), dtype=torch.int32, device=device)
        tiles = Tiles.empty(count, logits.shape[1], device)
        self.host = host_memory(2 * count, torch.int32, device).view(2, count)
        self.ended = torch.cuda.Event() if device.type == "cuda" else None
        self.launches = [
            ("choose", partial(choose_rows, logits, copies, draws, tiles, out)),
            ("tokens", partial(self._download, out)),
        ]

    def _download(self, out: Tensor) -> None:
        self.host.copy_(out, non_blocking=True)

    def mark_end(self) -> None:
        """Called when all launches of the step are queued."""
        if self.ended is not None:
            self.ended.record()

    def read(self) -> tuple[list[int], list[float]]:
        """Wait for the step; a token and the largest logit of every row. A row without a draw has any."""
        if self.ended is not None:
            self.ended.synchronize()
        tokens, bits = self.host.numpy()
        return tokens.tolist(), bits.view(np.float32).tolist()
