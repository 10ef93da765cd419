"""What the GPU executor computes, in torch."""

from __future__ import annotations

from typing import Any

import torch
from spec_kernels.gpu.forms import FORMS
from spec_kernels.gpu.repack import Matrix, naive_weights
from torch import Tensor


class RepackedWeights:
    """A source whose matrices in blocks have the weights that they have on the device."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def load(self, name: str) -> Tensor:
        """float32 of a tensor."""
        form, shape = FORMS.get(self.source.type(name)), self.source.shape(name)
        if form is None or len(shape) < 2:
            return self.source.load(name)
        data = self.source.blocks(name)
        matrix = Matrix.empty(form, len(data), shape[-1], torch.float32, torch.device("cpu"))
        matrix.write(0, data)
        return naive_weights(matrix).view(shape)
