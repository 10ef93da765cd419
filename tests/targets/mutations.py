"""Models and draft heads with one field of their headers changed: each loads and runs, or is refused by name.

    python -m tests.targets.mutations LIBRARY FIRST LAST [heads]    seeds, on an extension compiled with sanitizers

A seed decides which file is changed and where: metadata, descriptions of tensors or the fixed fields of a GGUF file;
config.json or the header of safetensors of a Hugging Face directory.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from spec_train.heads.export.write import write_head

from spec_core import Refused, Request, Run, Target, UsageError, load
from spec_core.errors import TargetError
from tests.methods.heads import gated_file, lattice_file, selector_file, spark_file, spine_file
from tests.support.small_heads import directory, tiny_target, train
from tests.support.small_models import tiny_gguf, tiny_hybrid
from tests.targets.containers import TYPES, VALUES, Model, open_model, pack_typed

SECONDS, ROOM = 20, 400 << 20
"""Limits of CPU time and memory for one file of less than a megabyte, many times its needs."""
JSON = [
    None, True, False, 0, 1, 2, 3, 5, 7, 16, 31, 33, 255, 2**16, 2**31 - 1, 2**31, 2**63, 10**400, -1, -(2**63),
    0.0, 0.5, -1.5, 1e-30, 1e30, 1e300, float("nan"), float("inf"), "", "none", "yarn", "linear\n\x1b[2J", "1" * 5000,
    [], [0], [1, 2], [2] * 600, [None], ["full_attention"] * 4, {}, {"rope_type": "yarn"},
    {"type": "llama3", "factor": 0},
]  # fmt: skip
RARE = ["general.alignment", "split.count", "split.no", "general.architecture"]
"""Keys that the readers know and that few of the files have."""
DTYPES = ["F32", "F16", "BF16", "F64", "I64", "I8", "BOOL", "F8_E4M3", "C64", "", "X", 7, None]
LAYOUTS = {"safeailab": "eagle3", "speculators": "eagle3", "z-lab": "dflash"}
PARTS = {"gated": "dflash", "dspark-parts": "dspark", "dspine": "dspine", "lilicorr": "lilicorr", "dflash2": "dflash2"}
"""Directories of heads with parts of their own, and their methods."""
METHODS = LAYOUTS | PARTS
FAMILIES = (
    "phi3,gemma2,gemma3,gemma4-e,gemma4-moe,gpt-oss,gpt-oss of mxfp4,lfm2,lfm2moe,kimi-linear,granitehybrid,falcon-h1,"
    "nemotron_h_moe,ministral3,glm4moelite,deepseek2-lite,muse_glimmer,laguna,glm5_next"
).split(",")
"""With keys that the dense model has not: windows, caps of scores, more than one rotary table, experts, sinks, short
convolutions, sizes by block, latents, Mamba-2, multipliers, streams, an index."""
OTHERS = (
    *(f"{family}{form}" for family in FAMILIES for form in ("", " directory")),
    "lfm3 directory",
    "olmo-hybrid directory",
)
FILES = ("dense", "hybrid", "eagle3", "dflash", "dense directory", *METHODS, *OTHERS)
HEADS = ("eagle3", "dflash", *METHODS)


@cache
def original(name: str) -> Path:
    """The file or directory that is changed."""
    if name in ("dense", "hybrid"):
        return tiny_gguf(0) if name == "dense" else tiny_hybrid()
    folder = Path(tempfile.mkdtemp())
    if name == "dense directory":
        return dense_directory(folder)
    if name in OTHERS:
        return write_family(name, folder)
    if name in LAYOUTS:
        return directory(folder, LAYOUTS[name], name, rows=120 if name == "safeailab" else None)
    if name in PARTS:
        files = {"gated": gated_file, "dspark-parts": spark_file, "dspine": spine_file, "lilicorr": lattice_file}
        return files.get(name, selector_file)("dense")
    target = tiny_target(weights=False)
    write_head(train(name, target), target, folder / f"{name}.gguf", "gguf", "f32")
    return folder / f"{name}.gguf"


def dense_directory(folder: Path) -> Path:
    """A qwen3 of transformers, with more than one safetensors dtype."""
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    from tests.targets.tiny import SIZES

    torch.manual_seed(0)
    config = transformers.Qwen3Config(**SIZES, head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)
    path = folder / "model.safetensors"
    save_file({n: t.bfloat16() if "mlp" in n else t for n, t in load_file(path).items()}, path)
    return folder


def write_family(name: str, folder: Path) -> Path:
    """A model of one of FAMILIES, as a GGUF file or a directory."""
    from tests.targets import convolved, gated, kimi, latent, layered, ministral, scanned, streamed, windowed
    from tests.targets.mxfp4 import Made
    from tests.targets.tiny import save

    family = name.removesuffix(" directory")
    if family == "gpt-oss of mxfp4":
        model = Made(folder)
        return model.directory if name != family else model.file
    modules = (convolved, gated, latent, layered, kimi, scanned, streamed, ministral, windowed)
    module = next(one for one in modules if family in one.FAMILIES)
    model = module.draw_model(family, 1)
    return (
        getattr(module, "save", save)(model, folder)
        if name != family
        else module.write_gguf(model, family, folder / f"{family}.gguf")
    )


def mutate(seed: int, folder: Path, files: Sequence[str] = FILES) -> tuple[str, Path]:
    """The name of the original, and a changed copy of it in the folder."""
    rng = random.Random(seed)
    name = files[seed % len(files)]
    path = folder / original(name).name
    if path.suffix == ".gguf":
        path.write_bytes(gguf(original(name), rng))
        return name, path
    shutil.copytree(original(name), path)
    (config if rng.random() < 0.6 else safetensors)(path, rng)
    return name, path


# GGUF


@cache
def parts(path: Path) -> Model:
    return open_model(path)


def gguf(path: Path, rng: random.Random) -> bytes:
    """Bytes of a file with one field changed."""
    model = parts(path).copy()
    kind = rng.random()
    if kind < 0.5:
        pair(model, rng)
    elif kind < 0.8:
        tensor(model, rng)
    data = bytearray(model.bytes())
    if kind >= 0.8:
        at = rng.choice([4, 8, 16, 24, *rng.choices(range(24, len(data) // 4), k=4)])
        data[at : at + 8] = struct.pack("<Q", rng.choice([0, 1, 7, 255, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1]))
    return bytes(data)


def pair(model: Model, rng: random.Random) -> None:
    """A value of the metadata left out, described twice, under another name, or another one."""
    key = rng.choice([*model.pairs, *RARE])
    value = model.pairs.pop(key, pack_typed("u32", 1))
    kind = rng.random()
    if kind < 0.1:
        model.pairs[rng.choice([key[: rng.randrange(len(key))] + "x", "x" * 5000, ""])] = value
    elif kind < 0.15:
        model.pairs[key] = value
        model.again.add(key)
    elif kind < 0.9:
        model.pairs[key] = pack_typed(*rng.choice(VALUES))


def tensor(model: Model, rng: random.Random) -> None:
    """A description of a tensor left out, there twice, or with another name, shape, type or place."""
    name = rng.choice(list(model.tensors))
    shape, kind, raw = model.tensors.pop(name)
    change = rng.randrange(6)
    if change == 1:
        name = rng.choice([name[:-1], f"blk.{'9' * rng.choice([900, 5000])}.attn_q.weight", "output.weight", "", "d2t"])
    if change == 2:
        shape = rng.choice([shape[::-1], shape[1:], (*shape, 1), (0, *shape), (2**31,), (1,), [n + 1 for n in shape]])
    if change == 3:
        kind = rng.choice(list(TYPES))
    if change == 4:
        model.offsets[name] = rng.choice([0, 1, 16, 32, len(raw), 2**31, 2**40, 2**63, 2**64 - 32])
    if change == 5:
        model.again.add(name)
    if change:
        model.tensors[name] = [tuple(shape), kind, raw]


# Hugging Face directories


def config(path: Path, rng: random.Random) -> None:
    """A value of config.json left out or replaced, at any depth."""
    whole = json.loads((path / "config.json").read_text("utf-8"))
    inside = whole
    while True:
        key = rng.choice(list(inside))
        if not (isinstance(inside[key], dict) and inside[key] and rng.random() < 0.8):
            break
        inside = inside[key]
    inside.pop(key)
    if rng.random() < 0.9:
        inside[key] = rng.choice(JSON)
    (path / "config.json").write_text(json.dumps(whole), "utf-8")


def safetensors(path: Path, rng: random.Random) -> None:
    """A field of the header of model.safetensors changed, or the header's length."""
    file = path / "model.safetensors"
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    name = rng.choice([name for name in header if name != "__metadata__"])
    change = rng.randrange(6)
    if change == 0:
        del header[name]
    elif change == 1:
        layer = f"layers.{'9' * rng.choice([5, 900, 5000])}.mlp.up_proj.weight"
        names = [name[:-1], layer, f"model.{layer}", f"model.{name}", "lm_head.weight", "d2t", ""]
        header[rng.choice(names)] = header.pop(name)
    elif change == 2:
        header[name]["dtype"] = rng.choice(DTYPES)
    elif change == 3:
        shape = header[name]["shape"]
        header[name]["shape"] = rng.choice([shape[::-1], [], [0], [2**40, 2**40], [-1], [1.5], "x", None])
    elif change == 4:
        begin, end = header[name]["data_offsets"]
        header[name]["data_offsets"] = rng.choice(
            [[end, begin], [begin, end + 4], [begin], [0, 2**63], [-4, end], None]
        )
    text = json.dumps(header).encode()
    size = rng.choice([0, 1, 2**31, 2**63, 2**64 - 1, len(text) - 1, len(text) + 1]) if change == 5 else len(text)
    file.write_bytes(struct.pack("<Q", size) + text + data[8 + length :])


# using them


def fault(seed: int, files: Sequence[str] = FILES) -> str | None:
    """Fault in the treatment of a changed file, or None: a traceback, a vague error, time or memory."""
    with tempfile.TemporaryDirectory() as folder:
        name, path = mutate(seed, Path(folder), files)
        began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        wrong = misuse(name, path)
        if time.process_time() - began > SECONDS:
            wrong = f"took {time.process_time() - began:.0f} s"
        if (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 > ROOM:
            wrong = "took too much memory"
    return None if wrong is None else f"{name}: {wrong}"


def misuse(name: str, path: Path) -> str | None:
    try:
        use(name, path)
    except (UsageError, Refused) as error:
        reason = error.reason
        bad = not error.hint or "\n" in reason or "\x1b" in reason or len(reason) > 4000
        return f"a bad message: {reason[:300]!r}, {error.hint!r}" if bad else None
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return None


def use(name: str, path: Path) -> None:
    """A model writes a few tokens; a head drafts for its target."""
    if name in ("dense", "hybrid", "dense directory", *OTHERS):
        load(path, weights=False)
        generate(Run(load(path), ["ngram", "mtp"] if name == "hybrid" else ["ngram"]))
    else:
        generate(Run(base(), [f"{METHODS.get(name, name)}={path}"]))


@cache
def base() -> Target:
    return tiny_target()


def generate(run: Run) -> None:
    """Weights that give NaN or infinity end the text with an error of the target."""
    try:
        assert run.generate(Request([3, 1, 4, 3, 1], max_tokens=5, ignore_eos=True)).result.tokens
    except TargetError:
        return


def faults(first: int, last: int, files: Sequence[str] = FILES) -> dict[int, str]:
    """{seed: fault} of seeds first to last - 1."""
    return {seed: wrong for seed in range(first, last) if (wrong := fault(seed, files))}


def main() -> int:
    from tests.native.sanitized import extension

    extension(sys.argv[1])
    failures = faults(int(sys.argv[2]), int(sys.argv[3]), HEADS if sys.argv[4:] == ["heads"] else FILES)
    print(failures or "nothing found")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
