"""The parts of a model of transformers, found without a table of architectures."""

from __future__ import annotations

import inspect
from typing import Any

import attrs
from torch import Tensor, nn

from spec_core.errors import UsageError


@attrs.frozen(eq=False)
class Layout:
    """Where hidden states and matrices are.

    decoder: the module whose ``last_hidden_state`` the output matrix reads. blocks: in order.
    embedding, output: [V, D]; the same if tied. positions: whether the model takes ``position_ids``, as drafts that
    branch need. keeps: whether it computes logits of some rows only.
    """

    decoder: nn.Module
    blocks: tuple[nn.Module, ...]
    embedding: Tensor
    output: Tensor
    positions: bool
    keeps: bool

    @classmethod
    def of(cls, model: Any) -> Layout:
        """Raises UsageError for a model that has no such parts."""
        count = model.config.get_text_config().num_hidden_layers
        decoder = model.get_decoder()
        blocks = next((m for m in decoder.children() if isinstance(m, nn.ModuleList) and len(m) == count), None)
        embedding, output = model.get_input_embeddings(), model.get_output_embeddings()
        for part, found in {"blocks": blocks, "input embedding": embedding, "output matrix": output}.items():
            if found is None:
                raise UsageError(
                    f"{type(model).__name__}: its {part} were not found where decoders of transformers have them",
                    hint="use another model, or another target",
                )
        takes = inspect.signature(model.forward).parameters
        return cls(
            decoder,
            tuple(blocks),
            embedding.weight,
            output.weight,
            "position_ids" in takes,
            "logits_to_keep" in takes,
        )

    def tensor(self, name: str) -> Tensor:
        """The matrices that draft heads read, by GGUF name. Raises KeyError for any other."""
        return {"token_embd.weight": self.embedding, "output.weight": self.output}[name].detach()
