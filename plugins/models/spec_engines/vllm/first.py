"""vLLM's first model runner, of the versions in ``spec_engines.vllm.KNOWN``.

The runner's ``sample_tokens`` verifies drafts and asks a proposer for new ones. ``Drafting`` takes its place on one
runner: before it runs, it reads what the step evaluated; afterwards it tells the requests and sets the next drafts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import torch
from torch import Tensor

from spec_core import Needs, Request
from spec_core.host import sample_then_match
from spec_engines.hosted.requests import Requests, Share
from spec_engines.vllm.interface import is_coupled, leads, request_of, sampling_of, seed_of

NO_TOKEN = -1
"""Filler of vLLM after the tokens of a request that committed fewer than another one of its step."""


def tap_layers(runner: Any, needs: Needs) -> None:
    """Let the model return the hidden states that plugins read. Called between loading of model and its taps."""
    if not needs.hidden:
        return
    runner.use_aux_hidden_state_outputs = True
    runner._get_eagle3_aux_layers_from_config = lambda: tuple(sorted(needs.hidden))


@contextmanager
def replace_drafter() -> Iterator[None]:
    """Do nothing: a runner that is made meanwhile makes the class of its configuration."""
    yield


def drafter_of(runner: Any) -> Any:
    """The proposer of a runner."""
    return runner.drafter


def attach_drafter(runner: Any) -> None:
    """Let this runner ask its proposer for drafts with everything that it knows of a step; before it reads weights."""
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
