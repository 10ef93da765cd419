"""Published draft heads that are recognised and not read: each is refused by the name of its method."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import attrs

from spec_targets.architectures.heads.dialects import value_at
from spec_targets.architectures.heads.names import EAGLE

EAGLE_1 = "EAGLE-1 and EAGLE-2"


@attrs.frozen
class UnreadMethod:
    """A method whose heads are not read.

    reason: what its heads need that is not here. classes: a pattern of ``architectures`` or of
    ``speculators_model_type``, in small letters. values: values of config.json, by keys with dots between levels, that
    it alone writes. tensors: a pattern of names of tensors, by our own, that it alone has.
    """

    name: str
    reason: str
    classes: str = r"(?!)"
    values: Mapping[str, tuple[Any, ...]] = attrs.field(factory=dict)
    tensors: str = r"(?!)"

    def matches(self, raw: Mapping[str, Any], names: Collection[str]) -> bool:
        """Whether a config and names of tensors are of this method."""
        listed = raw.get("architectures")
        words = (listed[0] if isinstance(listed, list) and listed else None, raw.get("speculators_model_type"))
        return (
            any(re.search(self.classes, word.lower()) for word in words if isinstance(word, str))
            or any(value_at(raw, key) in values for key, values in self.values.items())
            or any(re.fullmatch(self.tensors, name) for name in names)
        )


UNREAD_METHODS = (
    UnreadMethod(
        "P-EAGLE",
        "they draft all positions in parallel from a vector of their own",
        classes=r"peagle",
        values={"parallel_drafting": (True,)},
        tensors=r"mask_hidden",
    ),
    UnreadMethod(
        "domino",
        "a projector of their own corrects their rows",
        classes=r"domino",
        values={"dflash_config.projector_type": ("domino",)},
        tensors=r"prefix_gru\..*",
    ),
    UnreadMethod(
        "xpress",
        "a projector of their own corrects their rows",
        classes=r"xpress",
        values={"dflash_config.projector_type": ("xpress",)},
    ),
    UnreadMethod(
        "EAGLE with Medusa",
        "more heads draft the later tokens of a step",
        tensors=r"parallel_draft_heads\..*",
    ),
    UnreadMethod("ViSpec", "they read features of pictures", classes=r"vispec"),
    UnreadMethod(
        "latent attention (MLA)",
        "their layers keep a latent of each position in place of keys and values",
        tensors=r"blk\.[0-9]+\.self_attn\.kv_a_proj_with_mqa\.weight",
    ),
    UnreadMethod("MTP in speculators' layout", "mtp reads such layers from the model's own files", classes=r"^mtp"),
    UnreadMethod(EAGLE_1, "they read the last hidden state alone, without a norm of their own", classes=EAGLE.pattern),
)
"""In the order in which they are asked: some write the marks of a later one too."""


def unread_method(raw: Mapping[str, Any], names: Collection[str]) -> UnreadMethod | None:
    """The method of a head that is known and not read; None for all others. names: of its tensors, by our own."""
    if value_at(raw, "eagle_config.use_aux_hidden_state") is False and "blk.0.attn_norm_2.weight" not in names:
        return UNREAD_METHODS[-1]
    return next((method for method in UNREAD_METHODS if method.matches(raw, names)), None)
