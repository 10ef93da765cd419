"""All that this project knows of vLLM's insides, of the versions in ``spec_engines.vllm.KNOWN``.

The runner's ``sample_tokens`` verifies drafts and asks a proposer for new ones. ``Drafting`` takes its place on one
runner: before it runs, it reads what the step evaluated; afterwards it tells the requests and sets the next drafts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import torch
from torch import Tensor
from vllm.config import ModelConfig
from vllm.distributed import tensor_model_parallel_all_gather
from vllm.distributed.parallel_state import get_tp_group
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.model_executor.model_loader.utils import get_model_cls
from vllm.model_executor.models.interfaces import supports_eagle3

from spec_core import Needs, Request, Sampling
from spec_core.errors import UsageError
from spec_core.host import Serves, sample_then_match
from spec_engines.hosted.requests import Requests, Share, switch_fields
from spec_engines.vllm import check_runner
from spec_engines.vllm.model import SERVES

NO_TOKEN = -1
"""Filler of vLLM after the tokens of a request that committed fewer than another one of its step."""
GREEDY = 1e-5
"""vLLM takes the most likely token below this temperature."""


def spec_config_of(config: Any) -> dict[str, Any]:
    """``additional_config["spec"]``."""
    return dict((config.additional_config or {}).get("spec") or {})


def check(config: Any) -> None:
    """Refuse configurations that drafts of this project were not made for. Raises UsageError."""
    check_runner(config.use_v2_model_runner)
    parallel = config.parallel_config
    if parallel.pipeline_parallel_size > 1:
        raise UsageError(
            f"pipeline_parallel_size is {parallel.pipeline_parallel_size}; methods of spec-core run in one stage",
            hint="use tensor_parallel_size",
        )
    if config.scheduler_config.async_scheduling:
        raise UsageError(
            "async_scheduling is on; methods of spec-core read the tokens of a step before the next one is scheduled",
            hint="set async_scheduling=False",
        )


def check_rows(config: Any, needs: Needs) -> None:
    """Refuse cached prefixes where plugins read every row of a prompt. Raises UsageError."""
    if config.cache_config.enable_prefix_caching and (needs.hidden or needs.final):
        raise UsageError(
            "a method reads hidden states of every token of a prompt; vLLM does not compute those of cached prefixes",
            hint="set enable_prefix_caching=False",
        )


def serves(model: Any) -> Serves:
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


def tap(runner: Any, needs: Needs) -> None:
    """Let the model return the hidden states that plugins read. Called between loading of model and its taps."""
    if not needs.hidden:
        return
    runner.use_aux_hidden_state_outputs = True
    runner._get_eagle3_aux_layers_from_config = lambda: tuple(sorted(needs.hidden))


def attach(runner: Any) -> None:
    """Let this runner ask its proposer for drafts with everything that it knows of a step."""
    runner.drafter.runner = runner
    if runner.drafter.coupled:
        runner._sample = Choosing(runner, runner._sample)
    runner.sample_tokens = Drafting(runner, runner.sample_tokens)


@attrs.define(eq=False)
class Drafting:
    """``sample_tokens`` of a runner, with drafts of plugins for the next step.

    Only rank 0 asks plugins: the scheduler sends its drafts to all ranks.
    """

    runner: Any
    original: Any

    def __call__(self, grammar: Any) -> Any:
        requests: Requests = self.runner.drafter.requests
        read = None if self.runner.execute_model_state is None else Evaluated.of(self.runner, requests.host.needs)
        output = self.original(grammar)
        if read is None or not leads():
            return output
        sampled = dict(zip(output.req_ids, output.sampled_token_ids, strict=True))
        drafts = requests.step(list(read.shares(sampled)), self._request, self._longest(read.positions))
        self.runner._draft_token_ids = [drafts.get(key, []) for key in self.runner.input_batch.req_ids]
        return output

    def _longest(self, positions: int) -> int:
        """Max length of drafts; 0 near the longest text, where vLLM takes no drafts of any request."""
        n = self.runner.num_spec_tokens
        return n if positions + n <= self.runner.effective_drafter_max_model_len else 0

    def _request(self, key: str) -> Request:
        return request_of(self.runner.requests[key], self.runner.max_model_len)


@attrs.define(eq=False)
class Choosing:
    """``_sample`` of a runner, with the tokens of seed-coupled verification for requests with a seed.

    Every rank chooses, from the same logits.
    """

    runner: Any
    original: Any

    def __call__(self, logits: Tensor, drafted: Any) -> Any:
        chosen = dict(self._choices(logits, drafted))  # first, because the sampler changes the logits
        output = self.original(logits, drafted)
        for i, tokens in chosen.items():
            row = output.sampled_token_ids[i]
            row.fill_(NO_TOKEN)
            row[: len(tokens)] = torch.tensor(tokens, dtype=row.dtype)
        return output

    def _choices(self, logits: Tensor, drafted: Any) -> Iterator[tuple[int, list[int]]]:
        """(number in the batch, tokens). drafted: vLLM's metadata of the drafts that were verified, None without."""
        keys = self.runner.input_batch.req_ids
        counts = [0] * len(keys) if drafted is None else drafted.num_draft_tokens
        drafts = [] if drafted is None else drafted.draft_token_ids.tolist()
        row = at = 0
        for i, (key, n) in enumerate(zip(keys, counts, strict=True)):
            state = self.runner.requests[key]
            if state.prompt_token_ids and is_coupled(state.sampling_params):
                yield i, self._tokens(state, logits[row : row + 1 + n], drafts[at : at + n])
            row, at = row + 1 + n, at + n

    @staticmethod
    def _tokens(state: Any, logits: Tensor, draft: list[int]) -> list[int]:
        prompt, params = state.prompt_token_ids, state.sampling_params
        text = [*prompt, *state.output_token_ids]
        return sample_then_match(logits, draft, text, len(prompt), sampling_of(params), seed_of(params))


def is_coupled(params: Any) -> bool:
    """Whether a request has a seed, samples, and asks for nothing that only vLLM's sampler does."""
    only = (params.allowed_token_ids, params.bad_words, params.min_tokens, params.logit_bias)
    asked = (params.logprobs, params.logprob_token_ids, params.thinking_token_budget)
    samples = params.seed is not None and params.temperature >= GREEDY
    return samples and not any(only) and all(what is None for what in asked)


def leads() -> bool:
    """Whether this rank runs the plugins."""
    return bool(get_tp_group().is_first_rank)


@attrs.frozen(eq=False)
class Evaluated:
    """A step between forward and sampling. rows, checked, starts: of each request, in the order of the batch."""

    keys: list[str]
    starts: list[int]
    rows: list[int]
    checked: list[int]
    positions: int
    logits: Tensor | None
    hidden: dict[int, Tensor]
    final: Tensor | None

    @classmethod
    def of(cls, runner: Any, needs: Needs) -> Evaluated:
        """Logits are copied, because the sampler changes them."""
        state, keys = runner.execute_model_state, list(runner.input_batch.req_ids)
        scheduled = state.scheduler_output
        rows = [scheduled.num_scheduled_tokens[key] for key in keys]
        starts = runner.input_batch.num_computed_tokens_cpu[: len(keys)].tolist()
        return cls(
            keys,
            starts,
            rows,
            [len(scheduled.scheduled_spec_decode_tokens.get(key, ())) for key in keys],
            max((start + n for start, n in zip(starts, rows, strict=True)), default=0),
            state.logits.clone() if needs.logits else None,
            dict(zip(sorted(needs.hidden), state.aux_hidden_states or (), strict=bool(needs.hidden))),
            state.hidden_states if needs.final else None,
        )

    def shares(self, sampled: dict[str, list[int]]) -> Iterator[Share]:
        """Every request with its rows."""
        row = at = 0
        for key, start, n, checked in zip(self.keys, self.starts, self.rows, self.checked, strict=True):
            own_rows, chosen = slice(row, row + n), slice(at, at + 1 + checked)
            yield Share(
                key,
                start,
                n,
                checked,
                tuple(sampled[key]),
                None if self.logits is None else self.logits[chosen],
                {i: rows[own_rows] for i, rows in self.hidden.items()},
                None if self.final is None else self.final[own_rows],
            )
            row, at = own_rows.stop, chosen.stop


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
