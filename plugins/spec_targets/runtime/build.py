"""What executes a model: which of the executors, and with what."""

from __future__ import annotations

import attrs
import torch
from spec_kernels import native
from spec_kernels.model.build import Builder
from spec_kernels.model.reference import Reference
from spec_kernels.model.source import Only
from spec_kernels.native.executor import Native, Options
from spec_kernels.native.limits import misfit
from torch import Tensor

from spec_core.errors import UsageError, nearest
from spec_targets.runtime.config import Config
from spec_targets.runtime.weights import Weights, expected

Executor = Native | Reference
KERNELS = ("auto", "native", "reference")
WEIGHTS = ("auto", "q8_0")


@attrs.frozen
class Choice:
    """Settings of execution, by the names that users know. why: what made it ``kernels``; wish: what was asked for."""

    kernels: str = "auto"
    activations: str = "int15"
    cache_dtype: str = "float16"
    weights: str = "auto"
    why: str = ""
    wish: str = "auto"

    @property
    def native(self) -> bool:
        return self.kernels == "native"

    @property
    def said(self) -> str:
        """In words."""
        if not self.native:
            return f"reference ({self.why})"
        isa = native.instruction_sets()[0]
        return f"native ({isa}, activations {self.activations}, cache {self.cache_dtype}, weights {self.weights})"

    def options(self) -> dict[str, str]:
        """What was asked for, as another model is loaded to run alike."""
        given = {"kernels": self.wish, "activations": self.activations, "cache_dtype": self.cache_dtype}
        return {name: value for name, value in given.items() if value != getattr(Choice(), name)}


def choose(wish: Choice, config: Config, device: torch.device, dtype: torch.dtype, where: str) -> Choice:
    """What runs: native where it can, unless something else was asked for. Raises UsageError."""
    known = {"kernels": KERNELS, "activations": native.ACTIVATIONS, "cache_dtype": native.CACHES, "weights": WEIGHTS}
    for name, values in known.items():
        given = getattr(wish, name)
        if given not in values:
            raise UsageError(f"{name} {given!r} is not known", hint=f"give one of {nearest(str(given), values)}")
    wish = attrs.evolve(wish, wish=wish.kernels)
    why = "asked for" if wish.kernels == "reference" else unable(config, device, dtype)
    if why is None:
        return attrs.evolve(wish, kernels="native")
    if wish.kernels == "native":
        raise UsageError(f"{where}: kernels=native was asked for; {why}", hint="use kernels=auto, or change that")
    _check_unused(wish, why, str(dtype).removeprefix("torch."))
    return attrs.evolve(wish, kernels="reference", why=why)


def unable(config: Config, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why a model cannot run natively, in words."""
    if device.type != "cpu":
        return f"native kernels are for the CPU, this is {device}"
    if dtype != torch.float32:
        return f"native kernels compute in float32, dtype is {str(dtype).removeprefix('torch.')}"
    return native.problem() or misfit(config.block(False))


def _check_unused(wish: Choice, why: str, dtype: str) -> None:
    """A setting of native kernels that would do nothing is refused. The reference's cache has the model's dtype."""
    for field in attrs.fields(Choice):
        given, same = getattr(wish, field.name), field.name == "cache_dtype" and wish.cache_dtype == dtype
        if field.name not in ("kernels", "why", "wish") and given != field.default and not same:
            raise UsageError(
                f"{field.name}={given} is for native kernels, which do not run here: {why}",
                hint=f"leave {field.name} out",
            )


def executor(
    config: Config,
    weights: Weights,
    frequencies: tuple[Tensor, float],
    choice: Choice,
    dtype: torch.dtype,
    device: torch.device,
) -> Executor:
    """The trunk, ready to run. Only tensors whose shapes were checked are read."""
    source = Only(weights, expected(config, weights))
    model = Builder(config.block(weights.interleaved), source).decoder(config.layers, *frequencies)
    if choice.native:
        return Native(model, source, Options(choice.activations, choice.cache_dtype, choice.weights == "q8_0"))
    return Reference(model, source, dtype, device)


def said(choice: Choice, executor: Executor | None) -> str:
    """What runs, in words, with the weights that could not stay as they are stored."""
    if not isinstance(executor, Native) or not executor.arena.fallen:
        return choice.said
    counts = ", ".join(f"{count} of {both}" for both, count in sorted(executor.arena.fallen.items()))
    return f"{choice.said}; weights without a native form: {counts}"


def planned_bytes(shapes: dict[str, tuple[int, ...]], weights: Weights, choice: Choice, dtype: torch.dtype) -> int:
    """Memory of all weights, about: native ones stay as they are stored."""
    total = 0
    for name, shape in shapes.items():
        numbers = 1
        for size in shape:
            numbers *= size
        total += weights.nbytes(name) if choice.native and len(shape) > 1 else numbers * dtype.itemsize
    return total
