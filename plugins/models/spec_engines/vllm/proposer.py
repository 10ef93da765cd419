"""The class that vLLM makes for ``custom_class``: it describes the model, refuses, and loads the methods."""

from __future__ import annotations

from typing import Any

import attrs

from spec_core.errors import UsageError
from spec_core.host import Host, check
from spec_engines.hosted.requests import Requests
from spec_engines.vllm import WORKER, check_installed, interface
from spec_engines.vllm.metrics import Counters
from spec_engines.vllm.model import describe, names_of


class Proposer:
    """Methods of this project as a proposer of vLLM; the worker of this package gives it what it needs.

    methods: names of the methods; empty takes those in ``additional_config["spec"]["methods"]``.

    vLLM makes it before it reads the model's weights. Raises UsageError, Refused for what the methods need and do not
    get.
    """

    methods: tuple[str, ...] = ()

    def __init__(self, config: Any) -> None:
        check_installed()
        interface.check(config)
        self.config = config
        self.told = interface.spec_config_of(config)
        self.bare = describe(config.model_config.model, **interface.facts(config))
        self.serves = interface.serves(config.model_config)
        self.coupled = bool(self.told.get("coupled"))
        if self.coupled:
            interface.check_sampler(config)
        self.asked, self.given = names_of(self.told, self.methods), self.told.get("plugins")
        for plugin in check(self.bare, self.asked, self.serves, self.given):
            interface.check_rows(config, plugin.compat.needs)
        self.runner: Any = None
        self.requests: Requests

    def load_model(self, model: Any) -> None:
        """Start the host, as vLLM has loaded its model. Raises UsageError without the worker of this package."""
        if self.runner is None:
            raise UsageError(
                f"{type(self).__name__} was made by another worker than this project's",
                hint=f'set worker_cls="{WORKER}"; it tells requests, counts and hidden states to methods',
            )
        shared = attrs.evolve(self.bare, tensors=interface.Matrices(model))
        settings = {"on_error": "isolate", **self.told.get("settings", {})}
        settings["draft_max"] = interface.draft_max(self.config)
        host = Host(shared, self.asked, self.serves, self.coupled, self.given, **settings)
        self.requests = Requests(host, Counters.create())
        interface.tap(self.runner, host.needs)

    def propose(self, sampled_token_ids: list[list[int]], *_: Any, **__: Any) -> list[list[int]]:
        """Return no drafts yet: the worker asks for them when the step is complete."""
        return [[] for _ in sampled_token_ids]

    def report(self) -> dict[str, Any]:
        """Statistics of all requests, with the names of a run."""
        return self.requests.report()
