"""Batches inside vLLM: mixed requests, a method that fails, and the prefix cache, on one of its runners.

``VLLM_PYTHON tests/campaigns/vllm_batches.py [--runner second] [--async-scheduling] [--limit 3] [-n 64]``

zoo:pico in float32, four sequences at a time, one thread. On the CPU the first runner gets no sampled requests with
greedy ones, whose texts vLLM 0.32 then changes with its own ngram too, and whole prompts, because a seed fails in a
piece of a prompt there. Every case is an engine of its own in this process after the last one; one JSON line for each
kind of request says how many texts equal the same batch's without drafts. The process fails if a text differs, or a
case did not do what it is for.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

METHODS = ["ngram", "suffix", "recycling"]
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.8},
    "short": {"temperature": 0.0, "extra_args": {"spec_draft_max": 2}},
    "one method": {"temperature": 0.0, "extra_args": {"spec_methods": "suffix"}},
    "off": {"temperature": 0.0, "extra_args": {"spec_draft_max": 0}},
}
"""Requests that a batch mixes; every one has a seed."""
FAILS_AFTER = 20
"""Calls after which the method ``echo`` of the second case raises."""
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


def main() -> None:
    args = arguments()
    os.environ |= ENVIRONMENT
    failed = [*try_mixed(args), *try_failure(args), *try_cache(args)]
    for why in failed:
        print(why, file=sys.stderr)
    sys.exit(bool(failed))


def arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runner", default="first", choices=["first", "second"])
    parser.add_argument("--async-scheduling", action="store_true", help="the second runner only")
    parser.add_argument("--limit", type=int, default=3, help="prompts of each of the four families")
    parser.add_argument("-n", type=int, default=64)
    return parser.parse_args()


def try_mixed(args: Any) -> Iterator[str]:
    """Requests of all kinds in turn, seed-coupled where they sample."""
    kinds = [kind for kind in KINDS if args.runner == "second" or kind != "seeded"]
    contents = prompts(args)
    terms = [KINDS[kinds[i % len(kinds)]] for i in range(len(contents))]
    plain, drafting, report = both(args, METHODS, terms, coupled=True)
    for kind in kinds:
        which = [i for i in range(len(contents)) if kinds[i % len(kinds)] == kind]
        yield from compare(args, f"mixed: {kind}", [plain[i] for i in which], [drafting[i] for i in which], report)
    if report["switched_off"] or not report["accepted"]:
        yield f"mixed: switched off {report['switched_off']}, accepted {report['accepted']}"


def try_failure(args: Any) -> Iterator[str]:
    """A method raises in the middle of texts."""
    import spec_echo

    draft, calls = spec_echo.Echo.draft, []

    def raise_later(self: Any, step: Any) -> None:
        calls.append(1)
        if len(calls) > FAILS_AFTER:
            raise RuntimeError("a planted error")
        draft(self, step)

    raise_later.__dict__.update(draft.__dict__)
    spec_echo.Echo.draft = raise_later
    try:
        plain, drafting, report = both(args, ["echo"], [KINDS["greedy"]] * len(prompts(args)))
    finally:
        spec_echo.Echo.draft = draft
    yield from compare(args, "a method fails", plain, drafting, report)
    if "a planted error" not in str(report["switched_off"]):
        yield f"a method fails: switched off {report['switched_off']}"


def try_cache(args: Any) -> Iterator[str]:
    """The same prompts twice, with the prefix cache: the second time most rows come from it."""
    once = [KINDS["greedy"]] * len(prompts(args))
    plain, drafting, report = both(args, METHODS, once, twice=True, enable_prefix_caching=True)
    yield from compare(args, "prefix cache", plain, drafting, report)


def both(args: Any, methods: list[str], terms: list[dict[str, Any]], **more: Any) -> tuple[Any, Any, Any]:
    """Texts without drafts, texts with, and the report of the latter."""
    off = [one | {"extra_args": {"spec_draft_max": 0}} for one in terms]
    plain, _ = texts(args, methods, off, **more)
    return plain, *texts(args, methods, terms, **more)


def texts(
    args: Any, methods: list[str], terms: list[dict[str, Any]], coupled: bool = False, twice: bool = False, **more: Any
) -> tuple[list[list[int]], dict[str, Any]]:
    """The texts of a new engine, of every prompt with its terms, and the report of the methods."""
    from spec_engines.vllm import options
    from vllm import LLM, SamplingParams

    from tests.support.hugging_face import directory

    drafts = options(methods, coupled=coupled, runner=args.runner) | {"async_scheduling": args.async_scheduling}
    more = {"enable_prefix_caching": False} | more
    if args.runner == "second":
        more["max_num_batched_tokens"] = 64
    model = LLM(
        str(directory("zoo:pico")), dtype="float32", enforce_eager=True, max_model_len=1024, max_num_seqs=4,
        disable_log_stats=True, **more, **drafts,
    )  # fmt: skip
    params = [SamplingParams(max_tokens=args.n, seed=i, **one) for i, one in enumerate(terms)]
    for _ in range(1 + twice):
        answers = model.generate(prompts(args), params, use_tqdm=False)
    report: dict[str, Any] = model.collective_rpc("spec_report")[0]
    model.llm_engine.engine_core.shutdown()
    del model
    gc.collect()
    return [list(answer.outputs[0].token_ids) for answer in answers], report


def prompts(args: Any) -> list[Any]:
    from tests.campaigns.inside_vllm import prompts as choose

    return [p.given for p in choose(args)]


def compare(args: Any, case: str, plain: Any, drafting: Any, report: dict[str, Any]) -> Iterator[str]:
    """Print a line; yields what differs."""
    equal = sum(a == b for a, b in zip(plain, drafting, strict=True))
    columns = {"runner": args.runner, "async_scheduling": args.async_scheduling, "case": case}
    counts = {name: report[name] for name in ("drafted", "accepted", "switched_off")}
    print(json.dumps(columns | {"equal": f"{equal} of {len(plain)}"} | counts), flush=True)
    if equal < len(plain):
        yield f"{case}: {len(plain) - equal} texts differ"


if __name__ == "__main__":
    main()
