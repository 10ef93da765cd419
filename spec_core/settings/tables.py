"""The core's settings: one table each for what runs, the run, loading and text."""

from __future__ import annotations

from typing import Any, Literal

import attrs


def option(default: Any, help: str, low: float | None = None) -> Any:
    """A field of the table: default, help text, and the least value it may have."""
    validator = None if low is None else attrs.validators.ge(low)
    return attrs.field(default=default, metadata={"help": help}, validator=validator)


@attrs.frozen
class RunSettings:
    """Settings of a run that belong to no plugin."""

    draft_max: int = option(16, "longest path any method may draft in a step; 0 is plain decoding", 0)
    nodes_max: int = option(64, "most tokens of a draft tree", 1)
    prefill_chunk: int = option(256, "most prompt tokens of one sequence in one forward", 1)
    max_batched_tokens: int = option(1024, "most rows of one forward, all sequences together", 1)
    max_sequences: int = option(8, "sequences that run at once", 1)
    reuse: bool = option(True, "continue on the rows of an earlier request with the same beginning")
    on_error: Literal["raise", "isolate"] = option(
        "raise", "what a failing plugin does: end the run, or be switched off for the rest of it"
    )


@attrs.frozen
class LoadSettings:
    """Settings a target is loaded with."""

    device: str = option("auto", "where the target runs: cpu, cuda, or auto")
    dtype: str = option("auto", "float32, bfloat16 or float16; auto is float32 on a CPU, bfloat16 on CUDA")
    threads: int = option(0, "CPU threads; 0 measures how many help when the first model is loaded", 0)
    context: int = option(0, "most positions of a sequence; 0 is what the model declares", 0)
    kernels: str = option("auto", "what executes the model: native, reference, or auto: native on a CPU in float32")
    activations: str = option("int15", "native rows in products with quantised weights: int15, or int8 for speed")
    cache_dtype: str = option("float32", "what native attention caches: float32, float16 or q8")
    weights: str = option("auto", "auto keeps native weights as stored; q8_0 stores those that are floats in 8 bits")


@attrs.frozen
class TextSettings:
    """Settings of one generated text."""

    max_tokens: int = option(128, "most tokens to generate", 0)
    seed: int = option(0, "64-bit seed; equal seeds give equal texts with every method")
    temperature: float = option(0.0, "0 is greedy", 0)
    top_k: int = option(0, "keep the k most likely tokens; 0 is off", 0)
    top_p: float = option(1.0, "keep the most likely tokens up to this mass")
    min_p: float = option(0.0, "drop tokens below this share of the most likely one", 0)
    repetition_penalty: float = option(1.0, "divides the logits of tokens that occurred")
    presence_penalty: float = option(0.0, "subtracted from tokens that occurred in the output")
    frequency_penalty: float = option(0.0, "subtracted per occurrence in the output")


@attrs.frozen
class ChoiceSettings:
    """What runs."""

    model: str | None = option(None, "a GGUF file, a Hugging Face directory, or scheme:location such as zoo:pico")
    methods: tuple[str, ...] = option((), "methods in the order of asking, NAME, NAME=FILE or NAME:key=value")
    rule: str | None = option(None, "acceptance rule; the default is lossless and seed-coupled")
    rollback: str | None = option(None, "owner of recurrent state, where several are installed")


TABLES: tuple[type, ...] = (ChoiceSettings, RunSettings, LoadSettings, TextSettings)


def core_fields() -> dict[str, attrs.Attribute]:
    """Every core setting by name."""
    return {field.name: field for table in TABLES for field in attrs.fields(attrs.resolve_types(table))}
