"""Methods of this project as a drafter of vLLM: described, refused, loaded. Both runners' drafters derive from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
from vllm.logger import init_logger

from spec_core.host import Host, check_methods
from spec_engines.hosted.requests import Requests
from spec_engines.vllm import check_installed, interface
from spec_engines.vllm.metrics import Counters
from spec_engines.vllm.model import describe_model, names_of

log = init_logger("vllm.spec_core")
"""vLLM shows its own loggers only."""


class Drafter:
    """Methods and their requests.

    methods: names of the methods; empty takes those in ``additional_config["spec"]["methods"]``. warming: vLLM tries
    its kernels with requests of its own, which are not drafted for.

    vLLM makes it before it reads the model's weights. Raises UsageError, Refused for what the methods need and do not
    get.
    """

    methods: tuple[str, ...] = ()
    warming = False

    def __init__(self, config: Any) -> None:
        check_installed()
        interface.check_config(config)
        self.config = config
        self.told = interface.spec_config_of(config)
        self.bare = describe_model(config.model_config.model, **interface.facts(config))
        self.serves = interface.services_of(config.model_config)
        self.coupled = bool(self.told.get("coupled"))
        if self.coupled:
            interface.check_sampler(config)
        self.asked, self.given = names_of(self.told, self.methods), self.told.get("plugins")
        for plugin in check_methods(self.bare, self.asked, self.serves, self.given):
            interface.check_rows(config, plugin.compat.needs)
        self.requests: Requests

    def start(self, model: Any) -> None:
        """Load the methods, as vLLM has loaded its model."""
        shared = attrs.evolve(self.bare, tensors=interface.Matrices(model))
        settings = {"on_error": "isolate", **self.told.get("settings", {})}
        settings["draft_max"] = interface.draft_max(self.config)
        host = Host(shared, self.asked, self.serves, self.coupled, self.given, **settings)
        self.requests = Requests(host, Counters.create())
        names = ", ".join(sorted(host.drafters))
        log.info("drafts in vLLM's %s model runner: %s", self.runner_name, names)

    @property
    def runner_name(self) -> str:
        """``first`` or ``second``."""
        return "second" if self.config.use_v2_model_runner else "first"

    def update(self, finished: Iterable[str], admitted: Iterable[Any]) -> None:
        """Forget requests that finished. admitted: vLLM's data of the beginning ones."""
        self.requests.end(finished)

    def report(self) -> dict[str, Any]:
        """Statistics of all requests, with the names of a run, and vLLM's runner."""
        return self.requests.report() | {"runner": self.runner_name}
