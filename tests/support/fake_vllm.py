"""The parts of vLLM that the adapter imports, for tests where vLLM is not installed."""

from __future__ import annotations

import sys
from logging import getLogger
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import attrs
import pytest

ADAPTER = ("interface", "drafter", "first", "second", "proposer")


class Tapped:
    """The class of a model with vLLM's interface for EAGLE-3."""

    supports_eagle3 = True


class Untapped:
    """The class of a model without it."""


class BaseSpeculator:
    """The base of drafters of the second runner, with the arguments of 0.33."""

    num_query_per_req, num_extra_query_per_req = 1, 0

    def propose(
        self, input_batch, attn_metadata, slot_mappings, last_hidden_states, aux_hidden_states, num_sampled,
        num_rejected, last_sampled, next_prefill_tokens, temperature, seeds, dp_sync_state=None, dummy_run=False,
        skip_attn_for_dummy_run=False, mm_inputs=None, is_profile=False, num_speculative_tokens=None,
    ):  # fmt: skip
        """Drafts [requests, width]."""


class GPUModelRunner:
    """The second runner, which makes its drafter by the name in its module."""

    sample = take_draft_token_ids = load_model = None


class Ranks:
    """Ranks of tensor parallelism. others: what the first rank has, where this one is another."""

    def __init__(self, others: Any = None) -> None:
        self.others, self.is_first_rank = others, others is None
        self.world_size = 1 if others is None else 2

    def broadcast(self, rows: Any, src: int) -> Any:
        return self.others


@attrs.define
class DraftTokenIds:
    """Drafts for the scheduler."""

    req_ids: list[str]
    draft_token_ids: list[list[int]]


class ModelConfig:
    """A model's configuration. classes: {end of a directory's name: its class}; others are not known."""

    classes: ClassVar[dict[str, type]] = {}

    def __init__(self, model: str) -> None:
        kinds = [kind for end, kind in self.classes.items() if model.endswith(end)]
        if not kinds:
            raise ValueError(f"1 validation error\n  no architecture of {model} is known")
        self.model, self.kind = model, kinds[0]
        self.max_model_len, self.dtype, self.logits_processors = 128, "torch.float32", None


def config(
    model: str, methods: list[str], caching: bool = False, second: bool = False, **plugins: Any
) -> SimpleNamespace:
    """A configuration of the engine, as it reaches a drafter of the first or the second runner."""
    return SimpleNamespace(
        use_v2_model_runner=second,
        model_config=ModelConfig(model),
        additional_config={"spec": {"methods": methods, "plugins": plugins}},
        parallel_config=SimpleNamespace(
            pipeline_parallel_size=1, prefill_context_parallel_size=1, enable_batch_sharded_sampling=False
        ),
        scheduler_config=SimpleNamespace(async_scheduling=False),
        cache_config=SimpleNamespace(enable_prefix_caching=caching),
        device_config=SimpleNamespace(device="cpu"),
        speculative_config=SimpleNamespace(num_speculative_tokens=8, method="ngram_gpu" if second else "custom_class"),
        watermark_config=None,
    )


def install(monkeypatch: pytest.MonkeyPatch, release: str = "0.32.0", **classes: type) -> None:
    """Make the adapter import these parts, and know the models of these names."""
    ranks = Ranks()
    second = {"init_speculator": object(), "GPUModelRunner": GPUModelRunner}
    parts: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.config": {"ModelConfig": ModelConfig},
        "vllm.distributed": {"tensor_model_parallel_all_gather": None},
        "vllm.distributed.parallel_state": {"get_tp_group": lambda: ranks},
        "vllm.logger": {"init_logger": getLogger},
        "vllm.v1.outputs": {"DraftTokenIds": DraftTokenIds},
        "vllm.v1.worker.gpu": {"model_runner": SimpleNamespace(**second)},
        "vllm.v1.worker.gpu.spec_decode.speculator": {"BaseSpeculator": BaseSpeculator},
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
