"""The core's settings: one table each for what runs, the run, loading and text."""

from __future__ import annotations

from typing import Any, Literal

import attrs

MAX_THREADS = 1024
"""Max threads. torch accepts numbers below 2**31, but the process ends when it starts them."""


def option(default: Any, help: str, low: float | None = None, high: float | None = None) -> Any:
    """A field of the table: default, help text, min and max value."""
    limits = [] if low is None else [attrs.validators.ge(low)]
    limits += [] if high is None else [attrs.validators.le(high)]
    return attrs.field(default=default, metadata={"help": help}, validator=limits or None)


@attrs.frozen
class RunSettings:
    """Settings of a run that belong to no plugin."""

    draft_max: int = option(16, "max length of a draft in one step, for every method; 0 is plain decoding", 0)
    nodes_max: int = option(64, "max tokens of a draft tree", 1)
    prefill_chunk: int = option(256, "max prompt tokens of one sequence in one forward", 1)
    max_batched_tokens: int = option(1024, "max rows of one forward, all sequences together", 1)
    prefill_budget: int = option(
        0, "max prompt tokens of one forward in which other sequences generate; 0 is max_batched_tokens", 0
    )
    max_sequences: int = option(8, "max sequences that run at once", 1)
    reuse: bool = option(True, "reuse the KV cache rows of an earlier request with the same prefix")
    cache_tokens: int = option(
        0, "rows of ended sequences that are kept for reuse, beyond the slots of max_sequences; oldest dropped first", 0
    )
    on_error: Literal["raise", "isolate"] = option(
        "raise", "when a plugin fails: raise ends the run, isolate switches the plugin off for the rest of it"
    )


@attrs.frozen
class LoadSettings:
    """Settings with which a target is loaded."""

    device: str = option("auto", "where the target runs: cpu, cuda, or auto")
    dtype: str = option("auto", "float32, bfloat16 or float16; auto is float32 on a CPU, bfloat16 on CUDA")
    threads: int = option(0, "CPU threads; 0 measures how many help when the first model is loaded", 0, MAX_THREADS)
    context: int = option(0, "max positions of a sequence; 0 is what the model declares", 0)
    kernels: str = option("auto", "what executes the model: native, reference, or auto (native on a CPU in float32)")
    activations: str = option(
        "auto",
        "type of activations in native products with quantised weights: int15, int8, or auto (int8 where it adds at "
        "most 5 % of the noise of the weights' own rounding, as their types tell; else int15)",
    )
    cache_dtype: str = option(
        "auto",
        "native KV cache: float32, float16, q8, or auto (q8 where activations are int8, else float16)",
    )
    weights: str = option("auto", "auto keeps native weights as stored; q8_0 converts float weights to 8 bits")


@attrs.frozen
class TextSettings:
    """Settings of one generated text."""

    max_tokens: int = option(128, "max tokens to generate", 0)
    seed: int = option(0, "64-bit seed; equal seeds give equal texts with every method")
    temperature: float = option(0.0, "0 is greedy", 0)
    top_k: int = option(0, "keep the k most likely tokens; 0 is off", 0)
    top_p: float = option(1.0, "keep the most likely tokens up to this total probability")
    min_p: float = option(0.0, "drop tokens below this share of the highest probability", 0)
    repetition_penalty: float = option(1.0, "divides the logits of tokens that occurred")
    presence_penalty: float = option(0.0, "subtracted from tokens that occurred in the output")
    frequency_penalty: float = option(0.0, "subtracted per occurrence in the output")


@attrs.frozen
class ChoiceSettings:
    """Model, methods, rule, rollback and controller of a run."""

    model: str | None = option(None, "a GGUF file, a Hugging Face directory, or scheme:location such as zoo:pico")
    methods: tuple[str, ...] = option((), "methods in the order in which they draft: NAME, NAME=FILE or NAME:key=value")
    rule: str | None = option(None, "acceptance rule; the default is lossless and seed-coupled")
    rollback: str | None = option(None, "owner of recurrent state, if several are installed")
    control: str = option(
        "fixed", "who decides how much is drafted: fixed, the methods by their own settings; or a controller's name"
    )


TABLES: tuple[type, ...] = (ChoiceSettings, RunSettings, LoadSettings, TextSettings)


def core_fields() -> dict[str, attrs.Attribute[Any]]:
    """Every core setting by name."""
    return {field.name: field for table in TABLES for field in attrs.fields(attrs.resolve_types(table))}
