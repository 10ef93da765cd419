"""The list of executors, and the choice of one."""

from __future__ import annotations

from dataclasses import replace

from spec_kernels.gpu.kind import GpuKind
from spec_kernels.model.executor import AUTO, ExecutorKind, ExecutorRequest
from spec_kernels.model.ops import Model
from spec_kernels.model.reference import Reference
from spec_kernels.native.executor import Native

EXECUTORS: list[ExecutorKind] = [Native, GpuKind(), Reference]
"""Every kind, the preferred ones of a device first."""


class ExecutorMisfit(ValueError):
    """No executor fits a request."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


def setting_values() -> dict[str, tuple[str, ...]]:
    """All values of ``kernels``, and of every setting of an executor."""
    values = {"kernels": (AUTO, *(kind.name for kind in EXECUTORS))}
    for kind in EXECUTORS:
        values |= {name: (*values.get(name, ()), *known) for name, known in kind.settings.items()}
    return values


def choose_executor(model: Model, request: ExecutorRequest) -> tuple[ExecutorKind, ExecutorRequest]:
    """The requested kind, or the first of the list that can run the model on the device; the request has the reason.

    Reads no values of weights. Raises ExecutorMisfit if the requested kind cannot run it, or reads no setting of these.
    """
    named = request.kernels != AUTO
    problems: list[str] = []
    for kind in EXECUTORS:
        if kind.name != request.kernels if named else kind.device_type not in ("", request.device.type):
            continue
        problem = kind.problem(model, request)
        if problem is None:
            reason = "; ".join(problems) or ("requested" if named and not kind.device_type else "")
            _check_settings(kind, request, reason)
            return kind, replace(request, reason=reason)
        problems.append(problem)
    reasons = "; ".join(problems) or "there is none of that name"
    other = AUTO if named else EXECUTORS[-1].name
    raise ExecutorMisfit(
        f"kernels={request.kernels} was requested, but {reasons}", hint=f"use kernels={other}, or change that"
    )


def _check_settings(kind: ExecutorKind, request: ExecutorRequest, reason: str) -> None:
    """Refuse a setting that the kind does not read. The type of its cache is then that of the model."""
    for name, value in request.settings.items():
        if value == AUTO or name in kind.settings or (name == "cache_dtype" and value == request.dtype_name):
            continue
        readers = " and ".join(other.name for other in EXECUTORS if name in other.settings)
        why = reason or f"this runs on {kind.name} kernels"
        raise ExecutorMisfit(
            f"{name}={value} is for {readers} kernels, which are not used here: {why}", hint=f"leave {name} out"
        )
