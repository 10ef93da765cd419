"""Exports a trained checkpoint as a GGUF file that other programs can read: qwen3 or qwen35, Q8_0, with tokenizer.

``python -m tools.zoo.export pico --out DIR``
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import gguf
import torch
from spec_train import output
from spec_train.heads.export.gguf import add_sizes, add_tensors, open_writer
from spec_zoo import HERE
from spec_zoo.texts.tokens import END, SPECIALS
from torch import Tensor

from tools.zoo import export_hybrid
from tools.zoo.hybrid import HYBRID, HybridShape
from tools.zoo.model import SHAPES, Shape

MODELS = HERE / "models"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DESCRIPTION = (
    "trained from scratch on the source of Python's standard library, to show speculative decoding on a laptop"
)
NORMAL, CONTROL = 1, 3


def tensors(state: Mapping[str, Tensor], shape: Shape) -> Iterator[tuple[str, Tensor]]:
    """Weights by GGUF name; matrices that were fused for training are split."""
    yield "token_embd.weight", state["embed.weight"]
    yield "output_norm.weight", state["norm.weight"]
    q, kv = shape.heads * shape.head, shape.kv_heads * shape.head
    for i in range(shape.layers):
        block = {name.removeprefix(f"blocks.{i}."): t for name, t in state.items() if name.startswith(f"blocks.{i}.")}
        parts = dict(zip("qkv", block["qkv.weight"].split([q, kv, kv]), strict=True))
        gate, up = block["gate_up.weight"].chunk(2)
        named = {f"attn_{name}": t for name, t in parts.items()} | {
            "attn_norm": block["attn_norm.weight"],
            "attn_q_norm": block["q_norm.weight"],
            "attn_k_norm": block["k_norm.weight"],
            "attn_output": block["out.weight"],
            "ffn_norm": block["ffn_norm.weight"],
            "ffn_gate": gate,
            "ffn_up": up,
            "ffn_down": block["down.weight"],
        }
        yield from ((f"blk.{i}.{name}.weight", t) for name, t in named.items())


def export(name: str, out: Path, models: Path = MODELS) -> Path:
    """Write ``models/NAME.gguf`` from the checkpoints in ``out`` and ``out/tokenizer.json``."""
    models.mkdir(parents=True, exist_ok=True)
    path = models / f"{name}.gguf"
    tokenizer = json.loads((out / "tokenizer.json").read_text("utf-8"))
    if name in SHAPES:
        write(path, name, SHAPES[name], dense(out, name), tokenizer)
        return path
    trained = checkpoint(out / f"{name}-mtp.pt")
    trunk, mtp = (export_hybrid.part(trained, prefix) for prefix in ("trunk.", "mtp."))
    write_hybrid(path, name, HYBRID, trunk, [mtp], tokenizer)
    return path


def dense(out: Path, name: str) -> dict[str, Tensor]:
    """The distilled student, if there is one."""
    distilled = out / f"{name}-distilled.pt"
    if distilled.exists():
        return export_hybrid.part(checkpoint(distilled), "student.")
    return checkpoint(out / f"{name}.pt")


def checkpoint(path: Path) -> dict[str, Tensor]:
    return torch.load(path, weights_only=True)["model"]


def write(
    path: Path, name: str, shape: Shape, state: Mapping[str, Tensor], tokenizer: dict, kind: str = "Q8_0"
) -> None:
    """Write a dense model. kind: the type of matrices."""
    with output.atomic_path(path) as part, open_writer(part, "qwen3") as writer:
        _add_metadata(writer, name, shape, shape.layers)
        add_tokenizer(writer, tokenizer)
        add_tensors(writer, floats(tensors(state, shape)), kind)


def write_hybrid(
    path: Path,
    name: str,
    shape: HybridShape,
    trunk: Mapping[str, Tensor],
    mtp: Sequence[Mapping[str, Tensor]],
    tokenizer: dict,
    kind: str = "Q8_0",
) -> None:
    """Write a hybrid model with its MTP layers. kind: the type of matrices."""
    nextn = len(mtp)
    with output.atomic_path(path) as part, open_writer(part, "qwen35") as writer:
        _add_metadata(writer, name, shape, shape.layers + nextn)
        export_hybrid.add_metadata(writer, shape, nextn)
        add_tokenizer(writer, tokenizer)
        add_tensors(writer, floats(export_hybrid.tensors(trunk, mtp, shape)), kind)


def floats(named: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    return ((name, tensor.float()) for name, tensor in named)


def _add_metadata(writer: gguf.GGUFWriter, name: str, shape: Shape, blocks: int) -> None:
    writer.add_name(name)
    writer.add_description(DESCRIPTION)
    writer.add_license("psf-2.0")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_sizes(writer, shape, blocks)


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: dict) -> None:
    """Byte-level BPE as trained; special tokens are at the end of the vocabulary."""
    ids = dict(tokenizer["model"]["vocab"]) | {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    tokens = sorted(ids, key=ids.__getitem__)
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if t in SPECIALS else NORMAL for t in tokens])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(ids[END])
    writer.add_pad_token_id(ids[END])
    writer.add_bos_token_id(ids[END])
    writer.add_eot_token_id(ids["<|im_end|>"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*SHAPES, "pico-hybrid"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", type=Path, default=MODELS)
    args = parser.parse_args()
    for name in args.names:
        path = export(name, args.out, args.models)
        print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
