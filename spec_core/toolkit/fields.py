"""Settings that several drafting methods have: one definition of name, bounds and help text."""

from __future__ import annotations

from typing import Any

import attrs
from attrs.validators import and_, ge, le, optional


def p_min_field(help: str) -> Any:
    """The setting ``p_min: float | None``: a probability, 0 is off; None takes the method's default, or the price of a
    controller (``step.price``). help: what happens below it, and the default."""
    return attrs.field(
        default=None,
        validator=optional(and_(ge(0.0), le(1.0))),
        metadata={"help": f"{help}, or a controller's price", "off": 0.0},
    )


def sample_field() -> Any:
    """The setting ``sample: SampleMode``: whether a drafter samples with the request's noise."""
    return attrs.field(
        default="auto", metadata={"help": "sampled: with the request's noise; auto: if the request samples"}
    )


def layer_ids_field() -> Any:
    """The setting ``layer_ids: str`` of methods that read a head from a file (``draft_head``)."""
    return attrs.field(
        default="auto",
        metadata={
            "help": "whether the file's layer ids mean inputs or outputs of layers, or numbers of inputs, such as "
            "1,3,4; auto: by its dialect"
        },
    )
