"""Device, dtype, memory check, and the target from a config, weights and a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
import torch
from spec_kernels.model.executor import AUTO

from spec_core import TargetInfo, UsageError
from spec_core.toolkit import RecurrentSizes
from spec_targets.architectures.config import Config
from spec_targets.architectures.heads.checkpoint import HeadCheckpoint
from spec_targets.architectures.rotation import MAX_POSITIONS
from spec_targets.formats.collector import without_collection
from spec_targets.runtime.cache_reader import CacheReader
from spec_targets.runtime.checkpoint import Checkpoint
from spec_targets.runtime.next_token import NextnLayer
from spec_targets.runtime.plan import plan_model
from spec_targets.runtime.slot_memory import windowed_rows
from spec_targets.runtime.torch_target import RecurrentTarget, TorchTarget

if TYPE_CHECKING:
    from spec_targets.pictures.encoder import HfImageEncoder

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def make_target(
    checkpoint: Checkpoint,
    *,
    device: str = "auto",
    dtype: str = "auto",
    threads: int = 0,
    context: int = 0,
    kernels: str = AUTO,
    activations: str = AUTO,
    cache_dtype: str = AUTO,
    storage: bool | str = AUTO,
) -> TorchTarget:
    """A target ready to run, or with metadata only. Raises UsageError before memory is allocated.

    storage: False reads no weights; otherwise how they are kept, ``auto`` or ``q8_0``; True means ``auto``.
    """
    config, weights, tokenizer = checkpoint.config, checkpoint.weights, checkpoint.tokenizer
    config.check(weights.where)
    place = choose_device(device)
    kind = choose_dtype(dtype, place)
    settings = {"kernels": kernels, "activations": activations, "cache_dtype": cache_dtype}
    settings |= {} if isinstance(storage, bool) else {"weights": storage}
    plan = plan_model(config, weights, place, kind, settings, checkpoint.divisors, context)
    if storage is not False:
        plan.check_trunk()
    plan.check_memory()
    info = attrs.evolve(
        target_info(config, tokenizer, place, kind, context, weights.where),
        batch_device=plan.kind.batch_device,
        file=checkpoint.file,
        types=checkpoint.types,
        options=plan.options,
        kernels=plan.kind.describe_plan(plan.request),
        weight_bytes=plan.memory.weights,
        row_bytes=plan.memory.row,
        step_bytes=plan.memory.step,
        windowed=windowed_rows(plan.model, plan.memory, plan.memory.windowed),
        layer_max=dict(plan.kind.layer_max),
    )
    kind_of_target = RecurrentTarget if config.recurrent else TorchTarget
    target = kind_of_target(info, tokenizer, config, weights, plan, threads, notes=checkpoint.notes)
    target.stamps = checkpoint.stamps
    if config.nextn:
        target.next_token_layer = NextnLayer.of(config, weights, checkpoint.divisors, context)
    if plan.kind.shows_cache and config.cached and not config.latent:
        target.cache_reader = CacheReader(config)
    _show_pictures(target, checkpoint.image_encoder)
    return target if storage is False else target.read_weights()


@without_collection()
def load_checkpoint(
    checkpoint: Checkpoint | HeadCheckpoint, weights: bool | str, options: Mapping[str, Any]
) -> TorchTarget | HeadCheckpoint:
    """The model of opened files, or their draft head. weights: see ``storage`` of ``make_target``."""
    if isinstance(checkpoint, HeadCheckpoint):
        checkpoint.check_use(weights)
        return checkpoint
    return make_target(checkpoint, storage=weights, **options)


def _show_pictures(target: TorchTarget, encoder: HfImageEncoder | None) -> None:
    """Give eyes to a target whose file has them."""
    if encoder is None:
        return
    target.image_encoder = encoder
    target.tokenizer.wants_parts = "is string" not in (target.tokenizer.chat_template or "")


def target_info(
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
        rotation_base=config.rope_base if config.cached and not config.unrotated else None,
        norm_epsilon=config.eps,
    )


def recurrent(config: Config) -> RecurrentSizes | None:
    """Sizes for an owner of the recurrent state."""
    shape = config.state
    if shape is None or not config.recurrent:
        return None
    return RecurrentSizes(len(config.recurrent), shape.state_bytes, shape.record_bytes)


def choose_device(device: str) -> torch.device:
    """An available device. Raises UsageError."""
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
