"""A stand-in for a device: tensors that are not on the host, and every time that their numbers are read there."""

from __future__ import annotations

from typing import ClassVar

import attrs
import torch

from spec_core.testing import ToyTarget

HOST_READS = {
    getattr(torch.Tensor, name)
    for name in ("__bool__", "__float__", "__index__", "__int__", "cpu", "data_ptr", "item", "numpy", "tolist")
}


class Away(torch.Tensor):
    """A tensor that claims to be on a device. All that is computed from it is there too."""

    is_cpu = False
    reads: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in HOST_READS:
            cls.reads.append(func.__name__)
            with torch._C.DisableTorchFunctionSubclass():
                return func(args[0].as_subclass(torch.Tensor), *args[1:], **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)


class AwayTarget(ToyTarget):
    """A toy whose logits are on the device."""

    def forward(self, batch, needs):
        output = super().forward(batch, needs)
        return attrs.evolve(output, logits=output.logits.float().as_subclass(Away))
