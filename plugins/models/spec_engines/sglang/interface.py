"""All that this project knows of SGLang's insides, of the versions in ``spec_engines.sglang.KNOWN``.

SGLang's worker for n-gram drafts asks a table of n-grams for the tokens of every request, evaluates them with the
target's worker, and samples. ``Worker`` is that worker with the methods of this project in the table's place; drafts
are chains. So SGLang treats the algorithm as its own n-gram one, whose name it asks for at several places.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from sglang.srt.managers.overlap_utils import FutureMap
from sglang.srt.runtime_context import get_device, get_schedule, get_spec
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker
from sglang.srt.speculative.ngram_worker import NGRAMWorker
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo
from torch import Tensor

from spec_core import Request, Sampling
from spec_core.errors import UsageError
from spec_core.host import Host
from spec_engines.hosted.model import names_of
from spec_engines.hosted.requests import Requests, switch_fields
from spec_engines.sglang import ALGORITHM, DRAFT_MAX, config
from spec_engines.sglang.chains import Chains, Text
from spec_engines.sglang.model import SERVES, check_location, describe_model


class Algorithm(CustomSpecAlgo):
    """The algorithm among SGLang's: without keys and values of its own, and without a draft model, as n-grams."""

    def is_ngram(self) -> bool:
        return True

    def has_draft_kv(self) -> bool:
        return False

    def need_topk(self) -> bool:
        return False

    def carries_draft_hidden_states(self) -> bool:
        return False

    def create_future_map(self, device: Any, req_to_token_pool: Any, **needs: bool) -> FutureMap:
        """SGLang's map of results that are not known yet, which its own algorithms make in the same way."""
        return FutureMap(device, self, req_to_token_pool, **needs)

    def handle_server_args(self, server_args: Any) -> None:
        """Settings that the algorithm needs, where the user has left them open."""
        if server_args.speculative_num_draft_tokens is None:
            server_args.speculative_num_draft_tokens = DRAFT_MAX + 1
        server_args.speculative_num_steps = server_args.speculative_num_draft_tokens - 1
        server_args.speculative_eagle_topk = 1
        server_args.disable_overlap_schedule = True
        server_args.enable_mixed_chunk = False


def register_algorithm() -> None:
    """Add the algorithm to SGLang's table of them."""
    SpeculativeAlgorithm.register(ALGORITHM, validate_server_args=validate_arguments, spec_class=Algorithm)(
        lambda _: Worker
    )


def validate_arguments(server_args: Any) -> None:
    """Refuse what drafts of this project were not made for, before SGLang reads weights. Raises UsageError, Refused."""
    if server_args.pp_size > 1:
        raise UsageError(f"pp_size is {server_args.pp_size}; methods of spec-core run in one stage", hint="use tp_size")
    if server_args.enable_dp_attention:
        raise UsageError(
            "enable_dp_attention is on; SGLang's verification of such drafts does not support it", hint="leave it out"
        )
    check_location(server_args.model_path, config())


class Worker(NGRAMWorker):
    """SGLang's worker for n-gram drafts, with methods of this project in place of its table."""

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any) -> None:
        """As SGLang's own, without its table of n-grams. Starts the host: the target's weights are there."""
        BaseSpecWorker.__init__(self)
        spec, width = config(), get_spec().speculative_num_draft_tokens
        self.model_runner, self.page_size = target_worker.model_runner, get_schedule().page_size
        self._target_worker = Evaluating(target_worker)
        self.server_args, self.enable_overlap = server_args, False
        self.draft_token_num = self.speculative_num_draft_tokens = width
        self.topk, self.speculative_num_steps = 1, width - 1
        self.device, self.adaptive_controller, self.grammar_tree_host = get_device().device, None, None
        self._prev_decode_rids: set[str] = set()
        self.ngram_corpus = self
        settings = {"on_error": "isolate", **spec.get("settings", {}), "draft_max": width - 1}
        self.context = self.model_runner.model_config.context_len
        model = describe_model(server_args.model_path, context=self.context)
        host = Host(model, names_of(spec), SERVES, False, spec.get("plugins"), **settings)
        self.chains = Chains(Requests(host), width)
        self.rows: dict[str, Tensor] = {}
        self._target_worker.keeps = self.chains.requests.host.needs.logits
        self.model_runner.sample = Sampled(self.model_runner.sample, self._target_worker)

    def forward_batch_generation(self, batch: Any, *arguments: Any, **options: Any) -> Any:
        """A step of SGLang; its logits are kept for the next draft."""
        keys = [request.rid for request in batch.reqs]
        result = super().forward_batch_generation(batch, *arguments, **options)
        logits = self._target_worker.take()
        if logits is not None:
            self.rows |= dict(zip(keys, logits.view(len(keys), -1, logits.shape[-1]), strict=True))
        return result

    def _prepare_draft_tokens(self, batch: Any) -> tuple[np.ndarray, np.ndarray]:
        """Tokens [requests * width], and for each the tokens before it, bool [requests * width * width]."""
        texts = {request.rid: self._text(request) for request in batch.reqs}
        tokens = self.chains.step(texts, self.context)
        self.rows = {}
        chain = np.tril(np.ones((self.draft_token_num, self.draft_token_num), dtype=bool))
        return tokens.reshape(-1), np.tile(chain, (len(texts), 1, 1)).reshape(-1)

    def _text(self, request: Any) -> Text:
        tokens = [*request.origin_input_ids_unpadded, *request.output_ids]
        left = request.sampling_params.max_new_tokens
        budget = self.context if left is None else left - len(request.output_ids) + 1
        begin = lambda prompt: request_of(request.sampling_params, prompt, min(budget, self.context - len(prompt)))
        return Text(tokens, begin, self.rows.get(request.rid))

    def _update_ngram_corpus(self, batch: Any) -> None:
        """Do nothing: the next draft tells the host."""

    def erase_match_state(self, keys: list[str]) -> None:
        """Do nothing: the next draft tells the host."""

    def clear_cache_pool(self) -> None:
        """SGLang emptied its cache: no request runs."""
        self.chains.reset()
        self._prev_decode_rids = set()

    def spec_report(self) -> dict[str, Any]:
        """Statistics of all requests, with the names of a run."""
        return self.chains.requests.report()


class Evaluating:
    """The target's worker, whose logits are copied before SGLang changes them. keeps: whether they are."""

    def __init__(self, worker: Any) -> None:
        self._worker, self.keeps = worker, False
        self._logits: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)

    def forward_batch_generation(self, batch: Any, **options: Any) -> Any:
        """SGLang's forward; with drafts to verify it does not sample."""
        result = self._worker.forward_batch_generation(batch, **options)
        if options.get("is_verify"):
            self.see(result.logits_output.next_token_logits)
        return result

    def see(self, logits: Tensor) -> None:
        """Keep a copy of a step's logits."""
        if self.keeps:
            self._logits = logits.clone()

    def take(self) -> Tensor | None:
        """The logits of the last step, once."""
        logits, self._logits = self._logits, None
        return logits


@attrs.define(eq=False)
class Sampled:
    """``sample`` of a runner, which a prompt's last row goes through, and which changes logits."""

    original: Any
    worker: Evaluating

    def __call__(self, output: Any, batch: Any) -> Any:
        self.worker.see(output.next_token_logits)
        return self.original(output, batch)


def request_of(params: Any, prompt: list[int], tokens: int) -> Request:
    """A request of SGLang as plugins see it. Raises UsageError for unknown switches, in ``custom_params``."""
    return Request(
        prompt,
        max_tokens=max(1, tokens),
        sampling=sampling_of(params),
        seed=int(params.sampling_seed or 0) % 2**64,
        ignore_eos=True,  # SGLang ends texts
        **switch_fields(params.custom_params),
    )


def sampling_of(params: Any) -> Sampling:
    """SGLang's sampling parameters that plugins of this project know. It says greedy as a top_k of 1."""
    top_k = 0 if params.top_k >= 1 << 30 else max(0, params.top_k)
    values = {name: getattr(params, name) for name in Sampling.NAMES} | {"top_k": top_k}
    return Sampling(**(values | {"temperature": 0.0, "top_k": 0} if top_k == 1 else values))
