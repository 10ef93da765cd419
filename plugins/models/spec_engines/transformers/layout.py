"""The parts of a model of transformers, found without a table of architectures."""

from __future__ import annotations

import inspect
from typing import Any

import attrs
from torch import nn

from spec_core.errors import UsageError


@attrs.frozen(eq=False)
class Layout:
    """Places of hidden states and matrices in a model.

    decoder: the module whose ``last_hidden_state`` the output matrix reads. blocks: in order.
    embedding, output: the modules of these matrices. positions: whether the model takes ``position_ids``, as drafts
    that branch need. keeps: whether it computes logits of some rows only. cache: its name for the cache.
    """

    decoder: nn.Module
    blocks: tuple[nn.Module, ...]
    embedding: nn.Module
    output: nn.Module
    positions: bool
    keeps: bool
    cache: str

    @classmethod
    def of(cls, model: Any) -> Layout:
        """Find the layout of a model. Raises UsageError for a model that has no such parts."""
        count = model.config.get_text_config().num_hidden_layers
        decoder = model.get_decoder()
        blocks = next((m for m in decoder.children() if isinstance(m, nn.ModuleList) and len(m) == count), None)
        embedding, output = model.get_input_embeddings(), model.get_output_embeddings()
        for part, module in {"blocks": blocks, "input embedding": embedding, "output matrix": output}.items():
            if module is None:
                raise UsageError(
                    f"{type(model).__name__}: its {part} were not found where decoders of transformers have them",
                    hint="use another model, or another target",
                )
        takes = inspect.signature(model.forward).parameters
        return cls(
            decoder,
            tuple(blocks),
            embedding,
            output,
            "position_ids" in takes,
            "logits_to_keep" in takes,
            "past_key_values" if "past_key_values" in takes else "cache",
        )

    def module(self, name: str) -> nn.Module:
        """Module of a matrix that draft heads read, by GGUF name. Raises KeyError for any other."""
        return {"token_embd.weight": self.embedding, "output.weight": self.output}[name]
