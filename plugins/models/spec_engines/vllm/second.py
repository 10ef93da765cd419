"""vLLM's second model runner (V2), of the versions in ``spec_engines.vllm.KNOWN``.

The runner makes its drafter with ``init_speculator``, by that name in its module, and asks it for drafts with
``propose``. ``replace_drafter`` puts ``Speculator`` in that place while one runner is made. Two callables of the runner
wrap vLLM's samplers, because these see the logits and decide how many tokens are kept.

Drafts lie on the device, in rows of one width. With synchronous scheduling the scheduler gets the length of each draft,
and no filler is evaluated. With asynchronous scheduling every request evaluates the whole width, and accepted filler is
dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import attrs
import torch
from torch import Tensor
from vllm.distributed.parallel_state import get_tp_group
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.worker.gpu import model_runner
from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

from spec_core import Request
from spec_core.errors import UsageError
from spec_core.host import sample_then_match
from spec_engines.hosted.requests import Share
from spec_engines.vllm.drafter import Drafter
from spec_engines.vllm.interface import draft_max, is_coupled, leads, request_of, sampling_of, seed_of

FILLER = 0
"""The token after a draft that is shorter than the width; the model must be able to read it."""
PROPOSE = (
    "input_batch",
    "attn_metadata",
    "slot_mappings",
    "last_hidden_states",
    "aux_hidden_states",
    "num_sampled",
    "dummy_run",
    "num_speculative_tokens",
)
"""Arguments of ``propose`` that are read here, in vLLM's order."""
RUNNER = ("sample", "take_draft_token_ids", "load_model")
"""Methods of the runner that ``attach_drafter`` or the worker relies on."""


@contextmanager
def replace_drafter() -> Iterator[None]:
    """Let a runner that is made meanwhile draft with methods of this project. Raises UsageError."""
    check_interface()
    original = model_runner.init_speculator
    model_runner.init_speculator = Speculator
    try:
        yield
    finally:
        model_runner.init_speculator = original


def check_interface() -> None:
    """Refuse another interface than the one that was read. Raises UsageError with what it lacks."""
    arguments = [name for name in signature(BaseSpeculator.propose).parameters if name in PROPOSE]
    lacks = [f"BaseSpeculator.propose({name})" for name in PROPOSE if name not in arguments]
    lacks += [
        f"GPUModelRunner.{name}" for name in RUNNER if not hasattr(getattr(model_runner, "GPUModelRunner", None), name)
    ]
    lacks += [] if hasattr(model_runner, "init_speculator") else ["model_runner.init_speculator"]
    if lacks or tuple(arguments) != PROPOSE:
        raise UsageError(
            f"vLLM's second model runner has another interface: {', '.join(lacks) or 'arguments in another order'}",
            hint="install a version of vLLM that is known, or take the first runner",
        )


def drafter_of(runner: Any) -> Any:
    """The drafter of a runner."""
    return runner.speculator


def attach_drafter(runner: Any) -> None:
    """Load the methods of this runner's drafter, and let it see each step; after the runner has read weights."""
    speculator = runner.speculator
    speculator.start(runner.model)
    if hidden := speculator.requests.host.needs.hidden:
        runner.model.set_aux_hidden_state_layers(tuple(sorted(hidden)))
        runner.use_aux_hidden_state_outputs = True
    runner.sampler = Judge(runner.sampler, speculator)
    runner.rejection_sampler = Judge(runner.rejection_sampler, speculator)
    runner.take_draft_token_ids = speculator.take_drafts


@attrs.define(eq=False)
class Judge:
    """A sampler of vLLM, of one token or of drafts, whose verdicts the drafter sees and corrects."""

    original: Any
    speculator: Speculator

    def __call__(self, logits: Tensor, batch: Any, *more: Any, **keywords: Any) -> Any:
        output = self.original(logits, batch, *more, **keywords)
        self.speculator.judge(logits, batch, output)
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


class Speculator(Drafter, BaseSpeculator):
    """Methods of this project as the drafter of a runner.

    states: vLLM's texts of running requests, on the device. admitted: vLLM's data of running requests, by their keys.
    drafts: the last draft of each. verdict, logits: of the step between sampling and drafting.
    """

    supports_mm_inputs = False
    draft_logits = None
    pcp_manager = None

    def __init__(self, config: Any, device: torch.device, states: Any) -> None:
        Drafter.__init__(self, config)
        self.device, self.states, self.width = device, states, draft_max(config)
        self.admitted: dict[str, Any] = {}
        self.drafts: dict[str, list[int]] = {}
        self.keys: list[str] = []
        self.verdict: Any = None
        self.logits: Tensor | None = None

    def init_cudagraph_manager(self, cudagraph_mode: Any) -> None:
        """Record no graphs: methods run outside of vLLM's."""

    def capture(self) -> None:
        """Record no graphs."""

    def update(self, finished: Iterable[str], admitted: Iterable[Any]) -> None:
        """Forget requests that finished; a request that vLLM takes up again has no draft."""
        finished = list(finished)
        super().update(finished, admitted)
        new = {one.req_id: one for one in admitted}
        for key in (*finished, *new):
            self.drafts.pop(key, None)
            self.admitted.pop(key, None)
        self.admitted |= new

    # between the forward and the end of sampling

    def judge(self, logits: Tensor, batch: Any, verdict: Any) -> None:
        """Keep what a step decided; choose tokens of requests with a seed, and drop filler that was accepted.

        logits: [requests and their drafts, V]. verdict: vLLM's SamplerOutput, which is changed.
        """
        self.verdict, self.logits = verdict, logits
        if self.warming:
            return
        if self.coupled:
            self._choose(logits, batch, verdict)
        drop_filler(batch, verdict, [self._checked_count(batch, i) for i in range(batch.num_reqs)])

    def _checked_count(self, batch: Any, i: int) -> int:
        """How many tokens of its draft a request evaluated; vLLM may evaluate fewer, or filler after them."""
        return min(draft_rows(batch, i), len(self.drafts.get(batch.req_ids[i], ())))

    def _choose(self, logits: Tensor, batch: Any, verdict: Any) -> None:
        """Write the tokens of seed-coupled verification; every rank chooses them from the same logits."""
        counts = verdict.num_sampled.tolist()
        for i, key in enumerate(batch.req_ids):
            state = self.admitted.get(key)
            if counts[i] and state is not None and state.prompt_token_ids and is_coupled(state.sampling_params):
                tokens = self._coupled_tokens(logits, batch, i, state)
                verdict.sampled_token_ids[i, : len(tokens)] = torch.tensor(tokens, device=self.device)
                verdict.num_sampled[i] = len(tokens)
                verdict.num_rejected[i] = 1 + draft_rows(batch, i) - len(tokens)

    def _coupled_tokens(self, logits: Tensor, batch: Any, i: int, state: Any) -> list[int]:
        row, checked = batch.cu_num_logits_np[i], self._checked_count(batch, i)
        slot, params = batch.idx_mapping_np[i], state.sampling_params
        text = self.states.all_token_ids.gpu[slot, : int(self.states.total_len.gpu[slot])].tolist()
        draft, prompt = self.drafts.get(batch.req_ids[i], [])[:checked], len(state.prompt_token_ids)
        return sample_then_match(
            logits[row : row + 1 + checked], draft, text, prompt, sampling_of(params), seed_of(params)
        )

    # after sampling

    def propose(
        self,
        input_batch: Any,
        attn_metadata: Any,
        slot_mappings: Any,
        last_hidden_states: Tensor,
        aux_hidden_states: list[Tensor] | None,
        *_: Any,
        dummy_run: bool = False,
        num_speculative_tokens: int | None = None,
        **__: Any,
    ) -> Tensor:
        """Drafts [requests, width] for the next step, int64, with filler after them.

        last_hidden_states: [rows, D]. aux_hidden_states: of the layers that ``attach_drafter`` asked for.
        """
        drafts: dict[str, list[int]] = {}
        self.keys = list(input_batch.req_ids)
        if not dummy_run and not self.warming:
            longest = self.width if num_speculative_tokens is None else num_speculative_tokens
            if leads():
                shares = list(self._shares(input_batch, last_hidden_states, aux_hidden_states))
                drafts = self.requests.step(shares, self._request, longest)
            drafts = share_drafts(drafts, self.keys, self.width, self.device)
            self.drafts |= {key: drafts.get(key, []) for key in self.keys}
            self.verdict = self.logits = None
        rows = [drafts.get(key, []) for key in self.keys]
        return torch.tensor([row + [FILLER] * (self.width - len(row)) for row in rows], device=self.device)

    def take_drafts(self) -> DraftTokenIds:
        """The drafts of the last step, for the scheduler, which evaluates a row for each token."""
        return DraftTokenIds(self.keys, [list(self.drafts.get(key, ())) for key in self.keys])

    def _request(self, key: str) -> Request:
        return request_of(self.admitted[key], self.config.model_config.max_model_len)

    def _shares(self, batch: Any, final: Tensor, aux: list[Tensor] | None) -> Iterator[Share]:
        """Every request with its rows. Waits for the device once."""
        needs, layers = self.requests.host.needs, aux or ()
        hidden = dict(zip(sorted(needs.hidden), layers, strict=bool(needs.hidden)))
        first, at = batch.query_start_loc_np, batch.cu_num_logits_np
        for i, (start, count, *tokens) in enumerate(facts_of(batch, self.verdict)):
            rows, checked = slice(int(first[i]), int(first[i + 1])), self._checked_count(batch, i)
            filler = draft_rows(batch, i) - checked
            rows = slice(rows.start, rows.stop - filler)
            yield Share(
                batch.req_ids[i],
                start,
                rows.stop - rows.start,
                checked,
                tuple(tokens[:count]),
                self.logits[at[i] : at[i] + 1 + checked] if needs.logits and self.logits is not None else None,
                {layer: states[rows] for layer, states in hidden.items()},
                final[rows] if needs.final else None,
            )


def draft_rows(batch: Any, i: int) -> int:
    """Draft rows of a request, with filler."""
    return int(batch.cu_num_logits_np[i + 1] - batch.cu_num_logits_np[i]) - 1


def drop_filler(batch: Any, verdict: Any, checked: list[int]) -> None:
    """Keep at most the tokens that were drafted and one more: a token in the place of filler is the target's own."""
    rows = [1 + draft_rows(batch, i) for i in range(len(checked))]
    if all(n == 1 + k for n, k in zip(rows, checked, strict=True)):
        return
    counts = verdict.num_sampled
    kept = torch.minimum(counts, 1 + torch.tensor(checked, dtype=counts.dtype, device=counts.device))
    verdict.num_rejected += counts - kept
    verdict.num_sampled = kept


def facts_of(batch: Any, verdict: Any) -> list[list[int]]:
    """Position of the first row, number of committed tokens, and sampled tokens, of every request."""
    n = batch.num_reqs
    starts = batch.positions[batch.query_start_loc[:n].long()]
    columns = [starts.long()[:, None], verdict.num_sampled.long()[:, None], verdict.sampled_token_ids.long()]
    rows: list[list[int]] = torch.cat(columns, 1).tolist()
    return rows


def share_drafts(
    drafts: dict[str, list[int]], keys: list[str], width: int, device: torch.device
) -> dict[str, list[int]]:
    """The drafts of rank 0, on every rank: each rank's runner keeps them on its own device."""
    group = get_tp_group()
    if group.world_size == 1:
        return drafts
    rows = [[len(draft), *draft, *[FILLER] * (width - len(draft))] for draft in (drafts.get(key, []) for key in keys)]
    agreed = group.broadcast(torch.tensor(rows, dtype=torch.int64, device=device), src=0).tolist()
    return {key: row[1 : 1 + row[0]] for key, row in zip(keys, agreed, strict=True)}
