"""Connections of a server, counted from ``accept`` on, and which of them makes room when there are too many.

A connection costs a descriptor, and a process has few: without limits some hundred of them make a server deaf.
"""

from __future__ import annotations

import os
import select
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import Any, Literal, TypeAlias

import attrs

from spec_serve.settings import ServeSettings

DESCRIPTORS_KEPT = 64
"""Descriptors for all but connections: files, the log, processes of grammars and templates."""
CONNECTIONS_MAX = 1024
Stage: TypeAlias = Literal["silent", "handshake", "head", "body", "busy", "kept"]
"""What a server waits for: the first byte, the end of a handshake, of a head, of a body, an answer, the next request.
"""
GRACE: dict[Stage, float] = {"silent": 0.1, "handshake": 0.5, "head": 0.5, "body": 5.0}
"""Seconds without a byte after which a connection of this stage may be closed for another one, in this order. One that
is answered, or was kept alive, is not closed."""
WAITED_FOR: tuple[Stage, ...] = ("silent", "handshake", "head")
"""Stages whose end a new connection waits for. Where no connection is in one, the server answers that it is full."""
LOOKED_AT = 32
"""Connections of a stage that are compared, the oldest ones."""


def connections_max(settings: ServeSettings) -> int:
    """The setting, or what the process has descriptors for."""
    if settings.connections:
        return settings.connections
    try:
        import resource

        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except ImportError:  # no such limit on this system
        return CONNECTIONS_MAX
    return max(1, min(CONNECTIONS_MAX, descriptors - DESCRIPTORS_KEPT))


def counts_addresses(settings: ServeSettings) -> bool:
    """Whether an address is one client: all connections through a proxy come from the proxy's."""
    return not (settings.proxy or os.environ.get("FORWARDED_ALLOW_IPS"))


@attrs.define(eq=False)
class Connection:
    """One connection. descriptor: its file descriptor. close: ends it at once.

    opened, heard: times of ``accept``, and of its last byte.
    """

    descriptor: int
    address: str
    close: Callable[[], None]
    stage: Stage = "silent"
    opened: float = attrs.field(factory=monotonic)
    heard: float = attrs.field(factory=monotonic)


@attrs.define(eq=False)
class Connections:
    """All connections of a server. by_address: the address with most of them makes room first."""

    count_max: int
    by_address: bool = True
    stages: dict[Stage, dict[Connection, None]] = attrs.field(init=False)
    addresses: Counter[str] = attrs.field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        stages: tuple[Stage, ...] = (*GRACE, "busy", "kept")
        self.stages = {stage: {} for stage in stages}

    def __len__(self) -> int:
        return sum(map(len, self.stages.values()))

    def __iter__(self) -> Iterator[Connection]:
        return (connection for stage in self.stages.values() for connection in list(stage))

    @property
    def is_full(self) -> bool:
        return len(self) > self.count_max

    def add(self, connection: Connection) -> None:
        self.stages[connection.stage][connection] = None
        self.addresses[connection.address] += 1

    def remove(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        if connection in self.stages[connection.stage]:
            del self.stages[connection.stage][connection]
            self.addresses[connection.address] -= 1
            self.addresses += Counter()  # drops an address without connections

    def move(self, connection: Connection, stage: Stage) -> None:
        """Note that a byte came, or an answer ended, and what the server waits for now."""
        if connection in self.stages[connection.stage]:
            del self.stages[connection.stage][connection]
            connection.stage, connection.heard = stage, monotonic()
            self.stages[stage][connection] = None  # at the end: the first of a stage was heard longest ago

    def make_room(self) -> bool:
        """Close one connection that a server waits for in vain. False where there is none, or not yet."""
        now = monotonic()
        for stage, seconds in GRACE.items():
            oldest = islice(self.stages[stage], LOOKED_AT)
            waiting = [one for one in oldest if now - one.heard >= seconds and not is_readable(one.descriptor)]
            if waiting:
                first = max(waiting, key=lambda one: self.addresses[one.address]) if self.by_address else waiting[0]
                self.remove(first)
                first.close()
                return True
        return False

    def seconds_to_room(self, new: Connection) -> float | None:
        """Seconds after which another connection than the new one may be closed; None if that is not soon."""
        now, ends = monotonic(), []
        for stage in WAITED_FOR:
            oldest = next(iter(self.stages[stage]), new)
            ends += [] if oldest is new else [max(0.0, oldest.heard + GRACE[stage] - now)]
        return min(ends, default=None)


def is_readable(descriptor: int) -> bool:
    """Whether bytes that were not read yet have come on a socket. The end of the connection is not one."""
    if descriptor < 0:
        return False
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([descriptor], [], [], 0)[0])
    poll: Any = select.poll()
    poll.register(descriptor, select.POLLIN)
    return any(events & select.POLLIN and not events & select.POLLHUP for _, events in poll.poll(0))
