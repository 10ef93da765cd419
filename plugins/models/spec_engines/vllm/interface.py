"""What this project knows of vLLM's insides apart from its runners, of the versions in ``spec_engines.vllm.KNOWN``.

``first`` and ``second`` know one runner each.
"""

from __future__ import annotations

from typing import Any

import attrs
from torch import Tensor
from vllm.config import ModelConfig
from vllm.distributed import tensor_model_parallel_all_gather
from vllm.distributed.parallel_state import get_tp_group
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.model_executor.model_loader.utils import get_model_cls
from vllm.model_executor.models.interfaces import supports_eagle3

from spec_core import Needs, Request, Sampling
from spec_core.errors import UsageError
from spec_core.host import Serves
from spec_engines.hosted.requests import switch_fields
from spec_engines.vllm import FIRST_METHOD, SECOND_METHOD, SECOND_RUNNER
from spec_engines.vllm.model import SERVES

METHODS = {False: FIRST_METHOD, True: SECOND_METHOD}
"""vLLM's name for the method, by whether the runner is the second one."""
GREEDY = 1e-5
"""vLLM takes the most likely token below this temperature."""


def spec_config_of(config: Any) -> dict[str, Any]:
    """``additional_config["spec"]``."""
    return dict((config.additional_config or {}).get("spec") or {})


def check_config(config: Any) -> None:
    """Refuse configurations that drafts of this project were not made for. Raises UsageError."""
    check_runner(config)
    parallel = config.parallel_config
    if parallel.pipeline_parallel_size > 1:
        raise UsageError(
            f"pipeline_parallel_size is {parallel.pipeline_parallel_size}; methods of spec-core run in one stage",
            hint="use tensor_parallel_size",
        )
    if config.use_v2_model_runner:
        check_second(config)
    elif config.scheduler_config.async_scheduling:
        raise UsageError(
            "async_scheduling is on; on vLLM's first runner methods of spec-core read the tokens of a step before the "
            "next one is scheduled",
            hint="set async_scheduling=False, or take the second runner",
        )


def check_runner(config: Any) -> None:
    """Refuse a runner that makes its drafter in another way than the configuration says. Raises UsageError."""
    method = None if config.speculative_config is None else config.speculative_config.method
    if method == (needed := METHODS[config.use_v2_model_runner]):
        return
    runner, value = ("second", 1) if config.use_v2_model_runner else ("first", 0)
    raise UsageError(
        f"vLLM runs its {runner} model runner with the method {method!r}; methods of spec-core are {needed!r} there",
        hint=f"take all of options(..., runner={runner!r}), or `spec vllm serve --model-runner {runner}`; "
        f"{SECOND_RUNNER} must not be {1 - value}",
    )


def check_second(config: Any) -> None:
    """Refuse what the second runner's sampler would do in addition to this project. Raises UsageError."""
    if config.watermark_config is not None:
        raise UsageError(
            "a watermark is configured; methods of spec-core were not tried with watermarks",
            hint="leave out the watermark or the methods",
        )
    parallel = config.parallel_config
    if parallel.prefill_context_parallel_size > 1:
        raise UsageError(
            f"prefill_context_parallel_size is {parallel.prefill_context_parallel_size}; methods of spec-core need all "
            "rows of a prompt on each rank",
            hint="use tensor_parallel_size",
        )
    if parallel.enable_batch_sharded_sampling:
        raise UsageError(
            "enable_batch_sharded_sampling is on; methods of spec-core need all requests of a step on each rank",
            hint="set enable_batch_sharded_sampling=False",
        )


def check_rows(config: Any, needs: Needs) -> None:
    """Refuse cached prefixes where plugins read every row of a prompt. Raises UsageError."""
    if config.cache_config.enable_prefix_caching and (needs.hidden or needs.final):
        raise UsageError(
            "a method reads hidden states of every token of a prompt; vLLM does not compute them for cached prefixes",
            hint="set enable_prefix_caching=False",
        )


def services_of(model: Any) -> Serves:
    """Services of vLLM for a model, from its class: hidden states between blocks need the interface for EAGLE-3.

    model: vLLM's configuration of it, or a directory. Raises UsageError for a directory that vLLM does not load.
    """
    config = config_of(model) if isinstance(model, str) else model
    return attrs.evolve(SERVES, hidden=supports_eagle3(get_model_cls(config)))


def config_of(directory: str) -> ModelConfig:
    """vLLM's configuration of a model. Raises UsageError where vLLM makes none."""
    try:
        return ModelConfig(model=directory)
    except ValueError as error:
        why = " ".join(line.strip() for line in str(error).splitlines())
        raise UsageError(f"vLLM does not load {directory}: {why}", hint="its log says more") from None


def check_sampler(config: Any) -> None:
    """Refuse changes of logits that seed-coupled verification would not see. Raises UsageError."""
    if config.model_config.logits_processors:
        raise UsageError(
            "coupled is on, and logits_processors are given; seed-coupled tokens are chosen before these run",
            hint="leave one of them out",
        )


def facts(config: Any) -> dict[str, Any]:
    """Fields of TargetInfo that vLLM decides."""
    return {
        "context": config.model_config.max_model_len,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "device": str(config.device_config.device),
    }


def draft_max(config: Any) -> int:
    """Longest draft that vLLM verifies."""
    return int(config.speculative_config.num_speculative_tokens)


class Matrices:
    """Embedding and output matrix of a model, whole if each rank has a part. All ranks ask for the same ones."""

    def __init__(self, model: Any) -> None:
        layers = [module for module in model.modules() if isinstance(module, VocabParallelEmbedding)]
        embeddings = [module for module in layers if not isinstance(module, ParallelLMHead)]
        heads = [module for module in layers if isinstance(module, ParallelLMHead)] or embeddings
        self.modules = {"token_embd.weight": embeddings[:1], "output.weight": heads[:1]}

    def __call__(self, name: str) -> Tensor:
        """[V, D]. Raises KeyError for other tensors, and where the model has no such module."""
        if not self.modules.get(name):
            raise KeyError(name)
        module = self.modules[name][0]
        weight = module.weight.detach()
        if get_tp_group().world_size > 1:
            weight = tensor_model_parallel_all_gather(weight.contiguous(), dim=0)
        return weight[: module.org_vocab_size]


def is_coupled(params: Any) -> bool:
    """Whether a request has a seed, samples, and asks for nothing that only vLLM's sampler does."""
    only = (params.allowed_token_ids, params.bad_words, params.min_tokens, params.logit_bias)
    asked = (params.logprobs, params.logprob_token_ids, params.thinking_token_budget)
    samples = params.seed is not None and params.temperature >= GREEDY
    return samples and not any(only) and all(what is None for what in asked)


def leads() -> bool:
    """Whether this rank runs the plugins."""
    return bool(get_tp_group().is_first_rank)


def request_of(state: Any, context: int) -> Request:
    """A request of vLLM as plugins see it. Raises UsageError if its prompt has no tokens, and for unknown switches."""
    params, prompt = state.sampling_params, state.prompt_token_ids
    if params is None or not prompt:
        raise UsageError("its prompt is not given as tokens", hint="give a text or token ids")
    return Request(
        list(prompt),
        max_tokens=min(params.max_tokens or context, context - len(prompt)),
        sampling=sampling_of(params),
        seed=seed_of(params),
        ignore_eos=True,  # vLLM ends texts
        **switch_fields(params.extra_args),
    )


def seed_of(params: Any) -> int:
    """Seed of a request; 0 without one: the seed of drafts, which do not change the distribution of texts."""
    return int(params.seed or 0) % 2**64


def sampling_of(params: Any) -> Sampling:
    """vLLM's sampling parameters that plugins of this project know. A top_k of -1 or 0 is off in both."""
    values = {name: getattr(params, name) for name in Sampling.NAMES}
    return Sampling(**{**values, "top_k": max(0, params.top_k)})


def platform_worker() -> type:
    """The worker class of this platform, as vLLM chooses it for ``worker_cls="auto"``."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm.v1.worker.cpu_worker import CPUWorker

        return CPUWorker
    from vllm.v1.worker.gpu_worker import Worker

    return Worker
