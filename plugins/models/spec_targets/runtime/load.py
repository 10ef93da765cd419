"""Device, dtype, memory check, and the target from a config, weights and a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import torch
from spec_kernels.machine import free_bytes, trim
from spec_kernels.native import native_cache
from spec_kernels.native.activations import AUTO
from spec_kernels.native.executor import Native
from spec_kernels.native.limits import MAX_HEAD, MAX_INPUTS
from spec_kernels.ops.dispatch import missing

from spec_core import TargetInfo, UsageError
from spec_core.toolkit import RecurrentSizes, use_threads
from spec_targets.description.config import Config
from spec_targets.files.mapped import release
from spec_targets.runtime import build
from spec_targets.runtime.build import Executor, ExecutorOptions
from spec_targets.runtime.cache_reader import CacheReader
from spec_targets.runtime.next_token import NextnLayer
from spec_targets.runtime.probe import explain_inexact
from spec_targets.runtime.rotation import MAX_POSITIONS, tables
from spec_targets.runtime.thread_choice import choose_threads
from spec_targets.runtime.torch_target import RecurrentTarget, TorchTarget
from spec_targets.runtime.weights import Weights, check

DRAFTED_MAX = 256
"""Positions behind a text of full length, for drafts."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def make_target(
    config: Config,
    weights: Weights,
    tokenizer: Any,
    *,
    device: str = "auto",
    dtype: str = "auto",
    threads: int = 0,
    context: int = 0,
    kernels: str = "auto",
    activations: str = AUTO,
    cache_dtype: str = native_cache.AUTO,
    storage: bool | str = "auto",
    divisors: torch.Tensor | None = None,
    file: str = "",
    types: Mapping[str, int] | None = None,
    notes: tuple[str, ...] = (),
) -> TorchTarget:
    """A target ready to run, or with metadata only. Raises UsageError before memory is allocated.

    storage: False reads no weights; otherwise how they are kept, ``auto`` or ``q8_0``; True means ``auto``.
    file, types: facts for ``TargetInfo``. notes: for the user.
    """
    config.check(weights.where)
    if apart := config.nextn and weights.shape("blk.0.attn_norm.weight") is None:
        check_apart(weights.where, storage is not False)
    shapes = {} if apart else check(config, weights)
    place = choose_device(device)
    kind = choose_dtype(dtype, place)
    requested = ExecutorOptions(kernels, activations, cache_dtype, "auto" if isinstance(storage, bool) else storage)
    choice = build.choose(requested, config, weights, place, kind)
    size = build.planned_bytes(shapes, weights, choice, kind)
    check_memory(size + one_state(config), place, weights.where)
    info = describe(config, tokenizer, place, kind, context, weights.where)
    executor, thread_words = None, ""
    if storage is not False:
        if threads and place.type == "cpu":
            use_threads(threads)
        positions = (context or min(config.context, MAX_POSITIONS)) + DRAFTED_MAX
        executor = build.executor(
            config, weights, shapes, tables(config, divisors, context), choice, kind, place, positions
        )
        thread_words = choose_threads(threads, executor, size) if place.type == "cpu" and not choice.gpu else ""
        if choice.native:
            release()
            trim()
    info = attrs.evolve(
        info,
        batch_device="cpu" if choice.gpu else "",
        file=file,
        types=types or {},
        options=choice.options(),
        kernels=build.describe_executor(choice, executor),
        threads=thread_words,
        weight_bytes=size,
        row_bytes=row_bytes(config, executor, choice, kind),
        step_bytes=build.step_bytes(config, choice),
        layer_max=_layer_max(choice),
    )
    if executor is not None:
        info = with_exactness(info, explain_inexact(executor, config.context))
    layer = NextnLayer.of(config, weights, divisors, context) if config.nextn else None
    kind_of_target = RecurrentTarget if config.recurrent else TorchTarget
    reader = None if choice.gpu or config.latent or not config.cached else CacheReader(config)
    return kind_of_target(info, tokenizer, config, weights, executor, executor, layer, cache_reader=reader, notes=notes)


def _layer_max(choice: ExecutorOptions) -> dict[str, int]:
    """Limits of layers that run beside the target."""
    if choice.native:
        return {"head": MAX_HEAD, "inputs": MAX_INPUTS}
    return {"conv_taps": 0} if choice.gpu else {}


def with_exactness(info: TargetInfo, why: str | None) -> TargetInfo:
    """why: the reason why rows depend on their batch, None if they do not."""
    return attrs.evolve(info, exact="rows" if why is None else "no", exact_why=why or "")


def check_apart(where: str, weights_wanted: bool) -> None:
    if weights_wanted:
        raise UsageError(
            f"{where}: it has no trunk, only a NextN layer",
            hint="give it to a method that uses such a layer, with the model it belongs to",
        )


def describe(
    config: Config,
    tokenizer: Any,
    device: torch.device,
    dtype: torch.dtype,
    context: int,
    where: str,
) -> TargetInfo:
    if context > config.context:
        raise UsageError(
            f"{where}: context {context} was requested, the model declares {config.context}",
            hint="use a smaller context, or leave it out",
        )
    states = {"attention", "recurrent"} if config.recurrent else {"attention"}
    return TargetInfo(
        name=config.name,
        vocab=config.vocab,
        width=config.width,
        layers=config.layers,
        context=context or min(config.context, MAX_POSITIONS),
        states=frozenset(states),
        vocab_id=tokenizer.identity if tokenizer is not None else "",
        dtype=str(dtype).removeprefix("torch."),
        device=str(device),
        family=config.arch,
        bos=tokenizer.bos if tokenizer is not None else None,
        eog=tokenizer.eog if tokenizer is not None else frozenset(),
        recurrent=recurrent(config),
    )


def row_bytes(config: Config, executor: Executor | None, choice: ExecutorOptions, dtype: torch.dtype) -> int:
    """Bytes of one position in the caches of all layers; without an executor, of the largest type it may choose."""
    if not choice.native:
        return sum(shape.cached_numbers for shape in config.cached) * dtype.itemsize
    kind = executor.cache_type if isinstance(executor, Native) else native_cache.choose(choice.cache_dtype, bits=15)
    return sum(native_cache.place_bytes(kind, shape) for shape in config.cached)


def recurrent(config: Config) -> RecurrentSizes | None:
    """Sizes for an owner of the recurrent state."""
    shape = config.state
    if shape is None or not config.recurrent:
        return None
    return RecurrentSizes(len(config.recurrent), shape.state_bytes, shape.record_bytes)


def one_state(config: Config) -> int:
    """Bytes of the recurrent state of one sequence."""
    return len(config.recurrent) * config.state.state_bytes if config.state is not None else 0


def choose_device(device: str) -> torch.device:
    """An available device for which kernels exist. Raises UsageError."""
    chosen = _found(device)
    if missing(chosen):
        raise UsageError(
            f"{chosen} needs triton kernels, but triton is not installed",
            hint="pip install 'spec-core[triton]', or run with --device cpu",
        )
    return chosen


def _found(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"device {device!r} is unknown", hint="give cpu, cuda or cuda:N") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("device cuda was requested, but torch finds none", hint="run with --device cpu")
    if chosen.type == "cuda" and chosen.index is not None and chosen.index >= (count := torch.cuda.device_count()):
        hint = f"give one of {', '.join(f'cuda:{i}' for i in range(count))}"
        devices = "1 CUDA device" if count == 1 else f"{count} CUDA devices"
        raise UsageError(f"device {device} was requested, torch finds {devices}", hint=hint)
    if chosen.type not in ("cpu", "cuda"):
        raise UsageError(f"device {device!r} is not supported", hint="give cpu, cuda or cuda:N")
    return chosen


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r} is unknown", hint=f"give one of {', '.join(DTYPES)}")
    return DTYPES[dtype]


def check_memory(needed: int, device: torch.device, where: str) -> None:
    """Refuse a model that does not fit in memory, before anything is allocated."""
    free = free_bytes(str(device))
    if needed > free:
        raise UsageError(
            f"{where}: the weights need {needed >> 20} MiB, {free >> 20} MiB are free on {device}",
            hint="use a smaller model or dtype, or free memory",
        )
