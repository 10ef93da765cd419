"""Methods inside vLLM: are texts equal to vLLM's alone, and is acceptance equal to this project's own loop?

``VLLM_PYTHON tests/campaigns/inside_vllm.py [-m zoo:pico] [--dtype float32] [--tensor-parallel 2] [--limit 13]``
``VLLM_PYTHON tests/campaigns/inside_vllm.py --temperature 0.8 --limit 5``
``VLLM_PYTHON tests/campaigns/inside_vllm.py -m random --tensor-parallel 2 --base-tensor-parallel 1 --limit 5``

A model of the zoo is written as a Hugging Face directory; ``random`` is a Llama with four heads, which two ranks share.
Each contender runs in a process of its own, greedily, or with a seed for each prompt and seed-coupled verification,
where plain decoding is a method whose drafts are off; one sequence at a time unless --sequences says otherwise, eager,
with one thread. Every first difference of a text is listed with the distance of the two best scores there, computed in
float32. The rate is tokens per second of CPU time of the whole process, after the engine has started; with more than
one rank it is not given.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

DRAFT_MAX = 8
METHODS = {
    "zoo:pico": [
        "ngram",
        "suffix",
        "recycling",
        "draft-model=zoo:pico-draft",
        "eagle3=zoo:pico-eagle3",
        "dflash=zoo:pico-dflash",
        "mtp=zoo:pico-hybrid",
        "dspark=random",
        "dflash2=random",
        "echo",
    ],
    "zoo:smollm2": ["ngram", "suffix", "recycling"],
    "random": ["ngram", "suffix", "recycling"],
}
"""The layer of pico-hybrid fits pico, which has the same sizes. random: a head with random weights, whose drafts are
rejected. echo: tests/out_of_tree/spec-echo, if installed.
"""
SWITCHES = {
    "prefix_caching": "reuse rows of earlier prompts",
    "async_scheduling": "schedule a step before the last one has ended; the second runner only",
    "filler": "evaluate every row of a draft, as with asynchronous scheduling; the second runner only",
}
OFF = "off"
"""Plain decoding with the noise of this project."""
OWN: dict[str, dict[str, Any]] = {
    "plain": {},
    "vllm-ngram": {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2},
    "vllm-suffix": {"method": "suffix"},
}


def main() -> None:
    args = arguments()
    if args.one:
        one(args)
        return
    args.directory = directory_of(args.model)
    base = args.base or (OFF if args.temperature else "plain")
    contenders = args.method or [*([] if args.temperature else list(OWN)[1:]), *METHODS[args.model]]
    with TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        first = argparse.Namespace(
            **vars(args) | {"tensor_parallel": args.base_tensor_parallel or args.tensor_parallel}
        )
        if difference := contender(base, first, out):
            report = Report(args, difference["texts"])
            print(json.dumps(report.row(base, difference) | {"ranks": first.tensor_parallel}), flush=True)
            for name in contenders:
                method = with_head(name)
                if difference := contender(method, args, out):
                    print(json.dumps(report.row(name, difference, method)), flush=True)


def with_head(name: str) -> str:
    """The method; for ``NAME=random`` with a new head for zoo:pico."""
    kind, _, file = name.partition("=")
    if file != "random":
        return name
    from tests.methods import heads

    heads.PATHS["pico"] = lambda: "zoo:pico"
    return f"{kind}:file={heads.method(kind, 'pico')[1]['file']},p_min=0"


def directory_of(model: str) -> str:
    """Written when it is asked for."""
    from tests.engines.models import four_heads
    from tests.support.hugging_face import directory

    return str(four_heads() if model == "random" else directory(model))


def arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", default="zoo:pico", choices=METHODS)
    parser.add_argument("--method", action="append", help="a method, vllm-ngram or vllm-suffix; repeat; default: all")
    parser.add_argument("--base", help="whose texts the others are compared with; default: plain decoding")
    parser.add_argument("--runner", default="first", choices=["first", "second"])
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--base-tensor-parallel", type=int, help="ranks of the base; default: those of the others")
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--limit", type=int, default=13, help="prompts of each of the four families")
    parser.add_argument("-n", type=int, default=128)
    for name, text in SWITCHES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    return parser.parse_args()


def contender(name: str, args: Any, out: Path) -> dict[str, Any] | None:
    """The texts of one contender, from a process of its own; None if it did not run."""
    words = ["--one", name, "--out", str(out), "--directory", args.directory, "-m", args.model]
    words += ["--dtype", args.dtype, "--tensor-parallel", str(args.tensor_parallel), "-n", str(args.n)]
    words += ["--sequences", str(args.sequences), "--limit", str(args.limit)]
    words += ["--temperature", str(args.temperature), "--runner", args.runner]
    words += [f"--{name.replace('_', '-')}" for name in SWITCHES if getattr(args, name)]
    several = args.tensor_parallel > 1
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(several)),
        "OMP_NUM_THREADS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_USE_V2_MODEL_RUNNER": str(int(args.runner == "second")),
    } | ({"VLLM_CPU_OMP_THREADS_BIND": "0|1"} if several else {})
    out.unlink(missing_ok=True)
    ran = subprocess.run(
        [sys.executable, __file__, *words], env=environment | dict(os.environ), capture_output=True, text=True
    )
    if ran.returncode or not out.exists():
        last = "\n".join((ran.stderr or ran.stdout).strip().splitlines()[-12:])
        print(json.dumps({"contender": name, "failed": last}), flush=True)
        return None
    return json.loads(out.read_text())


def one(args: Any) -> None:
    """Generate with one contender, and write its texts."""
    from spec_engines.vllm import options
    from vllm import LLM, SamplingParams

    if args.one in OWN:
        own = OWN[args.one]
        more: dict[str, Any] = {"speculative_config": own | {"num_speculative_tokens": DRAFT_MAX}} if own else {}
    else:
        method = "ngram" if args.one == OFF else args.one
        more = options([method], draft_max=DRAFT_MAX, coupled=bool(args.temperature), runner=args.runner)
        more["async_scheduling"] = args.async_scheduling
    if args.filler:
        evaluate_filler()
    model = LLM(
        args.directory,
        dtype=args.dtype,
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=args.sequences,
        enable_prefix_caching=args.prefix_caching,
        tensor_parallel_size=args.tensor_parallel,
        disable_log_stats=True,
        **more,
    )
    contents = [p.given for p in prompts(args)]
    switches = {"extra_args": {"spec_draft_max": 0}} if args.one == OFF else {}
    terms = [
        SamplingParams(temperature=args.temperature, seed=seed, max_tokens=args.n, **switches)
        for seed in range(len(contents))
    ]
    model.generate(contents[:1], SamplingParams(temperature=0, max_tokens=4), use_tqdm=False)
    began = process_time()
    texts = [list(generation.outputs[0].token_ids) for generation in model.generate(contents, terms, use_tqdm=False)]
    seconds = process_time() - began
    counts = {} if args.one in OWN else model.collective_rpc("spec_report")[0]
    Path(args.out).write_text(json.dumps({"texts": texts, "seconds": seconds, "counts": counts}))


def evaluate_filler() -> None:
    """Tell the scheduler that every draft has the whole width."""
    from spec_engines.vllm.second import Speculator
    from vllm.v1.outputs import DraftTokenIds

    def take_rows(self: Any) -> Any:
        return DraftTokenIds(self.keys, [[-1] * self.width for _ in self.keys])

    Speculator.take_drafts = take_rows


def prompts(args: Any) -> list[Any]:
    from spec_commands.prompts import read_prompt_file
    from spec_compare.measuring.prompt_source import choose_prompts
    from spec_zoo import HERE

    file = "prompts-200.jsonl"
    return choose_prompts(read_prompt_file(HERE / file), file, limit=args.limit)


class Report:
    """Rows for contenders on one model. plain: the texts that they are compared with."""

    def __init__(self, args: Any, plain: list[list[int]]) -> None:
        import attrs
        import torch

        from spec_core import load

        torch.set_num_threads(1)
        self.args, self.plain, self.prompts = args, plain, prompts(args)
        self.target = load(f"transformers:{args.directory}", dtype="float32", device="cpu")
        self.target.info = attrs.evolve(self.target.info, trees=False)  # as in vLLM

    def row(self, name: str, result: dict[str, Any], method: str | None = None) -> dict[str, Any]:
        """Columns of a contender. method: as it was given to vLLM; None: by its name."""
        args, texts = self.args, result["texts"]
        both = zip(range(len(texts)), self.prompts, self.plain, texts, strict=True)
        parted = [x for x in both if x[2] != x[3]]
        columns = {
            "model": args.model,
            "dtype": args.dtype,
            "temperature": args.temperature,
            "ranks": args.tensor_parallel,
            "runner": args.runner,
            **{name: True for name in SWITCHES if getattr(args, name)},
            "contender": name,
            "equal": f"{len(texts) - len(parted)} of {len(texts)}",
            "rate": round(sum(map(len, texts)) / result["seconds"], 1) if args.tensor_parallel == 1 else None,
            "differences": [difference(self.target, args.temperature, *x) for x in parted],
        }
        return columns | count_columns(result["counts"]) | ours(method or name, args, self.target, self.prompts)


def count_columns(counts: dict[str, Any]) -> dict[str, Any]:
    """Columns of the statistics of a contender: acceptance, and the milliseconds of a step that plugins took."""
    if not counts:
        return {}
    steps = counts["forwards"]["target"]
    return {
        "acceptance": round(counts["draft_acceptance"] or 0.0, 4),
        "tokens_per_step": round(counts["tokens_per_step"] or 0.0, 3),
        "plugin_us_per_step": round(1e6 * sum(counts["seconds"].values()) / steps, 1),
        "host_us_per_step": round(1e6 * (counts["adapter_seconds"] - sum(counts["seconds"].values())) / steps, 1),
    }


def ours(name: str, args: Any, target: Any, asked: list[Any]) -> dict[str, Any]:
    """The same method on the same model in this project's own loop, with chains, after the same first request."""
    from spec_core import Run

    if name in (OFF, *OWN) or args.dtype != "float32":
        return {}
    run = Run(target, [name], draft_max=DRAFT_MAX, nodes_max=DRAFT_MAX, max_sequences=1)
    assert run.generate(asked[0].given, max_tokens=4).result
    for seed, p in enumerate(asked):
        assert run.generate(p.given, max_tokens=args.n, temperature=args.temperature, seed=seed).result
    counts = run.stats.report()
    return {
        "own_acceptance": round(counts["draft_acceptance"] or 0.0, 4),
        "own_tokens_per_step": round(counts["tokens_per_step"] or 0.0, 3),
    }


def difference(
    target: Any, temperature: float, seed: int, prompt: Any, plain: list[int], other: list[int]
) -> dict[str, Any]:
    """The first difference of two texts, and the distance of the two best scores there."""
    from spec_commands.prompt import tokens_of

    from spec_core import Needs, Sampling
    from spec_core.toolkit import evaluate, gap

    at = next((i for i, (a, b) in enumerate(zip(plain, other, strict=False)) if a != b), min(len(plain), len(other)))
    text = tokens_of(prompt.given, target) + plain[:at]
    row = evaluate(target, text, Needs()).logits[-1]
    return {"prompt": prompt.id, "position": at, "gap": round(gap(row, Sampling(temperature=temperature), seed, at), 6)}


if __name__ == "__main__":
    main()
