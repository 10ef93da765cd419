"""The class that vLLM's first runner makes for ``custom_class``."""

from __future__ import annotations

from typing import Any

from spec_core.errors import UsageError
from spec_engines.vllm import WORKER, first
from spec_engines.vllm.drafter import Drafter


class Proposer(Drafter):
    """Methods of this project as a proposer of vLLM; the worker of this package gives it what it needs."""

    runner: Any = None

    def load_model(self, model: Any) -> None:
        """Start the host, as vLLM has loaded its model. Raises UsageError without the worker of this package."""
        if self.runner is None:
            raise UsageError(
                f"{type(self).__name__} was made by another worker than this project's",
                hint=f'set worker_cls="{WORKER}"; it tells requests, counts and hidden states to methods',
            )
        self.start(model)
        first.tap_layers(self.runner, self.requests.host.needs)

    def propose(self, sampled_token_ids: list[list[int]], *_: Any, **__: Any) -> list[list[int]]:
        """Return no drafts yet: the worker asks for them when the step is complete."""
        return [[] for _ in sampled_token_ids]
