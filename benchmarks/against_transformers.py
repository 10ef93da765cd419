"""Comparison with transformers' generate on the same weights, in turns: plain, prompt lookup, assisted generation.

``python benchmarks/against_transformers.py [-m zoo:smollm2] [--limit 4] [-n 128] [-k 5]`` (extra ``[hf]``)

Both sides: greedy, one thread, the same constant draft length K, thresholds off, the same prompts and number of tokens,
prefill included; float32 arithmetic on the dequantised weights there, the native forward here. A prompt on which the
tokens of a pair differ is left out: the sides round differently, which may decide a near tie. Assisted generation is
compared if the model has a draft model. Complete measurements are written to benchmarks/results/transformers.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import attrs
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_commands.prompt import tokens_of
from spec_commands.prompts import read_prompt_file
from spec_compare.measuring.prompt_source import choose_prompts, shipped_file
from spec_targets.architectures.names import DECODER
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers import __version__ as version

from benchmarks.support.results import save
from benchmarks.support.tables import heading, row
from spec_core import Run, Target, load

MODELS = ("zoo:smollm2", "zoo:pico")
LIMIT, TOKENS = 4, 128
CLASSES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}
DENSE = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm")
DENSE += ("ffn_norm", "ffn_gate", "ffn_up", "ffn_down")


def in_transformers(target: Target) -> torch.nn.Module:
    """A target's dequantised weights as a transformers model."""
    c = target.config
    configuration, model_class = CLASSES[c.arch]
    model = model_class(
        configuration(
            vocab_size=c.vocab,
            hidden_size=c.width,
            intermediate_size=c.ff,
            num_hidden_layers=c.layers,
            num_attention_heads=c.heads,
            num_key_value_heads=c.kv_heads,
            head_dim=c.head,
            rms_norm_eps=c.eps,
            rope_theta=c.rope_base,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_base},
            max_position_embeddings=c.context,
            tie_word_embeddings=True,
        )
    ).eval()
    missing = set(model.load_state_dict(state(target), strict=False).missing_keys)
    assert missing <= {"lm_head.weight"}, missing
    model.tie_weights()
    return model


def state(target: Target) -> dict[str, Tensor]:
    """{name there: weight}, in float32."""
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    for i in range(target.config.layers):
        for part in DENSE:
            if not part.endswith(("q_norm", "k_norm")) or target.config.arch == "qwen3":
                names[f"model.layers.{i}.{DECODER[f'{part}.weight']}"] = f"blk.{i}.{part}.weight"
    return {there: halves(target, here).float() for there, here in names.items()}


def halves(target: Target, name: str) -> Tensor:
    """A weight. Rows of llama's q and k that are rotated together are adjacent in GGUF, d / 2 apart in transformers."""
    weight = target.tensor(name)
    if target.config.arch != "llama" or not name.endswith(("attn_q.weight", "attn_k.weight")):
        return weight
    half = target.config.head // 2
    return weight.view(-1, half, 2, weight.shape[-1]).transpose(1, 2).reshape(weight.shape)


def theirs(model: Qwen3ForCausalLM, n: int, **options: object) -> Callable[[list[int]], list[int]]:
    config = GenerationConfig(max_new_tokens=n, min_new_tokens=n, do_sample=False, pad_token_id=0, eos_token_id=None)

    def generate(prompt: list[int]) -> list[int]:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config, **options)
        return out[0, len(prompt) :].tolist()

    return generate


def ours(target: Target, methods: list, n: int, k: int) -> Callable[[list[int]], list[int]]:
    """One run for all prompts, as one model on the other side; no rows are reused between them."""
    run = Run(target, methods=methods, draft_max=k, reuse=False)
    return lambda prompt: run.generate(prompt, max_tokens=n, ignore_eos=True).result.tokens


Pair = tuple[Callable[[list[int]], list[int]], Callable[[list[int]], list[int]]]
"""Tokens after a prompt, here and there."""


def pairs(target: Target, n: int, k: int) -> dict[str, Pair]:
    model = in_transformers(target)
    fixed = {"p_min": 0.0, "draft_max": k}
    pairs_by_name: dict[str, Pair] = {
        "plain, generate": (ours(target, [], n, k), theirs(model, n)),
        "`ngram`, prompt lookup": (
            ours(target, [("ngram", {**fixed, "n_min": 2, "n_max": 2})], n, k),
            theirs(model, n, prompt_lookup_num_tokens=k),
        ),
    }
    draft = target.info.companions.get("draft-model")
    if draft is not None:
        assistant = in_transformers(load(draft, threads=1))
        assistant.generation_config.num_assistant_tokens = k
        assistant.generation_config.num_assistant_tokens_schedule = "constant"
        assistant.generation_config.assistant_confidence_threshold = 0.0
        assisted = theirs(model, n, assistant_model=assistant)
        pairs_by_name["`draft-model`, assisted"] = ours(target, [("draft-model", fixed)], n, k), assisted
    return pairs_by_name


@attrs.define
class Timed:
    """A pair on one prompt: seconds here and there, and whether the tokens are equal."""

    here: float
    there: float
    equal: bool


def time_call(generate: Callable, prompt: list[int]) -> tuple[list[int], float]:
    began = perf_counter()
    return generate(prompt), perf_counter() - began


def turn(pair: Pair, prompt: list[int], theirs_first: bool) -> Timed:
    order = (1, 0) if theirs_first else (0, 1)
    results = {which: time_call(pair[which], prompt) for which in order}
    (ours, here), (other, there) = results[0], results[1]
    return Timed(here, there, ours == other)


def measure_pairs(name: str, limit: int, n: int, k: int) -> dict[str, list[Timed]]:
    """{pair: measurements, one per prompt}."""
    target = load(name, threads=1)
    file = shipped_file([target])
    prompts = [tokens_of(p.given, target) for p in choose_prompts(read_prompt_file(file), file.name, limit=limit)]
    table = pairs(target, n, k)
    for pair in table.values():
        turn(pair, prompts[0], False)
    return {name: [turn(pair, p, i % 2 == 1) for i, p in enumerate(prompts)] for name, pair in table.items()}


def lines(timings: dict[str, list[Timed]], n: int) -> list[str]:
    """A table of pairs, over prompts with equal tokens."""
    columns = ["here, there", "equal texts", "tokens/s here", "tokens/s there", "ratio", "median of prompts"]
    shown = heading(columns)
    for name, turns in timings.items():
        same = [t for t in turns if t.equal]
        cells = [name, f"{len(same)} of {len(turns)}"]
        if same:
            here, there = sum(t.here for t in same), sum(t.there for t in same)
            rates = f"{n * len(same) / here:.1f}", f"{n * len(same) / there:.1f}"
            cells += [*rates, f"{there / here:.2f}", f"{statistics.median(t.there / t.here for t in same):.2f}"]
        shown.append(row([*cells, *[""] * (len(columns) - len(cells))]))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", choices=MODELS, action="append", help="the default is all")
    parser.add_argument("--limit", type=int, default=LIMIT, help="prompts of a family; fewer do not change the page")
    parser.add_argument("-n", type=int, default=TOKENS)
    parser.add_argument("-k", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tables = {}
    for model in args.model or MODELS:
        timings = measure_pairs(model, args.limit, args.n, args.k)
        about = f"transformers {version}, {args.n} tokens, draft length {args.k}, one thread."
        tables[f"transformers, {model.removeprefix('zoo:')}"] = [*lines(timings, args.n), "", about]
    for name, shown in tables.items():
        print("\n".join([name, *shown, ""]))
    if (args.limit, args.n) == (LIMIT, TOKENS):
        save("transformers", tables.get)


if __name__ == "__main__":
    main()
