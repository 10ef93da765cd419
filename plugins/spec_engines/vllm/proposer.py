"""The class that vLLM makes for ``custom_class``: it describes the model, refuses, and loads the methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from spec_core import TargetInfo, load
from spec_core.errors import UsageError
from spec_core.host import EngineModel, Host, Serves
from spec_engines.vllm import WORKER, check_installed, interface
from spec_engines.vllm.requests import Requests

SERVES = Serves(logits=True, hidden=True, final=True)
WHY = "vLLM multiplies rows in the shapes of a step, and libraries sum each shape in its own order"


class Proposer:
    """Methods of this project as a proposer of vLLM; the worker of this package gives it what it needs.

    methods: names of the methods; empty takes those in ``additional_config["spec"]["methods"]``.
    """

    methods: tuple[str, ...] = ()

    def __init__(self, config: Any) -> None:
        check_installed()
        interface.check(config)
        self.config = config
        self.told = interface.told_of(config)
        self.bare = describe(config.model_config.model, interface.facts(config))
        self.runner: Any = None
        self.requests: Requests

    def load_model(self, model: Any) -> None:
        """vLLM loaded its model. Raises UsageError, Refused for what the methods need and do not get."""
        if self.runner is None:
            raise UsageError(
                f"{type(self).__name__} was made by another worker than this project's",
                hint=f'set worker_cls="{WORKER}"; it tells requests, counts and hidden states to methods',
            )
        shared = attrs.evolve(self.bare, tensors=interface.Matrices(model))
        self.requests = Requests(host(shared, self.told, self.methods, self.config))
        needs = self.requests.host.needs
        interface.check_rows(self.config, needs)
        interface.tap(self.runner, needs)

    def propose(self, sampled_token_ids: list[list[int]], *_: Any, **__: Any) -> list[list[int]]:
        """No drafts yet: the worker asks for them when the step is complete."""
        return [[] for _ in sampled_token_ids]

    def report(self) -> dict[str, Any]:
        """Statistics of all requests, with the names of a run."""
        return self.requests.host.stats.report()


def describe(location: str, facts: dict[str, Any]) -> EngineModel:
    """The model from its metadata. facts: of TargetInfo, as the engine decided them. Raises UsageError."""
    if not Path(location).is_dir():
        raise UsageError(f"{location} is not a directory", hint="download the model and give its directory")
    read = load(f"transformers:{location}", weights=False, device="cpu", dtype="float32")
    info: TargetInfo = attrs.evolve(read.info, trees=False, exact="no", exact_why=WHY, **facts)
    return EngineModel(info, read.tokenizer)


def host(model: EngineModel, told: dict[str, Any], methods: tuple[str, ...], config: Any = None) -> Host:
    """The host of these methods. told: as ``spec_engines.vllm.options`` writes it. Raises UsageError, Refused."""
    named = [*(methods or told.get("methods", ())), *([told["control"]] if told.get("control") else [])]
    if not named:
        raise UsageError("no method was named", hint='give additional_config={"spec": {"methods": [...]}}')
    settings = {"on_error": "isolate", **told.get("settings", {})}
    if config is not None:
        settings["draft_max"] = config.speculative_config.num_speculative_tokens
    return Host(model, named, SERVES, plugin_settings=told.get("plugins"), **settings)
