"""The parts of vLLM that the adapter imports, for tests where vLLM is not installed."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

ADAPTER = ("interface", "proposer")


class Tapped:
    """The class of a model with vLLM's interface for EAGLE-3."""

    supports_eagle3 = True


class Untapped:
    """The class of a model without it."""


class ModelConfig:
    """A model's configuration. classes: {end of a directory's name: its class}; others are not known."""

    classes: ClassVar[dict[str, type]] = {}

    def __init__(self, model: str) -> None:
        kinds = [kind for end, kind in self.classes.items() if model.endswith(end)]
        if not kinds:
            raise ValueError(f"1 validation error\n  no architecture of {model} is known")
        self.model, self.kind = model, kinds[0]
        self.max_model_len, self.dtype, self.logits_processors = 128, "torch.float32", None


def config(model: str, methods: list[str], caching: bool = False, **plugins: Any) -> SimpleNamespace:
    """A configuration of the engine, as it reaches a proposer."""
    return SimpleNamespace(
        use_v2_model_runner=False,
        model_config=ModelConfig(model),
        additional_config={"spec": {"methods": methods, "plugins": plugins}},
        parallel_config=SimpleNamespace(pipeline_parallel_size=1),
        scheduler_config=SimpleNamespace(async_scheduling=False),
        cache_config=SimpleNamespace(enable_prefix_caching=caching),
        device_config=SimpleNamespace(device="cpu"),
        speculative_config=SimpleNamespace(num_speculative_tokens=8),
    )


def install(monkeypatch: pytest.MonkeyPatch, release: str = "0.32.0", **classes: type) -> None:
    """Make the adapter import these parts, and know the models of these names."""
    ranks = SimpleNamespace(world_size=1, is_first_rank=True)
    parts: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.config": {"ModelConfig": ModelConfig},
        "vllm.distributed": {"tensor_model_parallel_all_gather": None},
        "vllm.distributed.parallel_state": {"get_tp_group": lambda: ranks},
        "vllm.model_executor.layers.vocab_parallel_embedding": {
            "ParallelLMHead": type("ParallelLMHead", (), {}),
            "VocabParallelEmbedding": type("VocabParallelEmbedding", (), {}),
        },
        "vllm.model_executor.model_loader.utils": {"get_model_cls": lambda config: config.kind},
        "vllm.model_executor.models.interfaces": {"supports_eagle3": lambda kind: hasattr(kind, "supports_eagle3")},
    }
    for name, members in parts.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ADAPTER:
        monkeypatch.delitem(sys.modules, f"spec_engines.vllm.{name}", raising=False)
    monkeypatch.setattr("spec_engines.vllm.version", lambda package: release)
    monkeypatch.setattr(ModelConfig, "classes", classes)
