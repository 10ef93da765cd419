"""The parts of SGLang that the adapter imports, for tests: a scheduler, and its worker for n-gram drafts, greedily.

Written after the sources of SGLang 0.5.23. A model of this project is the target.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from spec_core import Needs, Target
from spec_core.toolkit import evaluate

CONTEXT = 128
EVERY = 1 << 30
"""SGLang's top_k that cuts nothing."""


class BaseSpecWorker:
    @property
    def target_worker(self) -> Any:
        return self._target_worker


class NGRAMWorker(BaseSpecWorker):
    """Drafts, evaluates, accepts what the likeliest tokens say, as SGLang's worker in its synchronous form."""

    def forward_batch_generation(self, batch: Any, on_publish: Any = None, pp_proxy_tensors: Any = None) -> Any:
        if not batch.decodes:
            result = self.target_worker.forward_batch_generation(batch, pp_proxy_tensors=pp_proxy_tensors)
            return [[int(token)] for token in result.next_token_ids]
        width, count = self.draft_token_num, len(batch.reqs)
        tokens, mask = self._prepare_draft_tokens(batch)
        assert tokens.dtype == np.int64 and mask.dtype == bool
        assert (mask.reshape(count, width, width) == np.tril(np.ones((width, width), bool))).all()
        batch.input_ids = torch.from_numpy(tokens)
        result = self.target_worker.forward_batch_generation(batch, pp_proxy_tensors=pp_proxy_tensors, is_verify=True)
        logits = result.logits_output.next_token_logits.view(count, width, -1)
        best = logits.argmax(-1).tolist()
        logits.fill_(float("nan"))  # as a sampler that works in place
        accepted = [follow(chain, row) for chain, row in zip(tokens.reshape(count, width).tolist(), best, strict=True)]
        self._update_ngram_corpus(batch)
        self.ngram_corpus.erase_match_state([])
        return accepted


def follow(chain: list[int], best: list[int]) -> list[int]:
    """The accepted tokens and the one after them. chain: a request's last token and its drafts."""
    tokens = [best[0]]
    for at, drafted in enumerate(chain[1:], 1):
        if tokens[-1] != drafted:
            break
        tokens.append(best[at])
    return tokens


class TargetWorker:
    """The target's worker: whole texts are evaluated for every step."""

    def __init__(self, target: Target) -> None:
        self.target, self.model_runner = target, Runner()

    def forward_batch_generation(self, batch: Any, pp_proxy_tensors: Any = None, is_verify: bool = False) -> Any:
        chains = batch.input_ids.view(len(batch.reqs), -1).tolist() if is_verify else [None] * len(batch.reqs)
        rows = [self._rows(request, chain) for request, chain in zip(batch.reqs, chains, strict=True)]
        output = SimpleNamespace(next_token_logits=torch.cat(rows))
        sampled = None if is_verify else self.model_runner.sample(output, batch)
        return SimpleNamespace(logits_output=output, next_token_ids=sampled)

    def _rows(self, request: Any, chain: list[int] | None) -> Tensor:
        text = [*request.origin_input_ids_unpadded, *request.output_ids]
        if chain is None:
            return evaluate(self.target, text, Needs()).logits[-1:].clone()
        assert chain[0] == text[-1]
        return evaluate(self.target, [*text[:-1], *chain], Needs(all_logits=True)).logits[-len(chain) :].clone()


class Runner:
    """The target's runner."""

    model_config = SimpleNamespace(context_len=CONTEXT)

    def sample(self, output: Any, batch: Any) -> Tensor:
        best = output.next_token_logits.argmax(-1)
        output.next_token_logits.fill_(float("nan"))
        return best


class Registered:
    """SGLang's table of algorithms."""

    algorithms: dict[str, Any] = {}  # noqa: RUF012

    @classmethod
    def register(cls, name: str, *, supports_overlap: bool = False, validate_server_args: Any, spec_class: type) -> Any:
        def decorator(factory: Any) -> Any:
            cls.algorithms[name] = spec_class(name, factory, validate_server_args)
            return factory

        return decorator


class CustomSpecAlgo:
    def __init__(self, name: str, factory: Any, validate_server_args: Any) -> None:
        self.name, self.factory, self.validate_server_args = name, factory, validate_server_args

    def is_ngram(self) -> bool:
        return False


class FutureMap:
    def __init__(self, device: Any, spec_algo: Any, req_to_token_pool: Any, **needs: bool) -> None:
        self.spec_algo, self.needs = spec_algo, needs


def server_args(model: str, **more: Any) -> SimpleNamespace:
    """Arguments of a server, as they reach an algorithm."""
    defaults = {"pp_size": 1, "enable_dp_attention": False, "speculative_num_draft_tokens": None, "model_path": model}
    return SimpleNamespace(**defaults | more)


def request(key: str, prompt: list[int], tokens: int = 24, **more: Any) -> SimpleNamespace:
    """A request of a scheduler."""
    params = {"max_new_tokens": tokens, "sampling_seed": None, "custom_params": None, "temperature": 1.0, "top_k": 1}
    params |= {"top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0} | dict.fromkeys(PENALTIES, 0.0) | more
    return SimpleNamespace(
        rid=key, origin_input_ids_unpadded=prompt, output_ids=[], sampling_params=SimpleNamespace(**params)
    )


PENALTIES = ("presence_penalty", "frequency_penalty")


def serve(worker: Any, requests: Iterable[Any]) -> list[list[int]]:
    """The texts of requests: all prompts in one step, then steps of all that run."""
    requests = list(requests)
    decodes = False
    while running := [r for r in requests if len(r.output_ids) < r.sampling_params.max_new_tokens]:
        batch = SimpleNamespace(reqs=running, decodes=decodes)
        for one, tokens in zip(running, worker.forward_batch_generation(batch), strict=True):
            room = one.sampling_params.max_new_tokens - len(one.output_ids)
            one.output_ids += tokens[:room]
        decodes = True
    return [r.output_ids for r in requests]


def install(monkeypatch: pytest.MonkeyPatch, width: int | None = None) -> type[Registered]:
    """Make the adapter import these parts; returns the table of algorithms. width: rows of a request in a step."""
    spec = SimpleNamespace(speculative_num_draft_tokens=width)
    parts: dict[str, dict[str, Any]] = {
        "sglang": {},
        "sglang.srt.managers.overlap_utils": {"FutureMap": FutureMap},
        "sglang.srt.runtime_context": {
            "get_device": lambda: SimpleNamespace(device="cpu"),
            "get_schedule": lambda: SimpleNamespace(page_size=1),
            "get_spec": lambda: spec,
        },
        "sglang.srt.speculative.base_spec_worker": {"BaseSpecWorker": BaseSpecWorker},
        "sglang.srt.speculative.ngram_worker": {"NGRAMWorker": NGRAMWorker},
        "sglang.srt.speculative.spec_info": {"SpeculativeAlgorithm": Registered},
        "sglang.srt.speculative.spec_registry": {"CustomSpecAlgo": CustomSpecAlgo},
    }
    for name, members in parts.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "spec_engines.sglang.interface", raising=False)
    monkeypatch.setattr("spec_engines.sglang.version", lambda package: "0.5.23")
    monkeypatch.setattr(Registered, "algorithms", {})
    return Registered
