"""Which hidden states of a target a head reads: by its file, by its method's paper, or as the user says."""

from __future__ import annotations

from typing import Any

import attrs

from spec_core.errors import UsageError

HINT = "add them to config.json as {key}, or pass -o {kind}.layer_ids=1,3,4: numbers of blocks whose input is read"
KEYS = {"eagle3": "eagle_aux_hidden_state_layer_ids"}


@attrs.frozen
class TappedLayers:
    """sources: i enters block i, i = the number of blocks leaves the last. note: how ids were read, if in doubt."""

    sources: tuple[int, ...]
    note: str | None = None


def layers_of(head: Any, layers: int, reading: str) -> TappedLayers:
    """Hidden states of a target of ``layers`` blocks that a head reads.

    reading: ``inputs`` takes the ids of the file as they are, ``outputs`` as blocks whose output is read; numbers with
    commas replace them. ``auto`` goes by the dialect, except where one reading alone fits the target, and where ids are
    the paper's default in one reading and the format does not define it.
    """
    numbers = numbers_of(reading)
    if numbers is not None:
        return TappedLayers(numbers, f"layers {_list_numbers(numbers)} as passed")
    if head.last:
        return TappedLayers((layers,))
    if head.ids is None:
        return _default(head, layers)
    both = {"inputs": head.ids, "outputs": tuple(i + 1 for i in head.ids)}
    both = {name: tuple(max(0, i) for i in ids) for name, ids in both.items()}  # -1 is the embedding
    if reading in both:
        return TappedLayers(both[reading])
    chosen, why = _auto(head, both, layers)
    return TappedLayers(both[chosen], why)


def _auto(head: Any, both: dict[str, tuple[int, ...]], layers: int) -> tuple[str, str | None]:
    stated = head.reading
    if head.kind != "eagle3" or head.certain:
        return stated, None
    other = "outputs" if stated == "inputs" else "inputs"
    fits = {name: all(0 <= i <= layers for i in ids) for name, ids in both.items()}
    if not fits[stated] and fits[other]:
        return other, f"layer ids read as {other}: as {stated} they fit no model of {layers} layers"
    paper = (2, layers // 2, layers - 3)
    if both[stated] != paper and both[other] == paper:
        return other, f"layer ids read as {other}: so they are the paper's"
    return stated, None


def _default(head: Any, layers: int) -> TappedLayers:
    """Of a head whose file names no layers: low, middle and high (SafeAILab) for pairs, none for blocks."""
    low, middle, high = 2, layers // 2, layers - 3
    if not head.paper or head.inputs != 3 or not low < middle < high:
        return TappedLayers(())
    return TappedLayers(
        (low, middle, high), f"no layers are named: inputs of {low}, {middle} and {high} as in the paper"
    )


def resolve_layers(head: Any, target: Any, reading: str) -> tuple[str, str] | None:
    """Why its layers do not fit a target, or are not known, and what to do; None if they fit."""
    sources = layers_of(head, target.layers, reading).sources
    key = KEYS.get(head.kind, "target_layer_ids")
    hint = HINT.format(key=key, kind=head.kind)
    if not sources:
        fact = f"{head.name}: {key} is missing, and layers cannot be guessed"
        return f"{fact}; it reads {head.inputs} hidden states of {target.name}", hint
    if len(sources) != head.inputs:
        fact = f"{head.name}: it reads {head.inputs} hidden states and names {len(sources)} layers"
        return f"{fact}; one for each was needed", hint
    if not all(0 <= i <= target.layers for i in sources):
        fact = f"{head.name}: it reads the hidden states {_list_numbers(sources)}"
        other = "use a head trained for this model, or the other reading of its layer ids (inputs, outputs)"
        return f"{fact}, {target.name} has 0 to {target.layers}", other
    return None


def numbers_of(reading: str) -> tuple[int, ...] | None:
    """Numbers with commas; None for a word. Raises UsageError for anything else."""
    if reading in ("auto", "inputs", "outputs"):
        return None
    parts = [part.strip() for part in str(reading).split(",")]
    if not all(part.isdecimal() and len(part) < 6 for part in parts):
        raise UsageError(
            f"layer_ids is {str(reading)[:40]!r}", hint="auto, inputs, outputs or numbers such as 1,3,4 are needed"
        )
    return tuple(map(int, parts))


def _list_numbers(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
