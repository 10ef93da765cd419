"""What is said where a device fails or has no memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from spec_core.errors import TargetError, message


@contextmanager
def device_failures(device: str) -> Iterator[None]:
    """Raise TargetError where the device fails or has no memory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise no_memory(device, error, "a step") from error
    except torch.AcceleratorError as error:
        reason = f"the device {device} failed: {first_line(error)}"
        raise TargetError(reason, hint="start again; if it fails again, look at the driver's log") from error


def no_memory(device: str, error: Exception, what: str = "keys and values") -> TargetError:
    """The error of a sequence, or of a step, for which no memory is left."""
    reason = f"no memory is left on {device} for {what} ({first_line(error)})"
    return TargetError(reason, hint="run fewer or shorter texts at once, or a smaller model or --context")


def first_line(error: Exception) -> str:
    """First line of a torch error, which is many lines long."""
    return message(error).splitlines()[0][:200]
