"""gpt-oss with experts of MXFP4: random codes under random scales, as a directory and as a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.targets.tiny import model, save
from tests.targets.windowed import write_gguf

VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
EXPERTS, WIDTH, FF, LAYERS = 3, 64, 96, 2
TINY = 90
"""A scale that float16 does not have."""


class Made:
    """A model with matrices of random codes, and the files of it."""

    def __init__(self, folder: Path, tiny: bool = False) -> None:
        """tiny: one scale of each matrix is smaller than float16 can say."""
        sizes = {
            "hidden_size": WIDTH,
            "intermediate_size": FF,
            "num_hidden_layers": LAYERS,
            "num_local_experts": EXPERTS,
        }
        rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
        self.model = model("gpt-oss", 0, **sizes, **rope, num_experts_per_tok=2, head_dim=16, sliding_window=8)
        self.codes: dict[str, Tensor] = {}
        self.blocks: dict[str, Tensor] = {}
        for i in range(LAYERS):
            for name, shape in (("gate_up_proj", (EXPERTS, 2 * FF, WIDTH)), ("down_proj", (EXPERTS, WIDTH, FF))):
                self._put(i, name, *draw_codes(shape, i, tiny))
        self.directory = self._directory(folder / "hf")
        self.file = write_gguf(self.model, "gpt-oss", folder / "model.gguf", self.blocks)

    def _put(self, layer: int, name: str, codes: Tensor, scales: Tensor) -> None:
        stem = f"model.layers.{layer}.mlp.experts.{name}"
        self.codes |= {f"{stem}_blocks": codes, f"{stem}_scales": scales}
        elements = torch.stack([codes % 16, codes // 16], -1).flatten(3)
        floats = torch.ldexp(VALUES[elements.long()], scales.int()[..., None] - 127).flatten(2)
        dict(self.model.named_parameters())[stem].data.copy_(floats.transpose(1, 2))
        blocks = torch.cat([scales[..., None], elements[..., :16] + 16 * elements[..., 16:]], -1).flatten(2)
        names = {"gate_up_proj": ("gate", "up"), "down_proj": ("down",)}[name]
        for i, own in enumerate(names):
            self.blocks[f"blk.{layer}.ffn_{own}_exps.weight"] = blocks[:, i :: len(names)].contiguous()

    def _directory(self, folder: Path) -> Path:
        save(self.model, folder)
        floats = load_file(folder / "model.safetensors")
        kept = {name: value for name, value in floats.items() if f"{name}_blocks" not in self.codes}
        save_file(kept | self.codes, folder / "model.safetensors", metadata={"format": "pt"})
        return quantised_by("mxfp4", folder)


def quantised_by(method: str, folder: Path) -> Path:
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def draw_codes(shape: tuple[int, int, int], seed: int, tiny: bool) -> tuple[Tensor, Tensor]:
    """Codes and scales of numbers [experts, outputs, inputs]; the first row is zeros."""
    numbers = torch.Generator().manual_seed(seed)
    experts, n, k = shape
    codes = torch.randint(0, 256, (experts, n, k // 32, 16), generator=numbers, dtype=torch.uint8)
    scales = torch.randint(119, 124, codes.shape[:3], generator=numbers, dtype=torch.uint8)
    codes[0, 0], scales[0, 0] = 0, 0
    if tiny:
        scales[1, :2] = TINY
    return codes, scales
