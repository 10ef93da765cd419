"""The same weights in transformers' generate, in one run, interleaved: plain, prompt lookup, assisted generation.

``python benchmarks/against_transformers.py [--limit 4] [-n 128] [-k 5]`` (extra ``[hf]``)

Both sides: greedy, float32, one thread, the same constant draft length K, thresholds off, the same prompts and number
of tokens, prefill included, and no number for a pair whose tokens differ.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from time import perf_counter

import torch
from spec_cli.prompts import read
from spec_compare.prompts import chosen
from spec_targets.hf.weights import BLOCK
from spec_zoo import PROMPTS
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from spec_core import Run, Target, load

DENSE = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm")
DENSE += ("ffn_norm", "ffn_gate", "ffn_up", "ffn_down")


def in_transformers(name: str) -> Qwen3ForCausalLM:
    """The zoo model with its dequantised weights as a transformers model."""
    target = load(name)
    c = target.config
    model = Qwen3ForCausalLM(
        Qwen3Config(
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
    state = {
        "model.embed_tokens.weight": target.tensor("token_embd.weight"),
        "model.norm.weight": target.tensor("output_norm.weight"),
    }
    for i in range(c.layers):
        for part in DENSE:
            state[f"model.layers.{i}.{BLOCK[f'{part}.weight']}"] = target.tensor(f"blk.{i}.{part}.weight")
    missing = set(model.load_state_dict({k: v.float() for k, v in state.items()}, strict=False).missing_keys)
    assert missing <= {"lm_head.weight"}, missing
    model.tie_weights()
    return model


def theirs(model: Qwen3ForCausalLM, n: int, **options: object) -> Callable[[list[int]], list[int]]:
    config = GenerationConfig(max_new_tokens=n, min_new_tokens=n, do_sample=False, pad_token_id=0, eos_token_id=None)

    def generate(prompt: list[int]) -> list[int]:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config, **options)
        return out[0, len(prompt) :].tolist()

    return generate


def ours(target: Target, methods: list, n: int, k: int) -> Callable[[list[int]], list[int]]:
    """One run serves all prompts, as one model does on the other side; no rows are reused between them."""
    run = Run(target, methods=methods, draft_max=k, reuse=False)
    return lambda prompt: run.generate(prompt, max_tokens=n, ignore_eos=True).result.tokens


def pairs(n: int, k: int) -> dict[str, tuple[Callable, Callable]]:
    target = load("zoo:pico")
    model, assistant = in_transformers("zoo:pico"), in_transformers("zoo:pico-draft")
    assistant.generation_config.num_assistant_tokens = k
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    assistant.generation_config.assistant_confidence_threshold = 0.0
    fixed = {"p_min": 0.0, "draft_max": k}
    return {
        "plain | generate": (ours(target, [], n, k), theirs(model, n)),
        "ngram | prompt lookup": (
            ours(target, [("ngram", {**fixed, "n_min": 2, "n_max": 2})], n, k),
            theirs(model, n, prompt_lookup_num_tokens=k),
        ),
        "draft-model | assisted": (
            ours(target, [("draft-model", fixed)], n, k),
            theirs(model, n, assistant_model=assistant),
        ),
    }


def timed(generate: Callable, prompt: list[int]) -> tuple[list[int], float]:
    began = perf_counter()
    return generate(prompt), perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=4, help="prompts of each family")
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("-k", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = load("zoo:pico", weights=False).tokenizer
    prompts = [tokenizer.encode(p.given) for p in chosen(read(PROMPTS), PROMPTS.name, limit=args.limit)]
    table = pairs(args.n, args.k)
    ratios: dict[str, list[float]] = {name: [] for name in table}
    seconds: dict[str, list[float]] = {name: [0.0, 0.0] for name in table}
    equal = dict.fromkeys(table, 0)
    for mine, other in table.values():
        timed(mine, prompts[0]), timed(other, prompts[0])
    for prompt in prompts:
        for name, (mine, other) in table.items():
            (a, ta), (b, tb) = timed(mine, prompt), timed(other, prompt)
            equal[name] += a == b
            ratios[name].append(tb / ta)
            seconds[name] = [seconds[name][0] + ta, seconds[name][1] + tb]
    tokens = args.n * len(prompts)
    for name in table:
        same = equal[name] == len(prompts)
        row = {"pair": name, "prompts": len(prompts), "equal": equal[name], "K": args.k, "n": args.n, "threads": 1}
        if same:
            a, b = seconds[name]
            row |= {"ours tokens/s": round(tokens / a, 1), "theirs tokens/s": round(tokens / b, 1)}
            row |= {"ratio": round(b / a, 2), "median ratio": round(statistics.median(ratios[name]), 2)}
        print(json.dumps(row))


if __name__ == "__main__":
    main()
