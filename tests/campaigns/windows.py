"""Fuzz of layers with a window, which give rows back: every text is held against one whose rows were all kept.

    python tests/campaigns/windows.py                  # 1,000 requests over all families with windows
    python tests/campaigns/windows.py --requests 120
    python tests/campaigns/windows.py --only gemma3 --seed 7

Windows are shorter than prompts and than parts of prompts. Requests of a run repeat prompts, continue texts of earlier
ones, and begin like others, so that slots are continued, rewound, copied and given to another text and back; some are
cancelled. Drafts are chains and trees, of random parts of the target, of a draft model whose layers have windows too,
and of an assistant that reads the target's rows. Prints what was done; raises at the first difference.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import torch
from spec_kernels.model import kept_rows
from spec_kernels.model.kept_rows import KeptRows
from torch import Tensor

from spec_core import Request, Run, Sampling, Sequence, Target, load
from spec_core.toolkit import Overlay, cache_reader
from tests.campaigns.partial_forwards import PartialFuzzer
from tests.support.assistants import tiny_assistant, tiny_gemma4
from tests.support.family_models import FAMILIES, tiny_family

ROUND = 10
"""Requests of a run."""
FORMS: dict[str, dict[str, Any]] = {
    "float32": {"cache_dtype": "float32"},
    "float16": {"cache_dtype": "float16"},
    "q8": {"cache_dtype": "q8"},
    "reference": {"kernels": "reference"},
    "gpu": {"kernels": "gpu"},
}
SLOW = "reference", "gpu"
"""Executors that get short prompts; GPU kernels run on a device, or in triton's interpreter if ``--form gpu`` asks."""
CONTEXT = 420


@attrs.define(eq=False)
class WindowFuzzer(PartialFuzzer):
    """Runs parts of a target whose layers give rows back."""

    def overlay(self) -> Overlay | None:
        """Other weights of queries, where these have a matrix of their own."""
        return super().overlay() if self.target.has_tensor("blk.0.attn_q.weight") else None

    def evaluated_rows(self, seqs: Iterable[Sequence]) -> list[Tensor]:
        """Copies of the keys and values of the evaluated rows that the next row sees."""
        reader, tensors = cache_reader(self.target), []
        for seq in seqs:
            rows = reader.rows(seq, seq.evaluated)
            for block in range(self.target.info.layers):
                tensors += [tensor.clone() for tensor in rows.read(block, max(0, seq.evaluated - 9))]
        return tensors


@cache
def directory(family: str) -> Path:
    """A tiny model of a family with room for long texts."""
    return tiny_family(family, Path(tempfile.mkdtemp()) / family, max_position_embeddings=512)


def make_target(family: str, form: str) -> Target:
    """A target of a family, or the one that an assistant belongs to."""
    place = tiny_gemma4() if family == "assistant" else directory(family)
    context = 250 if family == "assistant" else CONTEXT
    return load(place, threads=1, dtype="float32", context=context, **FORMS[form])


def keeping_all(target: Any) -> Target:
    """The same target, whose layers with a window keep all rows."""
    memory = replace(target.plan.memory, windowed=0)
    return attrs.evolve(target, plan=attrs.evolve(target.plan, memory=memory))


def make_prompt(rng: random.Random, earlier: list[Any], longest: int) -> list[int]:
    """The next prompt: of a common text, a repeated one, or one that continues an earlier text."""
    kind = rng.random()
    if earlier and kind < 0.25:
        return list(rng.choice(earlier)[0])
    if earlier and kind < 0.5:
        prompt, text = rng.choice(earlier)
        more = [*text[: len(text) - rng.randint(0, 4)], *rng.choices(range(3, 200), k=rng.randint(1, 30))]
        return more if len(prompt) < len(more) < longest else list(prompt)
    common = random.Random(f"common {rng.randint(0, 1)}").choices(range(3, 200), k=longest)
    return [*common[: rng.randint(1, longest)], *rng.choices(range(3, 200), k=rng.randint(0, 3))]


def make_requests(target: Target, rng: random.Random, longest: int) -> tuple[list[Request], dict[str, list[int]]]:
    """Requests of a run, and the plain text of each."""
    requests: list[Request] = []
    plain: dict[str, list[int]] = {}
    earlier: list[Any] = []
    for number in range(ROUND):
        prompt = make_prompt(rng, earlier, longest)
        request = Request(
            prompt,
            max_tokens=rng.choice([rng.randint(1, 20), 85]),
            sampling=Sampling(temperature=rng.choice([0.0, 0.8])),
            seed=number,
            ignore_eos=rng.random() < 0.7,
            name=str(number),
        )
        with Run(target, reuse=False) as run:
            plain[request.name] = run.generate(request).result.tokens
        earlier.append((prompt, [*prompt, *plain[request.name]]))
        requests.append(request)
    return requests, plain


def make_methods(family: str, fuzzer: WindowFuzzer, rng: random.Random) -> list[Any]:
    """Random drafts, or a draft model, or an assistant."""
    if family == "assistant":
        return [("assistant", {"file": str(tiny_assistant())})]
    if rng.random() < 0.3:
        other = rng.choice(FAMILIES)
        return [("draft-model", {"file": str(directory(other)), "dtype": "float32", "p_min": 0.0})]
    return [fuzzer]


def make_settings(rng: random.Random) -> dict[str, Any]:
    return {
        "max_sequences": rng.choice([1, 2, 4]),
        "prefill_chunk": rng.choice([3, 64, 300]),
        "max_batched_tokens": rng.choice([40, 400]),
        "draft_max": rng.randint(1, 6),
        "cache_tokens": rng.choice([0, 1000, 5000]),
    }


def play_round(target: Any, family: str, seed: int, did: Counter[str]) -> None:
    """Run some requests. Raises AssertionError for a text that is not the one of a target that keeps all rows."""
    rng = random.Random(f"{family} {seed}")
    target.rewind = rng.choice([2, 20, 100])
    longest = 200 if target.plan.kind.name in SLOW else target.info.context - 90
    requests, plain = make_requests(keeping_all(target), rng, longest)
    texts = {request.name: [*request.prompt, *plain[request.name]] for request in requests}
    methods = make_methods(family, WindowFuzzer(texts, rng, did), rng)
    with Run(target, methods, **make_settings(rng)) as run:
        seqs, cancelled = submit_all(run, requests, rng, did)
        results = [run.take(seq) for seq in seqs]
    for request, seq, result in zip(requests, seqs, results, strict=True):
        whole = plain[request.name]
        expected = whole[: len(result.tokens)] if seq in cancelled else whole
        assert result.tokens == expected, f"{family}, round {seed}, {request.name}: {result.tokens} is not {expected}"
        did["requests"] += 1
        did["reused"] += seq.reused > 0
        did["cancelled"] += seq in cancelled and result.finish_reason == "cancelled"
        did["drafted"] += result.stats["drafted"]
        did["accepted"] += result.stats["accepted"]


def submit_all(
    run: Run, requests: list[Request], rng: random.Random, did: Counter[str]
) -> tuple[list[Sequence], set[Sequence]]:
    """Submit requests one after another while others run, and cancel some."""
    seqs: list[Sequence] = []
    cancelled: set[Sequence] = set()
    waiting = list(requests)
    while waiting or run.busy:
        while waiting and (not run.busy or rng.random() < 0.2):
            seqs.append(run.submit(waiting.pop(0)))
            if rng.random() < 0.1:
                cancelled.add(seqs[-1])
        run.step()
        for seq in run.running:
            count(seq.slot.state.cache, did)
            if seq in cancelled and rng.random() < 0.2:
                run.cancel(seq)
    return seqs, cancelled


def count(rows: KeptRows, did: Counter[str]) -> None:
    """Count steps in which a sequence has given rows back, and those with a copy of the rows of its prompt."""
    did["given back"] += rows.first > 0
    did["marked"] += rows.marked is not None


def choose_forms(family: str, form: str) -> list[str]:
    """Types of caches and executors of a family. form: the only one, empty: all of processors."""
    if form:
        return [form]
    return ["float32", "q8"] if family == "assistant" else [name for name in FORMS if name != "gpu"]


def play_all(requests: int, seed: int = 0, only: str = "", form: str = "") -> Counter[str]:
    """Play rounds of all families and forms, in turns."""
    torch.set_num_threads(1)
    kept_rows.AHEAD = 16
    whole = Counter[str]()
    cases = [(f, kind) for f in (*FAMILIES, "assistant") if only in f for kind in choose_forms(f, form)]
    make: Callable[[str, str], Target] = cache(make_target)
    for number in range(-(-requests // ROUND)):
        family, kind = cases[number % len(cases)]
        did = Counter[str]()
        play_round(make(family, kind), family, seed + number, did)
        whole += did
        print(f"{family} {kind}: {dict(did)}", flush=True)
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--form", default="", choices=FORMS, help="only this type of caches, or executor")
    parser.add_argument("--only", default="", help="families whose name contains this")
    options = parser.parse_args()
    whole = play_all(options.requests, options.seed, options.only, options.form)
    print(f"{whole['requests']} requests, all plain: {dict(whole)}")


if __name__ == "__main__":
    main()
