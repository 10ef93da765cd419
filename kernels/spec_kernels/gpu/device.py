"""What the executor needs of a device besides launches: a lock, transfers that do not wait, and captures."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


@functools.cache
def device_lock(device: torch.device) -> threading.RLock:
    """The lock of a device: held while launches are queued or captured, and while memory of caches changes hands.

    Steps of all executors follow one another in one stream, and a capture takes in what is queued meanwhile.
    A cache may be freed by the collector of garbage at any time, so that a thread may take it twice.
    """
    return threading.RLock()


def host_memory(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros on the host from which copies to the device need not wait."""
    return torch.zeros(size, dtype=dtype, pin_memory=device.type == "cuda")


def upload_numbers(numbers: np.ndarray, device: torch.device) -> Tensor:
    """Numbers on the device. The host does not wait: torch keeps the pinned memory until the copy is made."""
    host = torch.from_numpy(numbers)
    if device.type == "cuda":
        host = host.pin_memory()
    return host.to(device, non_blocking=True)


def capture_launches(launch: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """Capture launches on the current device. They must have run before: a capture compiles and loads nothing.

    The context ``torch.cuda.graph`` would wait for the device, and return all cached memory of torch to it.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")  # other threads may call CUDA meanwhile
        try:
            launch()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph
