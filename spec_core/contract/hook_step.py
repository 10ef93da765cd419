"""What the hooks of a plugin see of a step: one view for each hook, over one state.

A view has the names that its hook may use, and the names of all hooks. Nothing that a plugin does with it changes
a text: fields cannot be set, and containers and tensors that the core still reads are copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from spec_core.contract.batch import Batch, Part
from spec_core.contract.fields import write
from spec_core.contract.sealed import own_batch
from spec_core.contract.sequence import Sequence, end_with_error
from spec_core.contract.step import Step, error_of_request
from spec_core.contract.step_record import StepRecord
from spec_core.contract.target import Target
from spec_core.errors import PhaseError
from spec_core.sampling.noise import gumbel
from spec_core.sampling.reference import NoiseKey

HOOKS = ("draft", "accept", "rollback", "process")
"""In the order in which a step calls them."""
OVER = "this step is over: a step is valid until the process hook returns"


class HookStep:
    """What all hooks see of a step. A run has one view for each hook, and shows its steps in it one after the other."""

    __slots__ = ("_shown",)
    _shown: list[Step]  # one step, None between two of them; views of a run share it
    _hook: ClassVar[str] = ""

    def __init__(self, step: Step) -> None:
        write(self, "_shown", [step])

    def _writable(self, name: str) -> Step:
        """The step, for a call that writes to it; a view that a plugin kept raises PhaseError in another hook."""
        if (step := self._shown[0]) is None:
            raise PhaseError(OVER)
        if step.phase != self._hook:
            raise PhaseError(f"step.{name} belongs to the hook {self._hook!r}; this is {step.phase!r}")
        return step

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is read-only in hooks: only the core sets it")

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    if not TYPE_CHECKING:  # for a type checker the names of a view are all there are

        def __getattr__(self, name: str) -> Any:
            if self._shown[0] is None:
                raise PhaseError(OVER)
            if hooks := [repr(hook) for hook in HOOKS if hook != self._hook and name in names_of(hook)]:
                raise PhaseError(f"step.{name} belongs to the hook {' or '.join(hooks)}; this is {self._hook!r}")
            if name == "add":
                raise PhaseError("only the core adds sequences to a step")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    @property
    def target(self) -> Target:
        """The target of the run."""
        return self._shown[0].target

    @property
    def plugin(self) -> str:
        """The name of the calling plugin in the run."""
        return self._shown[0].plugin

    @property
    def phase(self) -> str:
        """The hook that runs now."""
        return self._shown[0].phase

    @property
    def number(self) -> int:
        """Number of steps that the run made before this one."""
        return self._shown[0].number

    @property
    def parts(self) -> list[Part]:
        """The sequences' shares of the step, in batch order."""
        return [*self._shown[0].parts]

    @property
    def absent(self) -> tuple[Sequence, ...]:
        """Running sequences without rows in this step."""
        return self._shown[0].absent

    def part(self, seq: Sequence) -> Part:
        """The sequence's share of this step. Raises KeyError for a sequence that has none."""
        return self._shown[0].part(seq)

    @property
    def batch(self) -> Batch | None:
        """Rows of the forward; None before it."""
        return own_batch(self._shown[0])

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods of the run, in the order in which they are called."""
        return self._shown[0].methods

    @property
    def trees(self) -> bool:
        """Whether drafts may branch."""
        return self._shown[0].trees

    @property
    def private(self) -> bool:
        """Whether the active rule uses noise that drafters cannot read."""
        return self._shown[0].private

    @property
    def drafting(self) -> bool:
        """Whether at least one sequence may draft."""
        return self._shown[0].drafting

    @property
    def constrained(self) -> bool:
        """Whether a constraint, or ``min_tokens``, limits the tokens of at least one sequence."""
        return self._shown[0].constrained

    @property
    def last_record(self) -> StepRecord | None:
        """What the last completed step took; None in the first."""
        return self._shown[0].last_record

    @property
    def seconds(self) -> Mapping[str, float]:
        """{hook.plugin, or "verify": seconds} in this step so far."""
        return {**self._shown[0].seconds}

    @property
    def priced(self) -> frozenset[str]:
        """Plugins that asked for a price that a controller had set, in this step so far."""
        return frozenset(self._shown[0].priced)

    def request_values(self, seq: Sequence) -> Mapping[str, Any]:
        """The request's own values for the calling plugin, by the names in its ``Compat(request_values=...)``.

        Each is what the plugin's check returned; a value that the request did not give is missing.
        """
        return self._shown[0].request_values(seq)

    def report_cost(self, forwards: int = 0, rows: int = 0) -> None:
        """Report forwards that the plugin ran itself, and their rows."""
        self._shown[0].report_cost(forwards, rows)


def names_of(hook: str) -> set[str]:
    """The names that the view of a hook has and not all views have."""
    queue, names = [HookStep], set[str]()
    while queue:
        view = queue.pop()
        queue += view.__subclasses__()
        if view._hook == hook:
            names.update(name for name in dir(view) if name[0] != "_")
    return names - {*dir(HookStep)}


class NoisyStep(HookStep):
    """A step whose hook reads the noise of drafted tokens."""

    __slots__ = ()

    def noise(self, seq: Sequence, i: int, branch: int = 0, ids: list[int] | Tensor | None = None) -> Tensor:
        """Gumbel noise [V] float64, or [n] for ``ids``, of the i-th token to be drafted (0: the next output token).

        The default rule uses the same noise, so ``argmax(log q + noise)`` is often the token that the target chooses.
        Under a rule with private noise, only drafters use this noise, and it is new in every step and for every
        request of the run: a rejected position must not be drawn again from the same numbers.

        The returned tensor is a copy. In ``rollback`` the positions still belong to this step's draft: a method that
        reads rows of logits there may choose from them with the noise of their positions.

        :param i: from 0. Tokens from the budget on are not drafted in this step.
        :param branch: in a tree, which node of its depth the token follows. Shared noise is the same for all nodes;
            private noise differs, since a rule may look below a node before it rejects it.
        :param ids: noise of these tokens only; a few are cheap, the whole vocabulary takes some hundred microseconds.
        """
        step = self._shown[0]
        if (i := index(i)) < 0:
            raise ValueError(f"noise was requested for drafted token {i}, the first is 0")
        source, t = step.drawing(seq, i, index(branch))
        seed, stream, domain = source
        if ids is not None and not isinstance(ids, Tensor):
            ids = torch.from_numpy(np.array(ids, dtype=np.int64))  # torch takes five times as long for a list
        return gumbel(seed, t, step.target.info.vocab if ids is None else ids, stream, domain)

    def drawing(self, seq: Sequence, i: int, branch: int = 0) -> tuple[NoiseKey, int]:
        """The key of ``noise(seq, i, branch)``: (seed, stream, domain), and its output position."""
        return self._shown[0].drawing(seq, i, branch)


class FailingStep(HookStep):
    """A step whose hook may end a sequence."""

    __slots__ = ()

    def fail(self, seq: Sequence, error: Exception) -> None:
        """End this sequence with an error and drop its slot. Emitted tokens are kept."""
        self._writable("fail")
        end_with_error(seq, error_of_request(seq, error))
