"""``--executor ray``: every machine of a Ray cluster measures some of the contenders and their plain decoding.

One task runs on a machine at a time and takes all its processors, so contenders do not disturb each other.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from spec_commands import common
from spec_compare.figures.outcome import Outcome, recompute_outcome
from spec_compare.measuring.experiment import number_of_contenders
from spec_compare.measuring.shard import Shard
from spec_compare.records import writing
from spec_compare.records.reading import LAPS, read_results

from spec_core.errors import SpecError, UsageError, error_message
from spec_ray.worker import ERROR, FILE, Job, Message, messages


class WorkerError(SpecError):
    """A worker ended before its part was measured."""


@attrs.frozen(eq=False)
class Machine:
    """A node of the cluster. processors: of one task there."""

    id: str
    host: str
    processors: float


def run_parts(out: Path | None, flags: dict[str, Any], address: str | None) -> dict[str, Outcome]:
    """The parts of the comparison, by the name of their directory in ``out``.

    Raises UsageError, and WorkerError once every other worker has finished.
    """
    if out is None:
        raise UsageError("--executor ray needs --out DIR", hint="each machine gets a directory of its own in it")
    with cluster(address) as ray:
        machines = nodes(ray)
        parts = min(len(machines), number_of_contenders(flags)) or 1
        jobs = [Job(Shard(n, parts), flags, resume_results(out / name(n))) for n in range(parts)]
        with ThreadPoolExecutor(parts) as pool:
            running = [
                pool.submit(follow_job, ray, job, machine, out / name(n))
                for n, (job, machine) in enumerate(zip(jobs, machines, strict=False))
            ]
        failed = [error for future in running if (error := future.exception()) is not None]
    if failed:
        raise failed[0]
    return {name(n): recompute_outcome(read_results(out / name(n))) for n in range(parts)}


@contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """Ray, connected. Raises UsageError if it is not installed or does not answer."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise UsageError("--executor ray needs Ray", hint="pip install 'spec-core[ray]'") from error
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        place = address or "the default address"
        raise UsageError(f"no Ray cluster at {place}: {error_message(error)}", hint="ray start --head") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def nodes(ray: Any) -> list[Machine]:
    """The machines that can compute, in an order that does not depend on the session."""
    alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    machines = [Machine(node["NodeID"], node["NodeManagerHostname"], node["Resources"]["CPU"]) for node in alive]
    if not machines:
        raise UsageError("the Ray cluster has no machine with processors", hint="ray start --address=HEAD:PORT")
    return sorted(machines, key=lambda machine: (machine.host, machine.id))


def name(number: int) -> str:
    """The directory of a part."""
    return f"part-{number}"


def resume_results(folder: Path) -> bytes:
    """The results of a part up to its last finished lap; empty at the start. Removes what follows."""
    if not writing.has_header(folder):
        return b""
    end = read_results(folder).end
    try:
        os.truncate(folder / LAPS, end)
        return (folder / LAPS).read_bytes()
    except OSError as error:
        raise common.write_error(folder, error) from error


def follow_job(ray: Any, job: Job, machine: Machine, folder: Path) -> None:
    """Run a job on a machine, and write what it sends. Raises SpecError."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(machine.id, soft=False)
    options = {"num_cpus": machine.processors, "max_retries": 0, "scheduling_strategy": here}
    task = ray.remote(messages).options(num_returns="streaming", **options)
    try:
        for reference in task.remote(job):
            take_message(ray.get(reference), folder, machine)
    except ray.exceptions.RayError as error:
        raise WorkerError(
            f"the worker of {folder.name} on {machine.host} ended: {type(error).__name__}",
            hint=f"finished laps are in {folder}; the same command with the same --out continues there",
        ) from error
    common.print_note(f"{folder.name}: finished")


def take_message(message: Message, folder: Path, machine: Machine) -> None:
    """Write what a worker sent. Raises UsageError that names the machine."""
    kind, value = message
    if kind == ERROR:
        raise UsageError(f"{folder.name} on {machine.host}: {value[0]}", hint=value[1])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if kind == FILE:
            common.write_file(folder / value[0], value[1])
        else:
            with (folder / LAPS).open("ab") as file:
                file.write(value)
    except OSError as error:
        raise common.write_error(folder, error) from error
