"""A stand-in for vLLM's second model runner: batches as it lays them out, and its calls in their order.

The model is a table of logits after each token. Requests are evaluated in chunks, and verified greedily or left to the
drafter; with ``filler`` every request evaluates the whole width, as with asynchronous scheduling.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import torch
from torch import Tensor


@attrs.define(eq=False)
class Job:
    """A request of the runner. rows: draft rows of the next step, with filler. computed: tokens that were evaluated."""

    slot: int
    prompt: list[int]
    limit: int
    text: list[int]
    computed: int = 0
    rows: list[int] = attrs.field(factory=list)


@attrs.define(eq=False)
class StandIn:
    """The runner. table: [V, V]. chunk: rows of prompts in a step. evaluated: rows of all steps."""

    speculator: Any
    table: Tensor
    filler: bool = False
    chunk: int = 4
    sampler: Any = None
    rejection_sampler: Any = None
    model: Any = None
    use_aux_hidden_state_outputs: bool = False
    take_draft_token_ids: Any = None
    evaluated: int = 0
    jobs: dict[str, Job] = attrs.field(factory=dict)
    finished: set[str] = attrs.field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.sampler = self.rejection_sampler = self.sample
        self.model = SimpleNamespace(modules=list, set_aux_hidden_state_layers=lambda layers: None)

    def run(self, prompts: dict[str, list[int]], n: int, **params: Any) -> dict[str, list[int]]:
        """Texts of n tokens."""
        texts: dict[str, list[int]] = {}
        admitted = [self.admit(key, prompt, n, params) for key, prompt in prompts.items()]
        while self.jobs:
            self.speculator.update(self.finished, admitted)
            self.finished, admitted = set(), []
            self.step()
            for key in [key for key, job in self.jobs.items() if len(job.text) >= len(job.prompt) + job.limit]:
                job = self.jobs.pop(key)
                texts[key] = job.text[len(job.prompt) :][: job.limit]
                self.finished.add(key)
        self.speculator.update(self.finished, [])
        return texts

    def admit(self, key: str, prompt: list[int], n: int, params: dict[str, Any]) -> Any:
        """vLLM's data of a new request."""
        slot = len(self.jobs)
        self.jobs[key] = Job(slot, prompt, n, list(prompt))
        terms = SimpleNamespace(**DEFAULTS | {"max_tokens": n} | params)
        return SimpleNamespace(req_id=key, prompt_token_ids=prompt, sampling_params=terms)

    def step(self) -> None:
        """Evaluate, sample, and draft."""
        tokens, batch = self.lay_out()
        self.evaluated += len(tokens)
        logits = self.table[tokens[batch.logits_indices]].clone()
        verdict = (self.rejection_sampler if any(len(j.rows) for j in self.jobs.values()) else self.sampler)(
            logits, batch
        )
        for i, (job, count) in enumerate(zip(self.jobs.values(), verdict.num_sampled.tolist(), strict=True)):
            rejected = int(verdict.num_rejected[i])
            job.computed += int(batch.query_start_loc_np[i + 1] - batch.query_start_loc_np[i]) - rejected
            job.text += verdict.sampled_token_ids[i, :count].tolist()
        states = tokens[:, None].float()
        ids = self.speculator.propose(batch, None, None, states, [10 * states], verdict.num_sampled)
        taken = self.take_draft_token_ids()
        for job, row, draft in zip(self.jobs.values(), ids.tolist(), taken.draft_token_ids, strict=True):
            decodes = job.computed >= len(job.prompt)
            job.rows = (row if self.filler else row[: len(draft)]) if decodes else []

    def lay_out(self) -> tuple[Tensor, Any]:
        """The tokens of a step, and vLLM's batch of it."""
        tokens: list[int] = []
        starts, cu, positions, states = [0], [0], [], self.speculator.states
        for job in self.jobs.values():
            states.all_token_ids.gpu[job.slot, : len(job.text)] = torch.tensor(job.text)
            states.total_len.gpu[job.slot] = len(job.text)
            fresh = job.text[job.computed :][: self.chunk] + job.rows
            positions += range(job.computed, job.computed + len(fresh))
            tokens += fresh
            starts.append(len(tokens))
            cu.append(cu[-1] + 1 + len(job.rows))
        ends = [
            i for at, n in zip(starts[1:], self.jobs.values(), strict=True) for i in range(at - 1 - len(n.rows), at)
        ]
        return torch.tensor(tokens), SimpleNamespace(
            req_ids=list(self.jobs),
            num_reqs=len(self.jobs),
            idx_mapping_np=[job.slot for job in self.jobs.values()],
            query_start_loc=torch.tensor(starts),
            query_start_loc_np=starts,
            cu_num_logits_np=cu,
            positions=torch.tensor(positions),
            logits_indices=torch.tensor(ends),
            input_ids=torch.tensor(tokens),
        )

    def sample(self, logits: Tensor, batch: Any) -> Any:
        """vLLM's greedy verification."""
        rows = []
        for i, job in enumerate(self.jobs.values()):
            best = logits[batch.cu_num_logits_np[i] : batch.cu_num_logits_np[i + 1]].argmax(-1).tolist()
            kept = next((k for k, (a, b) in enumerate(zip(job.rows, best, strict=False)) if a != b), len(job.rows))
            whole = batch.query_start_loc_np[i + 1] - batch.query_start_loc_np[i] + job.computed >= len(job.prompt)
            rows.append((best, kept + 1 if whole else 0, len(job.rows) - kept if whole else 0))
        width = 1 + max(len(job.rows) for job in self.jobs.values())
        return SimpleNamespace(
            sampled_token_ids=torch.tensor([best + [-1] * (width - len(best)) for best, _, _ in rows]),
            num_sampled=torch.tensor([count for _, count, _ in rows], dtype=torch.int32),
            num_rejected=torch.tensor([rejected for _, _, rejected in rows], dtype=torch.int32),
        )


DEFAULTS: dict[str, Any] = {
    "temperature": 0.0, "seed": None, "top_k": -1, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "logprobs": None, "logprob_token_ids": None, "min_tokens": 0,
    "allowed_token_ids": None, "bad_words": None, "logit_bias": None, "thinking_token_budget": None, "extra_args": None,
}  # fmt: skip
"""vLLM's sampling parameters of a request that says nothing."""


def states(requests: int, length: int = 256) -> Any:
    """vLLM's texts on the device."""
    return SimpleNamespace(
        all_token_ids=SimpleNamespace(gpu=torch.zeros(requests, length, dtype=torch.int32)),
        total_len=SimpleNamespace(gpu=torch.zeros(requests, dtype=torch.int32)),
    )
