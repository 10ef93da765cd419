"""The number of threads with which torch computes, and what a fork makes of them."""

from __future__ import annotations

import os

import attrs
import torch

from spec_core.errors import UsageError


@attrs.define
class Threads:
    """used: torch may have started threads in this process. lost: in the process that this one is a fork of."""

    used: bool = False
    lost: bool = False


_threads = Threads()


def use_threads(count: int) -> None:
    """Set torch's number of threads.

    Raises UsageError for more than one in a fork of a process that used several: a fork does not copy threads, and
    torch would wait for them forever.
    """
    if count > 1 and _threads.lost:
        raise UsageError(
            f"threads = {count}, and this process is a fork of one in which torch used several threads",
            hint="use threads=1 here, load no model before the fork, or start processes without a fork: "
            "multiprocessing.get_context('spawn')",
        )
    torch.set_num_threads(count)
    _threads.used |= count > 1


def keep_to_one() -> None:
    """Keep a forked child to one thread, if there were several before."""
    if _threads.used:
        _threads.used, _threads.lost = False, True
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=keep_to_one)
